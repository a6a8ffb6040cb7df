"""Links from pages to code: each names a function, class, method, SQL statement or SQL object of the linked file."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE_LINK = re.compile(r"\[`([\w.]+)`\]\(([^)\s#]+\.(?:py|sql))\)")
SQL_NAME = re.compile(
    r"^ *(?:-- name:|create (?:or replace )?(?:function|table|view|unique index|index|policy)) (\w+)", re.MULTILINE
)


def code_links() -> list[tuple[str, str, str]]:
    """The page, the name and the path of every link to code."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [
        (str(page.relative_to(ROOT)), name, path)
        for page in pages
        for name, path in CODE_LINK.findall(page.read_text(encoding="utf-8"))
    ]


def defined_names(file: Path) -> set[str]:
    """The statements and objects of an SQL file, or the functions, classes and dotted methods of a Python file."""
    text = file.read_text(encoding="utf-8")
    return set(SQL_NAME.findall(text)) if file.suffix == ".sql" else python_names(ast.parse(text).body, "")


def python_names(body: list[ast.stmt], prefix: str) -> set[str]:
    names = set()
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(prefix + node.name)
        if isinstance(node, ast.ClassDef):
            names |= python_names(node.body, f"{prefix}{node.name}.")
    return names


@pytest.mark.parametrize(("page", "name", "path"), sorted(set(code_links())))
def test_a_link_to_code_names_something_that_file_defines(page: str, name: str, path: str) -> None:
    file = ((ROOT / page).parent / path).resolve()
    assert file.is_file(), f"{page}: there is no file {path}"
    assert name in defined_names(file), f"{page}: {path} defines no {name}"


def test_the_architecture_page_links_to_code() -> None:
    assert len([link for link in code_links() if link[0] == "docs/explanation/architecture.md"]) > 50


def test_a_link_to_a_missing_name_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("class A:\n    def b(self): ...\ndef c(): ...\n")
    (tmp_path / "code.sql").write_text(
        "-- name: fetch(tenant_id)^\n-- One row.\nselect 1;\n\ncreate table t (id uuid);\n"
    )
    assert defined_names(tmp_path / "code.py") == {"A", "A.b", "c"}
    assert defined_names(tmp_path / "code.sql") == {"fetch", "t"}
