"""Queries, migration branches and tool schemas against a migrated database."""

from pathlib import Path

import aiosql
import asyncpg
import pytest
from fastmcp import Client

from butlers import app, migrate
from butlers.environment import Environment

from .files import SOURCE

QUERIES = sorted(SOURCE.rglob("*.sql"))


@pytest.fixture
def folder(tmp_path: Path, worker: str) -> Path:
    (tmp_path / "butler.toml").write_text(
        f'[butler]\nname = "house_{worker}"\nport = 0\n[modules.memory]\nenabled = true\ntoolset = "full"\n'
    )
    return tmp_path


def statements(path: Path) -> dict[str, str]:
    queries = aiosql.from_path(str(path), "asyncpg", mandatory_parameters=False)
    by_name = {name: getattr(queries, name) for name in queries.available_queries if not name.endswith("_cursor")}
    return {name: query.sql for name, query in by_name.items()}


async def test_every_statement_prepares(folder: Path, environment: Environment) -> None:
    assert QUERIES
    config = app.load_configuration(folder)
    async with app.migrated_database(config, environment) as place:
        connection = await asyncpg.connect(place.dsn)
        try:
            failed = [
                f"{path.name}: {name}: {error}"
                for path in QUERIES
                for name, sql in statements(path).items()
                if (error := await _prepare_error(connection, sql))
            ]
            assert failed == []
            assert await _prepare_error(connection, "select nothing from nowhere")
        finally:
            await connection.close()


async def _prepare_error(connection, sql: str) -> str | None:
    try:
        await connection.prepare(sql)
    except asyncpg.PostgresError as error:
        return str(error)
    return None


def test_every_branch_has_one_head_and_it_is_the_one_that_is_named(folder: Path) -> None:
    branches = app.migration_branches(app.load_configuration(folder))
    script = migrate._script(branches)
    assert sorted(script.get_heads()) == sorted(branch.head for branch in branches)
    assert len({branch.label for branch in branches}) == len(branches) == 2


def forbidden(schema: object) -> list[str]:
    """The names of forbidden properties in a schema, at any depth."""
    found = []
    if isinstance(schema, dict):
        names = schema.get("properties")
        found += [name for name in names or {} if "embedding" in name or "search_vector" in name]
        found += [name for inner in schema.values() for name in forbidden(inner)]
    if isinstance(schema, list):
        found += [name for inner in schema for name in forbidden(inner)]
    return found


async def test_no_tool_answers_with_a_vector(folder: Path, environment: Environment) -> None:
    config = app.load_configuration(folder)
    async with (
        app.open_butler(config, environment) as butler,
        app.open_server(butler) as server,
        Client(server.mcp) as client,
    ):
        tools = await client.list_tools()
    assert {tool.name: found for tool in tools if (found := forbidden(tool.output_schema))} == {}
    assert {tool.name for tool in tools if "tenant_id" in tool.input_schema["properties"]} <= ENTITY_TOOLS


# The specification requires the argument there.
ENTITY_TOOLS = {"entity_create", "entity_get", "entity_update", "entity_resolve", "entity_merge"}


def test_a_vector_deep_inside_an_answer_is_found() -> None:
    inner = {"type": "object", "properties": {"embedding": {"type": "array"}}}
    assert forbidden({"properties": {"rows": {"items": inner}}, "$defs": {"Fact": inner}}) == ["embedding"] * 2
