"""Names are found on any server: with pg_trgm and unaccent where they are there, without them where they are not."""

# ruff: noqa: S608 RUF001  the functions are the tests' own words, and the names are of many scripts
from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from butlers import migrate
from butlers.modules.memory.migrations import MEMORY

from .conftest import APP, BRANCHES, OWNER, connected, tenant

ENTITY = """
    insert into entities (tenant_id, canonical_name, entity_type, aliases) values ('a', $1, 'person', array[$2])
"""


async def found(connection: asyncpg.Connection[Any], match: str, asked: str) -> list[str]:
    """Whom the application finds in tenant a."""
    async with tenant(connection, "a"):
        rows = await connection.fetch(f"select canonical_name from find_entities_by_{match}($1, null, 10)", asked)
    return [row["canonical_name"] for row in rows]


async def test_without_the_extensions_names_are_found_but_for_those_spelled_alike(migrated: str) -> None:
    await migrate.downgrade(migrated, MEMORY, "mem_001", branches=BRANCHES, owner=OWNER)
    async with connected(migrated) as connection:
        await connection.execute("drop extension pg_trgm; drop extension unaccent")
    await migrate.upgrade(migrated, BRANCHES, app_role=APP, owner=OWNER)
    async with connected(migrated, APP) as connection:
        async with tenant(connection, "a"):
            await connection.execute(ENTITY, "Zoë Washburne", "Ｚ")
        assert await found(connection, "name", "ZOË washburne") == ["Zoë Washburne"]
        assert await found(connection, "alias", "z") == ["Zoë Washburne"]
        assert await found(connection, "part", "wash") == ["Zoë Washburne"]
        assert await found(connection, "name", "Zoe Washburne") == []
        assert await found(connection, "similarity", "Zoë Washbrune") == []


async def test_with_the_extensions_accents_and_slips_of_the_pen_do_not_matter(migrated: str) -> None:
    async with connected(migrated, APP) as connection:
        async with tenant(connection, "a"):
            await connection.execute(ENTITY, "Zoë Washburne", "Zed")
        assert await found(connection, "name", "Zoe Washburne") == ["Zoë Washburne"]
        assert await found(connection, "similarity", "Zoe Washbrune") == ["Zoë Washburne"]


async def test_an_extension_that_names_depend_on_can_not_be_dropped_by_accident(migrated: str) -> None:
    async with connected(migrated) as connection:
        for extension in ("unaccent", "pg_trgm"):
            with pytest.raises(asyncpg.DependentObjectsStillExistError):
                await connection.execute(f"drop extension {extension}")


async def test_a_name_is_not_looked_up_without_a_tenant(migrated: str) -> None:
    async with connected(migrated, APP) as connection:
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="tenant context is not set"):
            await connection.fetch("select * from find_entities_by_name('Ada', null, 10)")
