"""Sizes, docstrings, mocks: what keeps the code easy to change."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from .files import ROOT, SOURCE, texts

LONGEST_FILE, LONGEST_FUNCTION = 600, 80
Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def trees(*folders: str) -> Iterator[tuple[Path, ast.Module]]:
    for path, text in texts().items():
        if path.suffix == ".py" and path.parts[0] in folders:
            yield path, ast.parse(text, str(path))


def too_long(path: Path, text: str) -> list[str]:
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, Function)]
    long = [node for node in functions if (node.end_lineno or 0) - node.lineno + 1 > LONGEST_FUNCTION]
    whole = [f"{path}"] if len(text.splitlines()) > LONGEST_FILE else []
    return whole + [f"{path}:{node.lineno} {node.name}" for node in long]


def test_no_file_and_no_function_has_grown_too_long():
    parts = {path: text for path, text in texts().items() if path.suffix == ".py"}
    assert Path("src/butlers/app.py") in parts
    assert [problem for path, text in parts.items() for problem in too_long(path, text)] == []


def test_the_size_alarm_rings():
    long = "def long():\n" + "    pass\n" * LONGEST_FUNCTION
    assert too_long(Path("a.py"), long) == ["a.py:1 long"]
    assert too_long(Path("a.py"), "\n" * (LONGEST_FILE + 1)) == ["a.py"]


def undocumented(path: Path, tree: ast.Module) -> Iterator[str]:
    """Public names without a sentence; a revision's upgrade and downgrade are told by its first line."""
    if not ast.get_docstring(tree) and tree.body:
        yield f"{path}"
    revision = "migrations" in path.parts
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            if not ast.get_docstring(node) and not (revision and node.name in {"upgrade", "downgrade"}):
                yield f"{path}:{node.lineno} {node.name}"
            if isinstance(node, ast.ClassDef) and not _overrides(node):
                yield from _methods(path, node)


def _methods(path: Path, node: ast.ClassDef) -> Iterator[str]:
    for method in node.body:
        if isinstance(method, Function) and not method.name.startswith("_") and not ast.get_docstring(method):
            yield f"{path}:{method.lineno} {node.name}.{method.name}"


def _overrides(node: ast.ClassDef) -> bool:
    """A class on top of another says there what its methods are for."""
    return bool(node.bases)


def test_everything_public_says_what_it_is_for():
    assert [problem for path, tree in trees("src", "scripts") for problem in undocumented(path, tree)] == []


def test_what_says_nothing_is_found():
    text = '"""Room."""\ndef a(): pass\nclass B:\n    """B."""\n    def c(self): pass\n'
    assert list(undocumented(Path("x.py"), ast.parse(text))) == ["x.py:2 a", "x.py:5 B.c"]


MOCKS = {"unittest.mock", "mock", "pytest_mock", "asynctest"}


def doubles(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MOCKS)
        if isinstance(node, ast.ImportFrom) and (node.module in MOCKS or _mock_of_unittest(node)):
            yield str(node.module)
        if isinstance(node, ast.Attribute) and node.attr == "setattr" and _is_monkeypatch(node.value):
            yield f"monkeypatch.{node.attr}"


def _mock_of_unittest(node: ast.ImportFrom) -> bool:
    return node.module == "unittest" and any(alias.name == "mock" for alias in node.names)


def _is_monkeypatch(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "monkeypatch"


def test_no_test_uses_mocks():
    assert {str(path): found for path, tree in trees("tests") if (found := list(doubles(tree)))} == {}


@pytest.mark.parametrize(
    "text", ["from unittest import mock", "from unittest.mock import Mock", "monkeypatch.setattr(a, 'b', 1)"]
)
def test_a_mock_is_found(text):
    assert list(doubles(ast.parse(text)))


def skipped(tree: ast.Module) -> list[str]:
    names = {"skip", "skipif", "xfail", "importorskip"}
    return [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in names]


# One place: the Claude CLI comes from npm and has programs for some platforms only. Where it can't be had, its own
# tests say so; what they show about our part of the work is shown with small programs as well.
MAY_SKIP = {"tests/claude.py": ["skip"]}


def test_no_test_is_skipped_or_expected_to_fail():
    assert {str(path): found for path, tree in trees("tests") if (found := skipped(tree))} == MAY_SKIP


def test_every_test_name_is_a_sentence():
    for path, tree in trees("tests"):
        for node in tree.body:
            if isinstance(node, Function) and node.name.startswith("test_"):
                assert node.name.count("_") >= 2, f"{path}:{node.lineno} {node.name}"


def test_the_sources_are_where_they_are_looked_for():
    assert SOURCE.is_dir()
    assert {path.parts[0] for path in texts()} >= {"src", "tests", "docs", "scripts", "Makefile"}
    assert (ROOT / "pyproject.toml").is_file()
