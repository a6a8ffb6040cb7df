"""Every scenario of the specification that is about remembering and finding is named by a test."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent.parent
SCENARIOS = (Path(__file__).parent / "scenarios.txt").read_text(encoding="utf-8").splitlines()
NAMED = re.compile(r"^\s*Scenario: (.+?)\s*$", re.MULTILINE)


def named_by(source: str) -> set[str]:
    """The scenarios that tests name in their docstrings."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    tests = [node for node in ast.walk(ast.parse(source)) if isinstance(node, functions)]
    docstrings = [ast.get_docstring(node) or "" for node in tests if node.name.startswith("test_")]
    return {title for text in docstrings for title in NAMED.findall(text)}


def covered() -> set[str]:
    files = [path for folder in ("memory", "domain", "entities") for path in (TESTS / folder).glob("test_*.py")]
    return {title for path in files for title in named_by(path.read_text(encoding="utf-8"))}


def test_every_scenario_has_a_test_that_names_it():
    assert len(SCENARIOS) > 60
    named = covered()
    assert [title for title in SCENARIOS if title not in named] == []


def test_every_scenario_a_test_names_is_one_of_the_specification():
    assert sorted(covered() - set(SCENARIOS)) == []


def test_the_list_is_in_order_and_names_nothing_twice():
    assert sorted(set(SCENARIOS)) == SCENARIOS


def test_a_scenario_counts_when_a_test_names_it_and_not_when_a_helper_does():
    source = (
        'def test_a_b():\n    """Scenario: One\n    Scenario: Two\n    """\ndef a():\n    """Scenario: Three"""\n'
    )
    assert named_by(source) == {"One", "Two"}
