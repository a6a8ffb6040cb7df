"""Rules for the code: sizes, docstrings, no mocks, no skipped tests."""

import ast
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

from .files import ROOT, SOURCE, texts

MAX_FILE_LINES, MAX_FUNCTION_LINES = 600, 80
MAX_MEDIAN_LINES, MAX_P90_LINES = 7, 20
MAX_SUMMARY_LENGTH = 118
Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def trees(*folders: str) -> Iterator[tuple[Path, ast.Module]]:
    for path, text in texts().items():
        if path.suffix == ".py" and path.parts[0] in folders:
            yield path, ast.parse(text, str(path))


def too_long(path: Path, text: str) -> list[str]:
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, Function)]
    long = [node for node in functions if line_count(node) > MAX_FUNCTION_LINES]
    file = [f"{path}"] if len(text.splitlines()) > MAX_FILE_LINES else []
    return file + [f"{path}:{node.lineno} {node.name}" for node in long]


def line_count(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or 0) - function.lineno + 1


def test_no_file_and_no_function_has_grown_too_long():
    parts = {path: text for path, text in texts().items() if path.suffix == ".py"}
    assert Path("src/butlers/app.py") in parts
    assert [problem for path, text in parts.items() for problem in too_long(path, text)] == []


def test_a_long_file_and_a_long_function_are_found():
    long = "def long():\n" + "    pass\n" * MAX_FUNCTION_LINES
    assert too_long(Path("a.py"), long) == ["a.py:1 long"]
    assert too_long(Path("a.py"), "\n" * (MAX_FILE_LINES + 1)) == ["a.py"]


def test_most_functions_are_short():
    nodes = [node for _, tree in trees("src") for node in ast.walk(tree) if isinstance(node, Function)]
    counts = sorted(line_count(node) for node in nodes)
    assert statistics.median(counts) <= MAX_MEDIAN_LINES
    assert counts[int(len(counts) * 0.9)] <= MAX_P90_LINES


QUESTION_WORD = re.compile(r"(What|How|Who|Whom|Where|Which|Whether|When|Whoever|Whatever)\b")


def unclear_summary(tree: ast.Module) -> str | None:
    """The first line of a module docstring that does not name the module's content; None where it does."""
    summary = (ast.get_docstring(tree) or "").partition("\n")[0]
    return summary if QUESTION_WORD.match(summary) or len(summary) > MAX_SUMMARY_LENGTH else None


def test_every_module_docstring_names_what_the_module_contains():
    modules = trees("src", "bench", "scripts")
    assert {str(path): summary for path, tree in modules if (summary := unclear_summary(tree))} == {}


@pytest.mark.parametrize("summary", ["What is known.", "Whoever calls.", "Queries. " * 20])
def test_a_module_docstring_that_does_not_name_its_content_is_found(summary):
    assert unclear_summary(ast.parse(f'"""{summary}"""'))
    assert unclear_summary(ast.parse('"""Queries on the facts table."""')) is None


def undocumented(path: Path, tree: ast.Module) -> Iterator[str]:
    """Public names without a docstring; a migration's docstring covers its upgrade and downgrade."""
    if not ast.get_docstring(tree) and tree.body:
        yield f"{path}"
    migration = "migrations" in path.parts
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            if not ast.get_docstring(node) and not (migration and node.name in {"upgrade", "downgrade"}):
                yield f"{path}:{node.lineno} {node.name}"
            if isinstance(node, ast.ClassDef) and not _overrides(node):
                yield from _methods(path, node)


def _methods(path: Path, node: ast.ClassDef) -> Iterator[str]:
    for method in node.body:
        if isinstance(method, Function) and not method.name.startswith("_") and not ast.get_docstring(method):
            yield f"{path}:{method.lineno} {node.name}.{method.name}"


def _overrides(node: ast.ClassDef) -> bool:
    """Whether the base class documents the methods."""
    return bool(node.bases)


def test_every_public_name_has_a_docstring():
    assert [problem for path, tree in trees("src", "scripts") for problem in undocumented(path, tree)] == []


def test_a_missing_docstring_is_found():
    text = '"""Room."""\ndef a(): pass\nclass B:\n    """B."""\n    def c(self): pass\n'
    assert list(undocumented(Path("x.py"), ast.parse(text))) == ["x.py:2 a", "x.py:5 B.c"]


MOCKS = {"unittest.mock", "mock", "pytest_mock", "asynctest"}


def mocks(tree: ast.Module) -> Iterator[str]:
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
    assert {str(path): found for path, tree in trees("tests") if (found := list(mocks(tree)))} == {}


@pytest.mark.parametrize(
    "text", ["from unittest import mock", "from unittest.mock import Mock", "monkeypatch.setattr(a, 'b', 1)"]
)
def test_a_mock_is_found(text):
    assert list(mocks(ast.parse(text)))


def skipped(tree: ast.Module) -> list[str]:
    names = {"skip", "skipif", "xfail", "importorskip"}
    return [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in names]


# The Claude CLI comes from npm and supports some platforms only. Its tests are skipped where it can't be installed;
# other tests cover the runtimes with small programs.
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
