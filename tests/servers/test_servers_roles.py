"""Owner and application apart: shared databases, passwords that change, and processes without the owner."""

import asyncio
import subprocess
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest

from butlers import app, backup, embedded_server, migrate, provision
from butlers.app import Butler
from butlers.database_url import password_of, with_role
from butlers.errors import ConfigurationFault
from database.butler_processes import write_folder
from servers.external_servers import run_program
from servers.site import ExternalSite, new_administered_site, new_site

RULE = "insert into rules (tenant_id, content) values ('default', $1)"


def sibling(site: ExternalSite, at: Path) -> ExternalSite:
    """Return another butler on the same database."""
    return replace(site, folder=write_folder(at, probe=False))


async def store(butler: Butler, content: str) -> list[str]:
    """Store a rule and return all rules."""
    async with butler.database.transaction(butler.caller()) as tx:
        await tx.execute(RULE, content)
        return [row["content"] for row in await tx.fetch("select content from rules order by content")]


async def test_two_butlers_share_a_database_by_an_administrators_url(server, tmp_path):
    site = await new_administered_site(server, tmp_path)
    other = sibling(site, tmp_path)
    for each in (site, other):
        async with app.locate_database(each.config, each.environment) as location:
            await app.upgrade_schema(location, app.migration_branches(each.config))
    async with (
        app.open_butler(site.config, site.environment) as first,
        app.open_butler(other.config, other.environment) as second,
    ):
        assert first.location.app != second.location.app
        assert first.location.owner == second.location.owner
        assert await store(first, "a") == ["a"]
        assert await store(second, "b") == ["a", "b"]


async def test_butlers_of_two_names_that_start_at_once_on_an_empty_database_agree_on_its_owner(server_of, tmp_path):
    site = await new_administered_site(server_of("18"), tmp_path)
    sites = [site, *(sibling(site, tmp_path) for _ in range(3))]

    async def start(each: ExternalSite) -> str | None:
        async with app.open_butler(each.config, each.environment) as butler:
            await store(butler, each.folder.name)
            return butler.location.owner

    assert len(set(await asyncio.gather(*map(start, sites)))) == 1


async def test_a_migration_grants_the_rights_of_every_butler_on_the_database(server_of, tmp_path):
    """A function that a migration makes anew has no rights: those of the other butler are given again as well."""
    site = await new_administered_site(server_of("16"), tmp_path)
    other = sibling(site, tmp_path)
    async with app.open_butler(site.config, site.environment) as first:
        async with app.open_butler(other.config, other.environment) as second:
            roles = [first.location.app, second.location.app]
        lost = f"revoke all on function unfinished_sessions(text) from {', '.join(roles)}"
        await site.server.run(lost, database=site.database)
        await app.upgrade_schema(first.location, app.migration_branches(site.config))
        for role in roles:
            granted = f"select has_function_privilege('{role}', 'unfinished_sessions(text)', 'execute')"
            assert await site.server.fetch_value(granted, site.database) is True
        # A role that reads for somebody else gets no more than it had.
        await site.server.run(
            "create role reader", "grant select on all tables in schema public to reader", database=site.database
        )
        await app.upgrade_schema(first.location, app.migration_branches(site.config))
        writes = "select has_table_privilege('reader', 'facts', 'insert')"
        assert await site.server.fetch_value(writes, site.database) is False


async def test_rights_that_are_missing_are_granted_by_a_start_with_the_owner_and_named_without(server_of, tmp_path):
    site = await new_administered_site(server_of("18"), tmp_path)
    async with app.open_butler(site.config, site.environment) as butler:
        location = butler.location
    await site.server.run(f"revoke insert on table facts from {location.app}", database=site.database)
    alone = replace(site, url=location.dsn)
    with pytest.raises(migrate.MigrationFault, match="this role may not use table facts") as refused:
        async with app.open_butler(alone.config, alone.environment):
            pass
    assert "butlers migrate" in refused.value.hint
    for each in (site, alone):
        async with app.open_butler(each.config, each.environment) as butler:
            await store(butler, "here")


async def test_an_administrator_who_may_not_act_as_the_owner_is_told_which_grant_it_needs(server_of, tmp_path):
    site = await new_administered_site(server_of("18"), tmp_path)
    async with app.open_butler(site.config, site.environment) as butler:
        owner = butler.location.owner
    stranger = f"{site.database}_stranger"
    await site.server.run(f"create role {stranger} login createrole password 'x'")
    await site.server.run(f"grant all on schema public to {stranger}", database=site.database)
    await site.server.run(f"grant all on database {site.database} to {stranger}")
    other = sibling(site, tmp_path).of_role(stranger, "x")
    with pytest.raises(
        ConfigurationFault, match=f"the tables belong to {owner}, and {stranger} may not act"
    ) as refused:
        await provision.locate(other.config, other.environment)
    assert f'GRANT "{owner}" TO "{stranger}"' in refused.value.hint


async def burst(butler: Butler, count: int = 48) -> None:
    """Make calls that need many connections at once; the first failure is raised."""

    async def call() -> None:
        async with butler.database.transaction(butler.caller()) as tx:
            await tx.execute("select pg_sleep(0.02)")

    await asyncio.gather(*(call() for _ in range(count)))


async def test_a_new_password_of_the_administrator_disturbs_no_running_process(server, tmp_path):
    site = await new_administered_site(server, tmp_path)
    async with app.open_butler(site.config, site.environment) as first:
        await site.server.run(f"alter role {site.database}_admin password 'second'")
        renewed = site.of_role(f"{site.database}_admin", "second")
        async with app.open_butler(renewed.config, renewed.environment) as second:
            assert first.location.dsn == second.location.dsn
            await burst(first)
            await burst(second)


async def test_another_administrator_disturbs_no_running_process(server_of, tmp_path):
    site = await new_administered_site(server_of("18"), tmp_path)
    async with app.open_butler(site.config, site.environment) as first:
        superuser = site.of_role("postgres", password_of(site.server.url("postgres")))
        async with app.open_butler(superuser.config, superuser.environment) as second:
            await burst(first)
            await burst(second)


async def test_a_butler_of_the_same_name_in_another_database_of_the_server_disturbs_nobody(server_of, tmp_path):
    """Roles belong to the server: the second database gets a role of its own, also after the password has changed."""
    site = await new_administered_site(server_of("18"), tmp_path)
    async with app.open_butler(site.config, site.environment) as first:
        roles = [first.location.app]
        for password in ("first", "second"):
            other = await new_administered_site(site.server, tmp_path)
            same_name = replace(other, folder=site.folder)
            await site.server.run(f"alter role {site.database}_admin password '{password}'")
            for _ in range(2):
                async with app.open_butler(same_name.config, same_name.environment) as second:
                    await burst(first)
                    await burst(second)
            roles.append(second.location.app)
    assert len(set(roles)) == 3
    renewed = site.of_role(f"{site.database}_admin", "second")
    async with app.open_butler(renewed.config, renewed.environment) as first:
        assert first.location.app == roles[0]
        await burst(first)


async def test_an_administrator_who_can_store_nothing_derives_the_password_as_before(server_of, tmp_path):
    site = await new_site(server_of("18"), tmp_path)
    admin = f"{site.database}_admin"
    await site.server.run(f"create role {admin} login createrole password 'x'")
    await site.server.run(
        "create extension vector", f"grant all on schema public to {admin} with grant option", database=site.database
    )
    restricted = site.of_role(admin, "x")
    for _ in range(2):
        async with app.open_butler(restricted.config, restricted.environment) as butler:
            assert password_of(butler.location.dsn) == provision._derive_password(
                restricted.url, site.config.butler.name
            )
            await store(butler, "here")


async def test_a_password_that_an_earlier_version_derived_goes_on_working(server_of, tmp_path):
    site = await new_administered_site(server_of("18"), tmp_path)
    role = f"butler_{site.config.butler.name}_app"
    derived = provision._derive_password(site.url, site.config.butler.name)
    admin = await asyncpg.connect(site.url)
    await admin.execute(f"create role {role} login password '{derived}'")
    await admin.close()
    async with app.open_butler(site.config, site.environment) as butler:
        assert password_of(butler.location.dsn) == derived
    await site.server.run(f"alter role {site.database}_admin password 'second'")
    renewed = site.of_role(f"{site.database}_admin", "second")
    async with app.open_butler(renewed.config, renewed.environment) as butler:
        assert password_of(butler.location.dsn) == derived


async def test_a_password_that_was_changed_by_hand_is_set_again_by_the_next_start(server_of, tmp_path):
    site = await new_administered_site(server_of("18"), tmp_path)
    async with app.open_butler(site.config, site.environment) as butler:
        await site.server.run(f"alter role {butler.location.app} password 'changed'")
    async with app.open_butler(site.config, site.environment) as butler:
        await store(butler, "here")


async def test_an_administrators_password_may_come_from_a_file(server_of, tmp_path):
    site = await new_administered_site(server_of("18"), tmp_path)
    file = tmp_path / "passwords"
    file.write_text(f"*:*:*:{site.database}_admin:first\n")
    file.chmod(0o600)
    url = with_role(site.url, f"{site.database}_admin", None) + f"?passfile={file}"
    from_file = replace(site, url=url)
    async with app.open_butler(from_file.config, from_file.environment) as butler:
        await store(butler, "here")
    await backup.create(from_file.config, from_file.environment, tmp_path / "b")


async def test_the_stored_password_is_out_of_reach_of_the_application_and_in_no_backup(server_of, tmp_path):
    site = await new_administered_site(server_of("18"), tmp_path)
    async with app.open_butler(site.config, site.environment) as butler:
        await store(butler, "here")
        secret = password_of(butler.location.dsn)
        connection = await asyncpg.connect(butler.location.dsn)
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetch("select * from butlers_private.application_logins")
        await connection.close()
    await backup.create(site.config, site.environment, tmp_path / "b")
    assert secret
    program = [str(embedded_server.program_path("pg_restore")), "--file=-", str(tmp_path / "b")]
    text = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    assert "CREATE TABLE public.rules" in text
    assert "application_logins" not in text
    assert secret not in text


async def test_a_dump_by_hand_is_restored_without_the_passwords_in_it(server_of, tmp_path):
    site = await new_administered_site(server_of("18"), tmp_path)
    async with app.open_butler(site.config, site.environment) as butler:
        await store(butler, "here")
    file = site.server.folder / f"{site.database}.dump"
    run_program(
        site.server.installation,
        "pg_dump",
        "--format=custom",
        f"--file={file}",
        f"--dbname={site.server.socket_url(site.database)}",
    )
    target = await new_administered_site(site.server, tmp_path)
    restored = await backup.restore(target.config, target.environment, file)
    assert restored.rows["rules"] == 1
    async with app.open_butler(target.config, target.environment) as butler:
        assert await store(butler, "there") == ["here", "there"]


async def test_a_butler_without_the_owner_serves_and_its_upkeep_waits_for_a_command(server, tmp_path):
    """Everything that runs on a schedule succeeds; what only the owner can do is a command, and doctor names it."""
    site = await new_administered_site(server, tmp_path)
    async with app.open_butler(site.config, site.environment) as butler:
        alone = replace(site, url=butler.location.dsn)
    await site.server.run("update pg_class set reltuples = 9000 where relname = 'facts'", database=site.database)
    async with app.open_scheduler(alone.folder, env=alone.environment) as (butler, scheduler):
        for job in app.all_jobs(butler):
            result = dict(await scheduler.run(job))
            if job.name == "index_upkeep":
                assert result["outgrown"] == ["facts"]
        [line] = [each for each in await butler.modules[0].checks() if each.name == "vector indexes"]
        assert (line.state, "jobs run DIR index_upkeep" in line.fix) == ("warn", True)
    async with app.open_scheduler(site.folder, env=site.environment) as (butler, scheduler):
        [job] = [each for each in app.all_jobs(butler) if each.name == "index_upkeep"]
        assert dict(await scheduler.run(job))["rebuilt"] == ["facts"]
