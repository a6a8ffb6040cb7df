"""Running them: at once, half-way, back and forth, and on databases that are not as expected."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from butlers import migrate
from butlers.errors import Fault, Unavailable
from butlers.host.migrations import CORE
from butlers.migrate import Branch, MigrationFault, OutdatedSchema, UnknownRevision
from butlers.modules.memory.migrations import MEMORY

from .conftest import APP, BRANCHES, OWNER, Server, connected
from .test_migrations_schema import _reference

HEADS = {branch.label: branch.head for branch in BRANCHES}
NOWHERE = dict.fromkeys(HEADS)

MIGRATOR = """
import asyncio, json, sys
from butlers import migrate
from butlers.host.migrations import CORE
from butlers.modules.memory.migrations import MEMORY
dsn, app, owner = sys.argv[1:]
done = asyncio.run(migrate.upgrade(dsn, (CORE, MEMORY), app_role=app, owner=owner))
print(json.dumps([dict(done.before), dict(done.after)]))
"""

CHECKER = """
import asyncio, sys
import asyncpg
from butlers import migrate
from butlers.host.migrations import CORE
from butlers.modules.memory.migrations import MEMORY

async def check(dsn):
    connection = await asyncpg.connect(dsn)
    print(await migrate.pending_branches(connection, (CORE, MEMORY)))
    await connection.close()

asyncio.run(check(sys.argv[1]))
print(sorted({"alembic", "sqlalchemy"} & set(sys.modules)))
"""


async def _python(program: str, *arguments: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


def _branch(folder: Path, **revisions: str) -> Branch:
    """A branch of its own whose revisions each run one piece of Python."""
    before = None
    for revision, body in revisions.items():
        lines = (
            "from alembic import op",
            f"revision = {revision!r}",
            f"down_revision = {before!r}",
            f"branch_labels = {('extra',) if before is None else None!r}",
            f"def upgrade():\n    {body}",
            "def downgrade():\n    pass",
        )
        (folder / f"{revision}_step.py").write_text("\n".join(lines))
        before = revision
    assert before is not None
    return Branch(label="extra", location=folder, head=before)


async def _tables(dsn: str) -> set[str]:
    async with connected(dsn) as connection:
        rows = await connection.fetch("select tablename from pg_tables where schemaname = 'public'")
    return {row["tablename"] for row in rows}


@pytest.mark.slow
async def test_row_20_six_processes_migrate_at_once_and_one_of_them_does_it(empty: str) -> None:
    ended = await asyncio.gather(*(_python(MIGRATOR, empty, APP, OWNER) for _ in range(6)))
    assert [(code, err) for code, _, err in ended] == [(0, "")] * 6
    reports = [json.loads(out) for _, out, _ in ended]
    assert [after for _, after in reports] == [HEADS] * 6
    assert sorted(json.dumps(before) for before, _ in reports) == sorted(
        [json.dumps(NOWHERE)] + [json.dumps(HEADS)] * 5
    )


async def test_a_database_at_head_is_recognised_without_importing_alembic(migrated: str) -> None:
    code, out, err = await _python(CHECKER, migrated)
    assert (code, out.split("\n"), err) == (0, ["{}", "[]", ""], "")


async def test_the_application_itself_can_tell_what_is_pending(empty: str, migrated: str) -> None:
    async with connected(empty, APP) as connection:
        assert await migrate.pending_branches(connection, BRANCHES) == NOWHERE
    async with connected(migrated, APP) as connection:
        assert await migrate.pending_branches(connection, BRANCHES) == {}
    await migrate.downgrade(migrated, MEMORY, "mem_003", branches=BRANCHES, owner=OWNER)
    async with connected(migrated, APP) as connection:
        assert await migrate.pending_branches(connection, BRANCHES) == {"memory": "mem_003"}
    done = await migrate.upgrade(migrated, BRANCHES, app_role=APP, owner=OWNER)
    assert (done.before, done.after) == ({"core": CORE.head, "memory": "mem_003"}, HEADS)


async def test_a_role_without_rights_is_told_to_migrate(migrated: str) -> None:
    async with connected(migrated) as connection:
        await connection.execute(f'revoke all on alembic_version from "{APP}"')
        await connection.execute(f'set role "{APP}"')
        with pytest.raises(MigrationFault, match="butlers migrate"):
            await migrate.pending_branches(connection, BRANCHES)


async def test_row_21_a_migration_that_fails_half_way_leaves_nothing_behind(blank: str, tmp_path: Path) -> None:
    extra = _branch(
        tmp_path,
        ext_001='op.execute("create table half (id int)")',
        ext_002='op.execute("select rubbish from half")',
    )
    with pytest.raises(MigrationFault, match=r'migration ext_002 failed: column "rubbish" does not exist'):
        await migrate.upgrade(blank, (*BRANCHES, extra), app_role=APP, owner=OWNER)
    assert await _tables(blank) == set()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise KeyError('lost')", "migration ext_001 failed: 'lost'"),
        ('op.execute("select length(1)")', "No function matches the given name"),
    ],
)
async def test_row_21_a_failure_names_its_revision_and_keeps_the_servers_hint(
    blank: str, tmp_path: Path, body: str, said: str
) -> None:
    with pytest.raises(MigrationFault, match="migration ext_001 failed") as failed:
        await migrate.upgrade(blank, [_branch(tmp_path, ext_001=body)], app_role=APP, owner=OWNER)
    assert said in str(failed.value)
    assert await _tables(blank) == set()


async def test_a_database_of_a_newer_version_is_left_alone(migrated: str) -> None:
    said = "the database is at mem_999, which this version of butlers does not know. Upgrade butlers"
    async with connected(migrated) as connection:
        await connection.execute("update alembic_version set version_num = 'mem_999' where version_num like 'mem_%'")
        with pytest.raises(UnknownRevision, match=said):
            await migrate.pending_branches(connection, BRANCHES)
    with pytest.raises(UnknownRevision, match=said):
        await migrate.upgrade(migrated, BRANCHES, app_role=APP, owner=OWNER)
    with pytest.raises(UnknownRevision, match=said):
        await migrate.downgrade(migrated, MEMORY, "base", branches=BRANCHES, owner=OWNER)


@pytest.mark.parametrize("version", ["core_004", "core_001"])
async def test_a_database_from_before_the_fold_is_told_to_export_and_import(migrated: str, version: str) -> None:
    async with connected(migrated) as connection:
        await connection.execute("drop function enable_tenant_isolation(regclass, boolean)")
        await connection.execute(
            "update alembic_version set version_num = $1 where version_num like 'core%'", version
        )
        with pytest.raises(OutdatedSchema, match=r"butlers memory export DIR FILE.*butlers memory import DIR FILE"):
            await migrate.pending_branches(connection, BRANCHES)
    with pytest.raises(OutdatedSchema, match="an earlier development version"):
        await migrate.upgrade(migrated, BRANCHES, app_role=APP, owner=OWNER)


async def test_a_butler_without_a_module_leaves_that_modules_tables_and_version(migrated: str) -> None:
    await migrate.downgrade(migrated, MEMORY, "mem_003", branches=BRANCHES, owner=OWNER)
    done = await migrate.upgrade(migrated, [CORE], app_role=APP, owner=OWNER)
    assert done.after == {"core": CORE.head}
    async with connected(migrated) as connection:
        assert await migrate.pending_branches(connection, [CORE]) == {}
        assert await migrate.pending_branches(connection, BRANCHES) == {"memory": "mem_003"}


async def test_down_to_nothing_and_up_again_gives_the_same_schema(migrated: str) -> None:
    reference = _reference()
    async with connected(migrated) as connection:
        before = await reference.render(connection)
        for target in ("mem_004", "mem_003", "mem_002", "mem_001", "base"):
            await migrate.downgrade(migrated, MEMORY, target, branches=BRANCHES, owner=OWNER)
        for target in ("core_002", "core_001", "base"):
            await migrate.downgrade(migrated, CORE, target, owner=OWNER)
        assert await _tables(migrated) == {"alembic_version"}
        assert await connection.fetch("select * from alembic_version") == []
        assert (
            await connection.fetch(
                "select proname from pg_proc p where pronamespace = 'public'::regnamespace"
                " and not exists (select from pg_depend d where d.objid = p.oid and d.deptype = 'e')"
            )
            == []
        )
        done = await migrate.upgrade(migrated, BRANCHES, app_role=APP, owner=OWNER)
        assert (done.before, done.after) == (NOWHERE, HEADS)
        assert await reference.render(connection) == before


async def test_what_a_butler_remembers_survives_going_back_a_step_and_up_again(migrated: str) -> None:
    async with connected(migrated) as connection:
        await connection.execute("insert into episodes (tenant_id, butler, content) values ('a', 'general', 'rain')")
        await connection.execute(
            "insert into facts (tenant_id, subject, predicate, content) values ('a', 'user', 'likes', 'tea')"
        )
    await migrate.downgrade(migrated, MEMORY, "mem_001", branches=BRANCHES, owner=OWNER)
    await migrate.upgrade(migrated, BRANCHES, app_role=APP, owner=OWNER)
    async with connected(migrated) as connection:
        assert await connection.fetchval("select content from episodes") == "rain"
        assert await connection.fetchval("select content from facts where entity_id is null") == "tea"


async def test_the_core_can_not_be_taken_from_under_the_memory(migrated: str) -> None:
    with pytest.raises(MigrationFault, match=r"downgrade of migration core_001 failed.*other objects depend on it"):
        await migrate.downgrade(migrated, CORE, "base", owner=OWNER)
    async with connected(migrated) as connection:
        assert await migrate.pending_branches(connection, BRANCHES) == {}


async def test_rights_that_somebody_changed_are_as_they_should_be_after_the_next_upgrade(migrated: str) -> None:
    rights = "select has_table_privilege($1, 'memory_events', 'delete'), has_table_privilege($1, 'facts', 'insert')"
    async with connected(migrated) as connection:
        await connection.execute(f'grant all on memory_events, api_keys to "{APP}", public')
        await connection.execute(f'revoke all on facts from "{APP}"')
        done = await migrate.upgrade(migrated, BRANCHES, app_role=APP, owner=OWNER)
        assert done.before == done.after
        assert tuple(await connection.fetchrow(rights, APP) or ()) == (False, True)
        await connection.execute(f'revoke all on facts from "{APP}"')
        await migrate.grant_privileges(connection, BRANCHES, app_role=APP)
        assert tuple(await connection.fetchrow(rights, APP) or ()) == (False, True)


async def test_owner_and_application_have_to_be_two_roles(blank: str) -> None:
    with pytest.raises(MigrationFault, match="Use two roles"):
        await migrate.upgrade(blank, BRANCHES, app_role=OWNER, owner=OWNER)
    assert await _tables(blank) == set()


async def test_a_role_that_does_not_exist_is_named(blank: str) -> None:
    with pytest.raises(MigrationFault, match=r'granting the application.s rights failed: role "nobody" does not'):
        await migrate.upgrade(blank, BRANCHES, app_role="nobody", owner=OWNER)
    assert await _tables(blank) == set()


@pytest.mark.parametrize("rights", [{"table a; drop": "select"}, {"table facts": "select; drop"}])
async def test_rights_are_spelled_as_rights(migrated: str, rights: dict[str, str]) -> None:
    odd = Branch(label="core", location=CORE.location, head=CORE.head, rights=rights)
    with pytest.raises(Fault):
        await migrate.upgrade(migrated, [odd], app_role=APP, owner=OWNER)


async def test_waiting_for_another_migrator_is_not_cut_short_by_a_timeout(migrated: str) -> None:
    async with connected(migrated) as other:
        name = urlsplit(migrated).path.lstrip("/")
        for setting in ("lock_timeout", "statement_timeout", "transaction_timeout"):
            await other.execute(f"alter database {name} set {setting} = '300ms'")
        transaction = other.transaction()
        await transaction.start()
        await other.execute("select pg_advisory_xact_lock($1)", migrate._LOCK)
        waiting = asyncio.create_task(migrate.upgrade(migrated, BRANCHES, app_role=APP, owner=OWNER))
        _, unfinished = await asyncio.wait([waiting], timeout=1)
        assert unfinished
        await transaction.rollback()
        assert (await waiting).after == HEADS


async def test_one_line_says_which_extensions_are_missing(empty: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="butlers.migrate"):
        await migrate.upgrade(empty, BRANCHES, app_role=APP, owner=OWNER)
    async with connected(empty) as connection:
        missing = await connection.fetchval(
            "select string_agg(name, ', ') from unnest(array['uuid-ossp', 'pg_trgm', 'unaccent']) name"
            " where name not in (select extname from pg_extension)"
        )
    said = [record.getMessage() for record in caplog.records if record.name == "butlers.migrate"]
    expected = [f"going on without extensions this server or role can't create: {missing}"] if missing else []
    assert said == expected


async def test_a_role_that_may_not_create_vector_is_told_whom_to_ask(empty: str) -> None:
    plain = "plain_" + urlsplit(empty).path.lstrip("/")
    dsn = urlunsplit(urlsplit(empty)._replace(netloc=f"{plain}:@"))
    async with connected(empty) as connection:
        await connection.execute(f"create role {plain} login")
        await connection.execute(f"grant create on schema public to {plain}")
        try:
            with pytest.raises(MigrationFault, match=r"mem_001 needs the extension vector.*CREATE EXTENSION vector"):
                await migrate.upgrade(dsn, BRANCHES, app_role=APP)
            assert await _tables(empty) == set()
            await connection.execute("create extension vector")
            assert (await migrate.upgrade(dsn, BRANCHES, app_role=APP)).after == HEADS
        finally:
            await connection.execute(f"drop owned by {plain} cascade")
            await connection.execute(f"drop role {plain}")


async def test_a_vector_extension_in_another_schema_is_pointed_out(empty: str) -> None:
    async with connected(empty) as connection:
        await connection.execute("create schema elsewhere")
        await connection.execute("create extension vector schema elsewhere")
    with pytest.raises(MigrationFault, match=r"it is in elsewhere\. Run: ALTER EXTENSION vector SET SCHEMA public"):
        await migrate.upgrade(empty, BRANCHES, app_role=APP, owner=OWNER)


async def test_a_server_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="the database can't be reached"):
        await migrate.upgrade(f"postgresql://postgres@/postgres?host={tmp_path}", BRANCHES, app_role=APP)


async def test_a_database_that_does_not_exist_is_named(server: Server) -> None:
    with pytest.raises(MigrationFault, match='database "nowhere" does not exist'):
        await migrate.upgrade(server.database("nowhere"), BRANCHES, app_role=APP)


async def test_a_table_of_another_schema_on_the_search_path_is_not_touched(empty: str) -> None:
    name = urlsplit(empty).path.lstrip("/")
    async with connected(empty) as connection:
        await connection.execute("create schema other")
        await connection.execute("create table other.facts (kept int)")
        await connection.execute(f"alter database {name} set search_path = other, public")
    await migrate.upgrade(empty, BRANCHES, app_role=APP, owner=OWNER)
    await migrate.downgrade(empty, MEMORY, "base", branches=BRANCHES, owner=OWNER)
    async with connected(empty) as connection:
        assert await connection.fetchval("select to_regclass('public.facts')") is None
        assert isinstance(await connection.fetch("select kept from other.facts"), list)


def test_what_the_server_said_is_found_inside_what_wraps_it() -> None:
    said = asyncpg.PostgresError("no")
    outer = ValueError("outer")
    outer.__cause__ = said
    assert migrate._find(outer, asyncpg.PostgresError) is said
    assert migrate._find(ValueError("alone"), asyncpg.PostgresError) is None
