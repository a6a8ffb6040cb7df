"""A butler's database on the embedded server: roles, rights and concurrent starts."""

import asyncio
from urllib.parse import urlsplit

import asyncpg
import pytest

from butlers import app, provision
from butlers.errors import ConfigurationFault
from database.butler_processes import configured, connected, environment_of
from probe import MODULES


@pytest.fixture(scope="module")
async def location(environment, tmp_path_factory):
    """A new butler's migrated database; a test that changes it restores it."""
    config = configured(tmp_path_factory.mktemp("location"))
    async with app.open_butler(config, environment, MODULES) as butler:
        yield butler.location


async def test_a_butler_gets_a_database_and_two_roles_named_after_it(environment, tmp_path):
    config = configured(tmp_path)
    name = f"butler_{config.butler.name}"
    async with app.locate_database(config, environment) as location:
        assert (location.app, location.owner) == (f"{name}_app", f"{name}_owner")
        async with connected(location.dsn) as connection:
            assert await connection.fetchval("select current_database()") == name
            assert await connection.fetchval("select current_user") == location.app


async def test_neither_role_has_more_rights_than_it_needs(location, admin):
    rows = await admin.fetch(
        "select rolname, rolcanlogin, rolsuper or rolcreaterole or rolcreatedb or rolbypassrls as privileged"
        " from pg_roles where rolname = any($1)",
        [location.app, location.owner],
    )
    assert {row["rolname"]: (row["rolcanlogin"], row["privileged"]) for row in rows} == {
        location.app: (True, False),
        location.owner: (False, False),
    }
    assert not await admin.fetchval("select pg_has_role($1, $2, 'member')", location.app, location.owner)


async def test_the_owner_owns_every_table_and_the_application_none(location):
    async with connected(location.admin_dsn) as connection:
        owners = await connection.fetch(
            "select distinct pg_get_userbyid(relowner) as name from pg_class"
            " where relkind = 'r' and relnamespace = 'public'::regnamespace"
        )
    assert [row["name"] for row in owners] == [location.owner]


async def test_the_extensions_the_server_has_are_loaded(location):
    async with connected(location.admin_dsn) as connection:
        loaded = {row["extname"] for row in await connection.fetch("select extname from pg_extension")}
    assert {"vector", "pg_trgm", "unaccent"} <= loaded


@pytest.mark.parametrize(
    "attempt",
    [
        "create table mine (n int)",
        "create schema mine",
        "create temporary table mine (n int)",
        "alter table facts no force row level security",
        "drop table facts",
        "select * from api_keys",
        "truncate facts",
        "create role mine",
        "copy (select 1) to program 'true'",
    ],
)
async def test_the_application_may_not(location, attempt):
    async with connected(location.dsn) as connection:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(attempt)


async def test_the_application_may_not_become_the_owner(location):
    async with connected(location.dsn) as connection:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(f'set role "{location.owner}"')


async def test_one_butlers_application_can_not_reach_anothers_database(environment, tmp_path):
    one, other = configured(tmp_path), configured(tmp_path)
    async with app.locate_database(one, environment) as first, app.locate_database(other, environment) as second:
        intruder = first.cluster.dsn(f"butler_{other.butler.name}", first.app)
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="CONNECT"):
            await asyncpg.connect(intruder)
        assert urlsplit(first.dsn).path != urlsplit(second.dsn).path


async def test_butlers_of_one_name_start_at_the_same_moment_on_one_database(environment, tmp_path):
    config = configured(tmp_path)
    together = asyncio.Barrier(4)

    async def start():
        async with app.open_butler(config, environment, MODULES) as butler:
            await together.wait()
            async with butler.database.transaction(butler.caller()) as tx:
                await tx.execute("insert into probe_rows values ('default', 'here')")
            await together.wait()
            async with butler.database.transaction(butler.caller()) as tx:
                return await tx.fetchval("select count(*) from probe_rows")

    assert await asyncio.gather(*(start() for _ in range(4))) == [4, 4, 4, 4]


async def test_databases_and_roles_of_many_butlers_are_made_at_the_same_moment(environment, tmp_path):
    configs = [configured(tmp_path) for _ in range(3)] * 2
    locations = await asyncio.gather(*(provision.locate(config, environment) for config in configs))
    for location, config in zip(locations, configs, strict=True):
        async with connected(location.dsn) as connection:
            assert await connection.fetchval("select current_database()") == f"butler_{config.butler.name}"
        await location.release()


async def test_a_second_start_changes_nothing(environment, tmp_path, admin):
    config = configured(tmp_path)
    roles = "select oid, rolname from pg_roles where rolname like $1 order by oid"
    async with app.open_butler(config, environment, MODULES):
        before = await admin.fetch(roles, f"butler_{config.butler.name}%")
    async with app.open_butler(config, environment, MODULES):
        assert await admin.fetch(roles, f"butler_{config.butler.name}%") == before


async def test_a_failed_start_releases_the_server(own_home, tmp_path):
    config = configured(tmp_path)
    location = await provision.locate(config, environment_of(own_home))
    async with connected(location.admin_dsn) as connection:
        await connection.execute(f'alter role "{location.app}" superuser')
    await location.release()
    with pytest.raises(ConfigurationFault, match="is a superuser"):
        async with app.open_butler(config, environment_of(own_home), MODULES):
            pass
    location = await provision.locate(config, environment_of(own_home))
    assert location.cluster.release() is True, "no other process uses it"


class VersionedConnection:
    """A connection to a server of that version, which is not installed here."""

    def __init__(self, major: int) -> None:
        self.major = major

    def get_server_version(self) -> "VersionedConnection":
        return self


async def test_a_server_older_than_15_is_refused_and_15_is_not():
    with pytest.raises(ConfigurationFault, match="PostgreSQL 14 is too old"):
        await provision._check_server_version(VersionedConnection(14))
    await provision._check_server_version(VersionedConnection(15))


async def run_as_admin(location, statements) -> None:
    """Run the statements as the administrator."""
    async with connected(location.admin_dsn) as connection:
        for statement in statements:
            await connection.execute(
                statement.format(app=location.app, owner=location.owner, other=f"{location.app}_other")
            )


async def test_a_safe_role_is_not_refused(location):
    await app.refuse_unsafe_database(location)


_NO_OTHER = ['drop role "{other}"']


@pytest.mark.parametrize(
    ("change", "revert", "reason"),
    [
        (['alter role "{app}" superuser'], ['alter role "{app}" nosuperuser'], "{app} is a superuser"),
        (['alter role "{app}" bypassrls'], ['alter role "{app}" nobypassrls'], "{app} bypasses row-level security"),
        (['create role "{other}" superuser', 'grant "{other}" to "{app}"'], _NO_OTHER, "{app} is a superuser"),
        (
            ['create role "{other}" bypassrls', 'grant "{other}" to "{app}"'],
            _NO_OTHER,
            "{app} bypasses row-level security",
        ),
        (['alter table facts owner to "{app}"'], ['alter table facts owner to "{owner}"'], "{app} owns facts"),
        (['grant "{owner}" to "{app}"'], ['revoke "{owner}" from "{app}"'], "{app} owns "),
        (
            ["alter table facts no force row level security"],
            ["alter table facts force row level security"],
            "row-level security is not forced on facts",
        ),
        (
            ["alter table facts disable row level security"],
            ["alter table facts enable row level security"],
            "row-level security is not forced on facts",
        ),
        (
            ["create table notes (tenant_id text)"],
            ["drop table notes"],
            "row-level security is not forced on notes",
        ),
        (
            ["create table parts (tenant_id text) partition by list (tenant_id)"],
            ["drop table parts"],
            "row-level security is not forced on parts",
        ),
    ],
)
async def test_a_butler_refuses_to_serve_when(location, change, revert, reason):
    await run_as_admin(location, change)
    try:
        with pytest.raises(ConfigurationFault) as refused:
            await app.refuse_unsafe_database(location)
    finally:
        await run_as_admin(location, revert)
    assert reason.format(app=location.app) in refused.value.message
    assert refused.value.hint
    await app.refuse_unsafe_database(location)
