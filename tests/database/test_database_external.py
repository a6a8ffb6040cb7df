"""A PostgreSQL of somebody else's, reached by URL and password: what each kind of role can be used for."""

import asyncio
import logging
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from urllib.parse import quote

import asyncpg
import pytest

from butlers import app, embedded_server, migrate, provision
from butlers.config import Configuration
from butlers.environment import Environment
from butlers.errors import ConfigurationFault, Fault, Unavailable
from database.stage import configured, connected, environment_of, new_home, wait_until
from probe import MODULES

SECRET = "s3cr/t#@:?%"
_numbers = count()


@dataclass
class External:
    """A server that asks everybody but its own administrator for a password."""

    cluster: embedded_server.Cluster

    def url(self, database: str, role: str, password: str | None = SECRET) -> str:
        secret = f":{quote(password, safe='')}" if password else ""
        return f"postgresql://{role}{secret}@/{database}?host={self.cluster.sockets}"

    async def run(self, *statements: str, database: str = "postgres") -> None:
        async with connected(self.cluster.dsn(database)) as connection:
            for statement in statements:
                await connection.execute(statement)


@pytest.fixture(scope="module")
def external() -> Iterator[External]:
    with new_home() as home:
        cluster = embedded_server.acquire(home)
        hba = home / "postgres" / "data" / "pg_hba.conf"
        hba.write_text("local all postgres trust\nlocal all all scram-sha-256\n")
        server = External(cluster)
        asyncio.run(server.run("select pg_reload_conf()"))
        yield server
        cluster.release()


@dataclass
class Site:
    """A database on the external server, empty but for the extension, and names for its roles."""

    server: External
    database: str
    config: Configuration

    @property
    def owner(self) -> str:
        return f"{self.database}_owner"

    @property
    def app(self) -> str:
        return f"{self.database}_app"

    def url(self, role: str, password: str | None = SECRET) -> str:
        return self.server.url(self.database, role, password)

    async def role(self, name: str, powers: str = "", password: str = SECRET) -> None:
        await self.server.run(f"create role {name} login {powers} password '{password}'")

    async def owned_by(self, name: str) -> None:
        await self.server.run(f"alter database {self.database} owner to {name}")


@pytest.fixture
async def site(external: External, tmp_path: Path) -> Site:
    database = f"site_{next(_numbers)}"
    await external.run(f"create database {database}")
    await external.run("create extension vector", database=database)
    return Site(external, database, configured(tmp_path))


def urls(url: str, admin_url: str | None = None) -> Environment:
    return environment_of(Path("nowhere"), url, admin_url)


async def rows_written(site: Site, environment: Environment) -> int:
    """How many rows the butler has after it started and wrote one."""
    async with (
        app.open_butler(site.config, environment, MODULES) as butler,
        butler.database.transaction(butler.caller()) as tx,
    ):
        await tx.execute("insert into probe_rows values ('default', 'here')")
        return int(await tx.fetchval("select count(*) from probe_rows"))


async def test_an_administrators_url_is_enough_and_works_again(site):
    await site.role("chief_a", "createrole")
    await site.owned_by("chief_a")
    assert await rows_written(site, urls(site.url("chief_a"))) == 1
    assert await rows_written(site, urls(site.url("chief_a"))) == 2


async def test_a_superusers_url_is_enough(site):
    await site.role("chief_b", "superuser")
    assert await rows_written(site, urls(site.url("chief_b"))) == 1


async def test_the_roles_made_are_restricted_and_have_a_password_that_is_not_the_administrators(site):
    await site.role("chief_c", "createrole")
    await site.owned_by("chief_c")
    async with app.locate_database(site.config, urls(site.url("chief_c"))) as place:
        assert place.app == f"butler_{site.config.butler.name}_app"
        assert quote(SECRET, safe="") not in place.dsn
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(site.url(place.app, SECRET))
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(site.url(place.app, None), password="")


async def test_a_new_password_of_the_administrator_is_taken_in_at_the_next_start(site):
    await site.role("chief_d", "createrole")
    await site.owned_by("chief_d")
    assert await rows_written(site, urls(site.url("chief_d"))) == 1
    await site.server.run("alter role chief_d password 'another'")
    assert await rows_written(site, urls(site.url("chief_d", "another"))) == 2


async def test_a_butler_whose_password_was_changed_meanwhile_says_so(site):
    await site.role("chief_e", "superuser")
    async with app.open_butler(site.config, urls(site.url("chief_e")), MODULES) as butler:
        await site.server.run(f"alter role {butler.place.app} password 'changed'")
        async with butler.database.transaction(butler.caller()):
            with pytest.raises(Unavailable, match="refuses the application's role"):
                await butler.database.ping()


async def test_who_is_named_in_the_query_part_is_understood(site):
    await site.role("chief_f", "createrole")
    await site.owned_by("chief_f")
    secret = quote(SECRET, safe="")
    url = f"postgresql:///{site.database}?host={site.server.cluster.sockets}&user=chief_f&password={secret}"
    assert await rows_written(site, urls(url)) == 1


async def test_an_application_role_that_is_missing_is_made_with_its_urls_password(site):
    await site.role("chief_g", "createrole")
    await site.owned_by("chief_g")
    environment = urls(site.url(site.app, "its own"), site.url("chief_g"))
    assert await rows_written(site, environment) == 1
    assert await rows_written(site, environment) == 2
    async with connected(site.url(site.app, "its own")) as connection:
        assert await connection.fetchval("select current_user") == site.app


async def test_a_missing_application_role_is_made_once_by_starts_at_the_same_moment(site):
    await site.role("chief_h", "createrole")
    await site.owned_by("chief_h")
    environment = urls(site.url(site.app), site.url("chief_h"))
    await asyncio.gather(*(rows_written(site, environment) for _ in range(4)))
    assert await rows_written(site, environment) == 5


async def test_a_missing_application_role_that_can_not_be_made_is_a_clear_fault(site):
    await site.role(site.owner)
    await site.owned_by(site.owner)
    with pytest.raises(ConfigurationFault, match=f"the role {site.app} does not exist") as refused:
        await rows_written(site, urls(site.url(site.app), site.url(site.owner)))
    assert "CREATE ROLE" in refused.value.advice


async def test_two_restricted_roles_that_are_there_are_all_that_is_needed(site):
    await site.role(site.owner)
    await site.role(site.app)
    await site.owned_by(site.owner)
    assert await rows_written(site, urls(site.url(site.app), site.url(site.owner))) == 1


async def test_the_same_role_for_both_is_refused(site):
    await site.role(site.owner)
    await site.owned_by(site.owner)
    with pytest.raises(migrate.MigrationFault, match="would own the tables"):
        await rows_written(site, urls(site.url(site.owner), site.url(site.owner)))


async def test_an_application_role_that_is_too_mighty_is_refused_by_two_urls_as_well(site):
    await site.role(site.owner)
    await site.role(site.app, "bypassrls")
    await site.owned_by(site.owner)
    with pytest.raises(ConfigurationFault, match=f"{site.app} bypasses row-level security"):
        await rows_written(site, urls(site.url(site.app), site.url(site.owner)))


async def test_the_applications_url_alone_serves_a_database_made_ready(site):
    await site.role(site.owner)
    await site.role(site.app)
    await site.owned_by(site.owner)
    assert await rows_written(site, urls(site.url(site.app), site.url(site.owner))) == 1
    assert await rows_written(site, urls(site.url(site.app))) == 2


async def test_the_applications_url_alone_is_refused_on_an_empty_database(site):
    await site.role(site.app)
    with pytest.raises(ConfigurationFault, match="needs the owner of the tables") as refused:
        await rows_written(site, urls(site.url(site.app)))
    assert "BUTLERS_ADMIN_DATABASE_URL" in refused.value.advice
    assert "butlers migrate" in refused.value.advice


async def test_what_needs_the_owner_says_so_where_only_the_application_is_known(site):
    await site.role(site.app)
    async with app.locate_database(site.config, urls(site.url(site.app))) as place:
        with pytest.raises(ConfigurationFault, match="needs the owner") as refused:
            async with place.owner_connection():
                pass
    assert "BUTLERS_ADMIN_DATABASE_URL" in refused.value.advice


async def test_an_application_url_without_a_role_is_refused(site):
    with pytest.raises(ConfigurationFault, match="names no role"):
        await provision.locate(site.config, urls(f"postgresql:///{site.database}", site.url("postgres", None)))


ENCODED = quote(SECRET, safe="")
WRONG = [
    "postgresql://somebody:{secret}@/db?host={sockets}",
    "postgresql://somebody:{secret}@/db?host=/nowhere/at/all",
    "postgresql://somebody:{secret}@127.0.0.1:1/db",
    "postgresql://somebody:{secret}@[::1]:1/db",
    "postgresql://somebody:{secret}@127.0.0.1:1,localhost:2/db",
    "postgresql://somebody:{secret}@localhost:none/db",
    "postgresql://somebody@127.0.0.1:1/db?password={secret}",
    "postgresql:///db?host={sockets}&user=somebody&password={secret}&sslpassword={secret}",
]
UNQUOTED = ["pass/word-1", "pass?word-1", "pass#word-1", "pass@word-1", "pa[ss-word-1", "12/word-1"]


@pytest.mark.parametrize("two", [False, True])
@pytest.mark.parametrize(
    ("url", "leaks"),
    [(url.format(secret=ENCODED, sockets="{sockets}"), r"s3cr") for url in WRONG]
    + [(f"postgresql://somebody:{secret}@127.0.0.1:1/db", r"pass|pa\[ss|word") for secret in UNQUOTED],
)
async def test_no_fault_and_no_log_line_shows_a_password(site, caplog, url, leaks, two):
    caplog.set_level(logging.DEBUG)
    url = url.replace("{sockets}", str(site.server.cluster.sockets))
    with pytest.raises(Fault) as refused:
        await provision.locate(site.config, urls(url, url if two else None))
    said = f"{refused.value} {caplog.text}".replace("PASSWORD", "")
    hint_free = said.replace(refused.value.advice, "")
    assert not re.search(leaks, hint_free)
    assert refused.value.advice


async def test_a_start_with_passwords_logs_none_of_them(site, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    await site.role("chief_i", "createrole")
    await site.owned_by("chief_i")
    async with app.open_butler(site.config, urls(site.url("chief_i")), MODULES) as butler:
        derived = re.search(r":([0-9a-f]{64})@", butler.place.dsn)
    assert derived
    log = (site.server.cluster.folder / "data" / "server.log").read_text()
    said = caplog.text + log + "".join(capfd.readouterr())
    for secret in (SECRET, ENCODED, derived[1]):
        assert secret not in said


async def test_a_server_that_is_still_starting_is_waited_for(own_home):
    """PostgreSQL answers 57P03 until it has recovered from a crash."""
    cluster = embedded_server.acquire(own_home)
    data = cluster.folder / "data"
    embedded_server._run("pg_ctl", f"--pgdata={data}", "--mode=immediate", "--wait", "stop")
    # A standby that takes no readers is the same to a client, and lasts until it is told otherwise.
    (data / "standby.signal").touch()
    shutil.chown(data / "standby.signal", embedded_server._server_uid())
    options = f"--options=-c hot_standby=off -c listen_addresses= -c unix_socket_directories={data}"
    embedded_server._run("pg_ctl", f"--pgdata={data}", f"--log={data / 'server.log'}", options, "--no-wait", "start")
    wait_until((data / ".s.PGSQL.5432").exists, "the socket")
    with pytest.raises(asyncpg.CannotConnectNowError):
        await asyncpg.connect(cluster.dsn("postgres"))
    waiting = asyncio.create_task(provision.connect(cluster.dsn("postgres")))
    await asyncio.sleep(0.5)
    assert not waiting.done()
    await asyncio.to_thread(wait_until, lambda: promoted(data), "the standby to be promoted")
    connection = await waiting
    assert await connection.fetchval("select 1") == 1
    await connection.close()
    cluster.release()


def promoted(data: Path) -> bool:
    """Whether the standby took the order; it does once it has come so far as to be one."""
    try:
        embedded_server._run("pg_ctl", f"--pgdata={data}", "promote")
    except Unavailable:
        return False
    return True
