"""Which scenarios of the specification are named by tests: a docstring says `Scenario: title`."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
NAMED = re.compile(r"^\s*Scenario: (.+?)\s*$", re.MULTILINE)


def listed(folder: str) -> list[str]:
    """The titles a folder of tests has to name."""
    return (TESTS / folder / "scenarios.txt").read_text(encoding="utf-8").splitlines()


def named_by(source: str) -> set[str]:
    """The scenarios that tests name in their docstrings."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    tests = [node for node in ast.walk(ast.parse(source)) if isinstance(node, functions)]
    docstrings = [ast.get_docstring(node) or "" for node in tests if node.name.startswith("test_")]
    return {title for text in docstrings for title in NAMED.findall(text)}


def covered(*folders: str) -> set[str]:
    """The scenarios that the tests of these folders name."""
    files = [path for folder in folders for path in (TESTS / folder).glob("test_*.py")]
    return {title for path in files for title in named_by(path.read_text(encoding="utf-8"))}
