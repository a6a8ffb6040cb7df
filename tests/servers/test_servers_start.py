"""Databases that do not suit: each is refused, or its shortcoming said, with its own sentence."""

import logging

import asyncpg
import pytest

from butlers import app, backup, doctor, migrate, provision, suitability
from butlers.backup_file import ForeignBackup
from butlers.caller import Caller
from butlers.contract import Check
from butlers.errors import ConfigurationFault, Fault
from servers.external_servers import ExternalServer
from servers.site import ExternalSite, new_site

ENCODINGS = {
    "LATIN1": "template template0 encoding 'LATIN1' locale 'C'",
    "SQL_ASCII": "template template0 encoding 'SQL_ASCII' locale 'C'",
}
NO_CASE = "template template0 encoding 'UTF8' locale 'C'"
CALLER = Caller(tenant="default", butler="home", actor="test")


async def serve(site: ExternalSite) -> None:
    async with app.open_butler(site.config, site.environment):
        pass


async def check(site: ExternalSite, name: str) -> Check:
    """Return one line of `butlers doctor`."""
    return next(each for each in await doctor.run_checks(site.folder, site.environment) if each.name == name)


async def migrate_anyway(site: ExternalSite) -> None:
    """Migrate as an earlier version did, which accepted every database."""
    location = await provision.locate(site.config, site.environment)
    assert location.admin_dsn
    branches = app.migration_branches(site.config)
    await migrate.upgrade(location.admin_dsn, branches, app_role=location.app, owner=location.owner)


async def tables(site: ExternalSite) -> object:
    statement = "select count(*) from pg_tables where schemaname = 'public'"
    return await site.server.fetch_value(statement, site.database)


async def test_another_encoding_than_utf8_is_refused_before_anything_is_made(server, tmp_path):
    site = await new_site(server, tmp_path, create=ENCODINGS["LATIN1"])
    refusal = "has the encoding LATIN1, and memories need UTF8"
    with pytest.raises(ConfigurationFault, match=refusal) as refused:
        await serve(site)
    assert "CREATE DATABASE" in refused.value.hint
    async with app.locate_database(site.config, site.environment) as location:
        with pytest.raises(ConfigurationFault, match=refusal):
            await app.upgrade_schema(location, app.migration_branches(site.config))
    [*_, last] = await doctor.run_checks(site.folder, site.environment)
    assert (last.name, last.state, refusal in last.found) == ("database", "fail", True)
    assert await tables(site) == 0


async def test_memories_in_another_encoding_are_brought_to_a_database_that_suits(server_of, tmp_path):
    site = await new_site(server_of("16"), tmp_path, create=ENCODINGS["SQL_ASCII"])
    await migrate_anyway(site)
    async with app.migrated_database(site.config, site.environment) as location:
        connection = await asyncpg.connect(location.dsn)
        await connection.execute("select set_config('app.tenant_id', 'default', false)")
        await connection.execute("insert into rules (tenant_id, content) values ('default', 'Grüße Женя')")
        await connection.close()
    with pytest.raises(ConfigurationFault, match="has the encoding SQL_ASCII"):
        await serve(site)
    await backup.create(site.config, site.environment, tmp_path / "b")
    target = await new_site(site.server, tmp_path)
    await backup.restore(target.config, target.environment, tmp_path / "b")
    async with (
        app.open_butler(target.config, target.environment) as butler,
        butler.database.transaction(CALLER) as tx,
    ):
        assert await tx.fetchval("select content from rules") == "Grüße Женя"


async def test_a_restore_into_another_encoding_is_refused(server_of, tmp_path):
    site = await new_site(server_of("16"), tmp_path)
    await serve(site)
    await backup.create(site.config, site.environment, tmp_path / "b")
    target = await new_site(site.server, tmp_path, create=ENCODINGS["LATIN1"])
    with pytest.raises(ConfigurationFault, match="has the encoding LATIN1"):
        await backup.restore(target.config, target.environment, tmp_path / "b")


async def test_a_new_database_without_case_outside_ascii_is_refused(server: ExternalServer, tmp_path):
    site = await new_site(server, tmp_path, create=NO_CASE)
    with pytest.raises(ConfigurationFault, match="knows upper and lower case of ASCII letters only") as refused:
        await serve(site)
    assert await tables(site) == 0
    statement = refused.value.hint.removeprefix("Create another one: ").replace("…", f"{site.database}_2")
    await server.run(statement)
    better = site.of_database(f"{site.database}_2")
    await serve(better)


async def test_an_old_database_without_case_is_served_with_a_warning_and_its_doubles_are_named(
    server_of, tmp_path, caplog
):
    site = await new_site(server_of("18"), tmp_path, create=NO_CASE)
    await migrate_anyway(site)
    caplog.set_level(logging.WARNING, logger="butlers")
    async with app.open_butler(site.config, site.environment) as butler, butler.database.transaction(CALLER) as tx:
        for name in ("ЖЕНЯ", "женя"):
            await tx.execute(
                "insert into entities (tenant_id, canonical_name, entity_type) values ('default', $1, 'person')", name
            )
    assert "case of ASCII letters only" in caplog.text
    line = await check(site, "database")
    assert (line.state, "ASCII letters only" in line.found, "CREATE DATABASE" in line.fix) == ("warn", True, True)
    await backup.create(site.config, site.environment, tmp_path / "b")
    target = await new_site(site.server, tmp_path)
    with pytest.raises(ForeignBackup, match="entities_live_name_key") as refused:
        await backup.restore(target.config, target.environment, tmp_path / "b")
    assert "merge those" in refused.value.hint
    assert "женя" not in str(refused.value).lower()


async def test_a_changed_collation_is_a_warning_of_doctor(server_of, tmp_path):
    traits = suitability.DatabaseTraits("d", 18, "UTF8", True, False, {}, ("2.31", "2.36"))
    [found] = suitability.shortcomings(traits)
    assert "2.31 and is 2.36" in found.found
    assert 'ALTER DATABASE "d" REFRESH COLLATION VERSION' in found.fix
    builtin = "template template0 locale 'C' locale_provider builtin builtin_locale 'C.UTF-8'"
    site = await new_site(server_of("18"), tmp_path, create=builtin)
    await serve(site)
    change = f"update pg_database set datcollversion = '0.1' where datname = '{site.database}'"  # noqa: S608
    await site.server.run(change)
    line = await check(site, "database")
    assert (line.state, "its collation was 0.1 and is 1" in line.found) == ("warn", True)


async def set_version(site: ExternalSite, version: str) -> None:
    statement = f"update pg_extension set extversion = '{version}' where extname = 'vector'"  # noqa: S608
    await site.server.run("create extension if not exists vector", statement, database=site.database)


@pytest.mark.parametrize("version", ["0.6.2", "0.7.4"])
async def test_a_pgvector_that_is_too_old_is_refused_by_a_new_and_by_an_old_database(server_of, tmp_path, version):
    site = await new_site(server_of("18"), tmp_path)
    await set_version(site, version)
    with pytest.raises(Fault, match=f"the extension vector is {version} .*, and 0.8 or newer is needed") as refused:
        await serve(site)
    assert "ALTER EXTENSION" in refused.value.hint
    assert await tables(site) == 0
    await set_version(site, "0.8.5")
    await serve(site)
    await set_version(site, version)
    with pytest.raises(Fault, match=r"0\.8 or newer is needed"):
        await serve(site)
    assert (await check(site, "database")).state == "fail"


async def test_an_extension_that_is_there_is_not_created_again(server_of, tmp_path):
    """An event trigger that refuses CREATE EXTENSION stands for servers that refuse it even where it exists."""
    site = await new_site(server_of("18"), tmp_path)
    refuse = (
        "create function refuse() returns event_trigger language plpgsql as $$ begin raise 'no extensions'; end $$"
    )
    trigger = (
        "create event trigger no_extensions on ddl_command_start when tag in ('CREATE EXTENSION')"
        " execute function refuse()"
    )
    await site.server.run("create extension vector", refuse, trigger, database=site.database)
    await serve(site)


async def test_the_reason_why_an_extension_can_not_be_created_is_said(server_of, tmp_path):
    site = await new_site(server_of("16"), tmp_path)
    admin = f"{site.database}_admin"
    await site.server.run(
        f"create role {admin} login createrole password 'x'", f"alter database {site.database} owner to {admin}"
    )
    restricted = site.of_role(admin, "x")
    with pytest.raises(Fault, match='can\'t be created here: permission denied to create extension "vector"'):
        await serve(restricted)


async def test_an_administrator_who_may_not_create_tables_is_told_to_own_the_database(server, tmp_path):
    site = await new_site(server, tmp_path)
    admin = f"{site.database}_admin"
    await site.server.run(f"create role {admin} login createrole password 'x'")
    await site.server.run("create extension vector", database=site.database)
    with pytest.raises(ConfigurationFault, match=f"{admin} may not let .* create tables") as refused:
        await serve(site.of_role(admin, "x"))
    assert f'ALTER DATABASE "{site.database}" OWNER TO "{admin}"' in refused.value.hint
