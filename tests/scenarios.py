"""Scenarios of the specification, and the tests that name them in their docstrings (`Scenario: title`)."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
_SCENARIO = re.compile(r"^\s*Scenario: (.+?)\s*$", re.MULTILINE)


def listed(folder: str) -> list[str]:
    """The scenarios that the tests of a folder must name."""
    return (TESTS / folder / "scenarios.txt").read_text(encoding="utf-8").splitlines()


def named_by(source: str) -> set[str]:
    """The scenarios that tests name in their docstrings."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    tests = [node for node in ast.walk(ast.parse(source)) if isinstance(node, functions)]
    docstrings = [ast.get_docstring(node) or "" for node in tests if node.name.startswith("test_")]
    return {title for text in docstrings for title in _SCENARIO.findall(text)}


def covered(*folders: str) -> set[str]:
    """The scenarios that the tests of these folders name."""
    files = [path for folder in folders for path in (TESTS / folder).glob("test_*.py")]
    return {title for path in files for title in named_by(path.read_text(encoding="utf-8"))}
