"""Backup and restore on servers of several versions, with and without contrib, with and without TLS."""

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client

from butlers import app, backup, backup_file, client_programs, doctor, provision
from butlers.caller import Caller
from butlers.client_programs import ClientProgram, ServerTraits, choose_pg_dump
from butlers.config import Configuration
from butlers.contract import Check
from butlers.environment import Environment
from butlers.errors import Unavailable
from database.butler_processes import write_folder
from servers.external_servers import ExternalServer
from servers.site import ExternalSite, new_administered_site, new_site
from servers.tls import make_certificates, tls_front

CALLER = Caller(tenant="default", butler="home", actor="test")
NAMES = ("José", "Jose", "ЖЕНЯ")


async def fill(config: Configuration, environment: Environment) -> None:
    """Start the butler once, and store a rule and entities with letters outside ASCII."""
    async with app.open_butler(config, environment) as butler, butler.database.transaction(CALLER) as tx:
        await tx.execute("insert into rules (tenant_id, content) values ('default', 'Be kind')")
        for name in NAMES:
            await tx.execute(
                "insert into entities (tenant_id, canonical_name, entity_type) values ('default', $1, 'person')", name
            )


async def check(config: Configuration, environment: Environment) -> None:
    """Start the butler and read what `fill` stored."""
    async with app.open_butler(config, environment) as butler, butler.database.transaction(CALLER) as tx:
        assert await tx.fetchval("select content from rules") == "Be kind"
        found = await tx.fetch("select canonical_name from find_entities_by_name('женя', null, 5)")
        assert [row["canonical_name"] for row in found] == ["ЖЕНЯ"]


async def move(site: ExternalSite, file: Path, at: Path) -> ExternalSite:
    """Back a site up and restore it into a new database of its server."""
    await backup.create(site.config, site.environment, file)
    target = await new_administered_site(site.server, at)
    restored = await backup.restore(target.config, target.environment, file)
    assert (restored.rows["rules"], restored.rows["entities"], restored.tenants) == (1, len(NAMES), 1)
    return target


async def test_a_backup_is_restored_on_the_same_server_by_an_administrator(server: ExternalServer, tmp_path: Path):
    site = await new_administered_site(server, tmp_path)
    await fill(site.config, site.environment)
    target = await move(site, tmp_path / "b", tmp_path)
    await check(target.config, target.environment)


@pytest.mark.slow
async def test_a_backup_goes_from_contrib_to_a_server_without_and_back(server, environment, tmp_path):
    """pg_trgm and unaccent are on one side only: a restore never needs what the target lacks."""
    first, last = (app.load_configuration(write_folder(tmp_path, probe=False)) for _ in range(2))
    await fill(first, environment)
    await backup.create(first, environment, tmp_path / "there")
    other = await new_site(server, tmp_path)
    await backup.restore(other.config, other.environment, tmp_path / "there")
    await check(other.config, other.environment)
    await backup.create(other.config, other.environment, tmp_path / "back")
    await backup.restore(last, environment, tmp_path / "back")
    await check(last, environment)


@pytest.mark.slow
async def test_a_server_that_takes_tls_only_is_backed_up(server, tmp_path):
    """By the system's pg_dump where that is new enough, else by the bundled one, which has no TLS."""
    site = await new_site(server, tmp_path)
    files = make_certificates(tmp_path, "127.0.0.1")
    await fill(site.config, site.environment)
    with tls_front(server, files) as port:
        encrypted = site.with_port(port, sslmode="verify-full", sslrootcert=str(files.authority))
        target = await move(encrypted, tmp_path / "b", tmp_path)
    await check(target.config, target.environment)


async def test_the_bundled_pg_dump_needs_no_tls_of_its_own(server_of, tmp_path):
    site = await new_site(server_of("16"), tmp_path)
    files = make_certificates(tmp_path, "127.0.0.1")
    [*_, bundled] = await client_programs.find_programs("pg_dump")
    assert (bundled.is_bundled, bundled.speaks_tls) == (True, False)
    with tls_front(site.server, files) as port, (tmp_path / "b").open("wb") as file:
        url = site.with_port(port, sslmode="require").url
        assert await backup_file.write_backup(url, file, is_embedded=True) > 0


def program(version: str, *, tls: bool = True, bundled: bool = False) -> ClientProgram:
    return ClientProgram("pg_dump", Path(f"/pg/{version}/bin/pg_dump"), version, bundled, tls)


BUNDLED = program("18.6", tls=False, bundled=True)


@pytest.mark.parametrize(
    ("programs", "major", "uses_tls", "chosen"),
    [
        (["15.18", "17.2"], 15, False, "15.18"),
        (["15.18", "17.2"], 15, True, "15.18"),
        (["15.18", "17.2"], 16, True, "17.2"),
        (["15.18"], 16, False, "18.6"),
        (["15.18"], 16, True, "18.6"),
        ([], 18, True, "18.6"),
        (["19.1"], 18, True, "19.1"),
        (["19.1"], 19, True, "19.1"),
    ],
)
def test_the_systems_program_is_chosen_where_it_can_do_it(programs, major, uses_tls, chosen):
    found = [*map(program, programs), BUNDLED]
    assert choose_pg_dump(found, ServerTraits(major, uses_tls)).version == chosen


def test_a_server_that_is_newer_than_every_program_is_refused_with_what_is_there():
    with pytest.raises(
        Unavailable, match=r"PostgreSQL 19, .*pg_dump 15.18 \(/pg/15.18/bin\), pg_dump 18.6"
    ) as refused:
        choose_pg_dump([program("15.18"), BUNDLED], ServerTraits(19, uses_tls=False))
    assert "PostgreSQL 19 or newer" in refused.value.hint


async def test_programs_on_the_path_are_found_and_a_broken_one_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    broken = tmp_path / "pg_dump"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    assert shutil.which("pg_dump") == str(broken)
    assert [each.is_bundled for each in await client_programs.find_programs("pg_dump", folders=())] == [True]
    broken.write_text("#!/bin/sh\necho 'pg_dump (PostgreSQL) 42.1'\n")
    found = await client_programs.find_programs("pg_dump", folders=())
    assert [str(each) for each in found] == [f"pg_dump 42.1 ({tmp_path})", f"pg_dump {found[-1].version} (bundled)"]


async def restore_line(site: ExternalSite) -> Check:
    """Return the line `restore` of `butlers doctor`."""
    checks = await doctor.run_checks(site.folder, site.environment)
    return next(each for each in checks if each.name == "restore")


async def test_doctor_names_the_programs_and_says_whether_a_restore_would_work(server_of, tmp_path):
    site = await new_site(server_of("18"), tmp_path)
    files = make_certificates(tmp_path, "127.0.0.1")
    line = await restore_line(site)
    assert line.state == "ok"
    assert re.search(r"pg_dump \d+.* writes a backup, pg_restore \d+.* reads it$", line.found)
    with tls_front(site.server, files) as port:
        encrypted = site.with_port(port, sslmode="require")
        found = (await restore_line(encrypted)).found
        traits = ServerTraits(18, uses_tls=True)
        program = await client_programs.fitting_pg_dump(traits, is_embedded=False)
        assert ("through a TLS tunnel" in found) is not program.speaks_tls
    owner = f"butler_{site.config.butler.name}_owner"
    alone = replace(site, url=(await provision.locate(site.config, site.environment)).dsn)
    assert (await restore_line(alone)).found.endswith("where BUTLERS_ADMIN_DATABASE_URL names the owner")
    await site.server.run(f"revoke create on schema public from {owner}", database=site.database)
    line = await restore_line(alone)
    assert (line.state, f"but {owner} may not create tables" in line.found) == ("warn", True)
    assert f'GRANT CREATE ON SCHEMA public TO "{owner}"' in line.fix


@pytest.mark.slow
async def test_every_server_serves_the_tools_a_session_needs(server, tmp_path):
    site = await new_site(server, tmp_path)
    async with (
        app.open_butler(site.config, site.environment) as butler,
        app.open_server(butler, with_jobs=False) as running,
        Client(running.mcp) as client,
    ):

        async def call(tool: str, **arguments: Any) -> Any:
            return (await client.call_tool(tool, arguments)).structured_content

        fact = await call("memory_store_fact", subject="user", predicate="tea", content="Darjeeling")
        rule = await call("memory_store_rule", content="Ask before ordering tea")
        await call("memory_store_episode", content="We spoke about tea", butler=site.config.butler.name)
        entity = await call("entity_create", canonical_name="ЖЕНЯ", entity_type="person")
        assert "Darjeeling" in str(await call("memory_search", query="tea"))
        assert "Darjeeling" in str(await call("memory_recall", topic="what to drink"))
        context = await call("memory_context", trigger_prompt="Order tea", butler=site.config.butler.name)
        assert "Darjeeling" in str(context)
        assert entity["id"] in str(await call("entity_resolve", name="женя"))
        await call("memory_confirm", memory_type="fact", memory_id=fact["id"])
        await call("memory_mark_helpful", rule_id=rule["id"])
        assert "facts" in str(await call("memory_stats"))
        await call("memory_forget", memory_type="rule", memory_id=rule["id"])
    async with app.open_scheduler(site.folder, env=site.environment) as (butler, scheduler):
        # Consolidation needs a runtime, and has its own tests.
        for job in app.all_jobs(butler):
            if not job.name.startswith("consolid"):
                await scheduler.run(job)
