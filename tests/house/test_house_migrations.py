"""Revisions add first: what an older butler uses is dropped or changed by a revision that says so."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .files import SOURCE

FOLDERS = (SOURCE / "host" / "migrations", SOURCE / "modules" / "memory" / "migrations")
# Revisions up to these were made before the rule.
FIRST_WITH_RULE = {"core": 5, "mem": 9}
CONTRACTION = re.compile(
    r"\bdrop\s+(?:table|column|view|function|constraint|type|schema|trigger)\b"
    r"|\brename\s+(?:to|column)\b"
    r"|\balter\s+(?:column\s+)?\w+\s+(?:type|set\s+not\s+null)\b"
    r"|\badd\s+column\s+\w+[^,;]*\bnot\s+null(?![^,;]*\bdefault\b)(?<!default)",
    re.IGNORECASE,
)
COMMENT = re.compile(r"--[^\n]*")


def revisions() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted(folder.glob("*_[0-9]*.py")):
            branch, number, *_ = path.stem.split("_")
            if int(number) >= FIRST_WITH_RULE[branch]:
                yield path


def contractions(text: str, read_sql) -> list[str]:
    """Return the statements of `upgrade` that take something away, those in its files included."""
    tree = ast.parse(text)
    [upgrade] = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "upgrade"]
    constants = [node.value for node in ast.walk(upgrade) if isinstance(node, ast.Constant)]
    names = [
        call.args[1].value
        for call in ast.walk(upgrade)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "run_sql_file"
        if isinstance(call.args[1], ast.Constant)
    ]
    statements = [each for each in constants if isinstance(each, str)] + [read_sql(str(name)) for name in names]
    return [match[0] for each in statements for match in CONTRACTION.finditer(COMMENT.sub("", each))]


def says_why(text: str) -> bool:
    """Return whether the revision has a sentence `contracts`."""
    values = {
        target.id: node.value
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    reason = values.get("contracts")
    return isinstance(reason, ast.Constant) and bool(str(reason.value).strip())


def test_a_revision_that_takes_something_away_says_since_when_nobody_uses_it() -> None:
    found = {}
    for path in revisions():
        text = path.read_text()
        taken = contractions(text, lambda name, path=path: (path.parent / "sql" / f"{name}.sql").read_text())
        if taken and not says_why(text):
            found[path.name] = taken
    assert found == {}
    assert list(revisions())


@pytest.mark.parametrize(
    "statement",
    [
        "drop table facts",
        "alter table facts drop column scope",
        "drop function api_key(uuid)",
        "alter table facts rename to truths",
        "alter table facts rename column scope to place",
        "alter table facts alter column importance type real",
        "alter table facts alter scope set not null",
        "alter table facts add column origin text not null",
    ],
)
def test_a_statement_that_takes_something_away_is_found(statement: str) -> None:
    text = f'def upgrade() -> None:\n    op.execute("{statement}")\n'
    assert contractions(text, str)
    assert contractions('def upgrade():\n    run_sql_file(__file__, "it")\n', lambda _: f"-- Why.\n{statement};")
    assert says_why(f'contracts = "Unused since 0.2."\n{text}')
    assert not says_why(text)


@pytest.mark.parametrize(
    "statement",
    [
        "create table more (tenant_id text not null)",
        "alter table facts add column origin text",
        "alter table facts add column origin text not null default 'here'",
        "drop index facts_exact",
        "create or replace function f() returns text language sql as $$ select 'drop it' $$",
    ],
)
def test_a_statement_that_adds_is_left_alone(statement: str) -> None:
    assert contractions(f'def upgrade() -> None:\n    op.execute("""{statement}""")\n', str) == []
