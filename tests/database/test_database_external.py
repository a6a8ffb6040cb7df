"""An external PostgreSQL with URL and password: the roles that can be used, and secrets in errors."""

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

from butlers import app, backup, embedded_server, migrate, provision
from butlers.config import Configuration
from butlers.environment import Environment
from butlers.errors import ConfigurationFault, Fault, Forbidden, Unavailable
from database.butler_processes import configured, connected, environment_of, new_home, wait_until, write_folder
from database.catalog import describe
from probe import MODULES
from server_settings import skip_fsync

SECRET = "s3cr/t#@:?%"
_numbers = count()


@dataclass
class External:
    """A server that requires a password from every role but its superuser."""

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
        asyncio.run(skip_fsync(cluster))
        yield server
        # Not a clean stop, which would write dozens of databases to the disk.
        embedded_server._run("pg_ctl", f"--pgdata={cluster.folder / 'data'}", "--mode=immediate", "--wait", "stop")
        cluster.release()


@dataclass
class Site:
    """A database on the external server with the extension only, and names for its roles."""

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

    async def create_role(self, name: str, options: str = "", password: str = SECRET) -> None:
        await self.server.run(f"create role {name} login {options} password '{password}'")

    async def set_owner(self, name: str) -> None:
        await self.server.run(f"alter database {self.database} owner to {name}")


@pytest.fixture
async def site(external: External, tmp_path: Path) -> Site:
    database = f"site_{next(_numbers)}"
    await external.run(f"create database {database}")
    await external.run("create extension vector", database=database)
    return Site(external, database, configured(tmp_path))


def urls(url: str, admin_url: str | None = None) -> Environment:
    return environment_of(Path("nowhere"), url, admin_url)


async def count_after_write(site: Site, environment: Environment) -> int:
    """Start the butler, write a row, and return the number of rows."""
    async with (
        app.open_butler(site.config, environment, MODULES) as butler,
        butler.database.transaction(butler.caller()) as tx,
    ):
        await tx.execute("insert into probe_rows values ('default', 'here')")
        return int(await tx.fetchval("select count(*) from probe_rows"))


async def test_an_administrators_url_is_enough_and_works_again(site):
    await site.create_role("admin_a", "createrole")
    await site.set_owner("admin_a")
    assert await count_after_write(site, urls(site.url("admin_a"))) == 1
    assert await count_after_write(site, urls(site.url("admin_a"))) == 2


async def test_a_superusers_url_is_enough(site):
    await site.create_role("admin_b", "superuser")
    assert await count_after_write(site, urls(site.url("admin_b"))) == 1


async def test_the_roles_made_are_restricted_and_have_a_password_that_is_not_the_administrators(site):
    await site.create_role("admin_c", "createrole")
    await site.set_owner("admin_c")
    async with app.locate_database(site.config, urls(site.url("admin_c"))) as location:
        assert location.app == f"butler_{site.config.butler.name}_app"
        assert quote(SECRET, safe="") not in location.dsn
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(site.url(location.app, SECRET))
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(site.url(location.app, None), password="")


async def test_a_new_password_of_the_administrator_is_used_at_the_next_start(site):
    await site.create_role("admin_d", "createrole")
    await site.set_owner("admin_d")
    assert await count_after_write(site, urls(site.url("admin_d"))) == 1
    await site.server.run("alter role admin_d password 'another'")
    assert await count_after_write(site, urls(site.url("admin_d", "another"))) == 2


async def test_a_butler_whose_password_was_changed_is_unavailable(site):
    await site.create_role("admin_e", "superuser")
    async with app.open_butler(site.config, urls(site.url("admin_e")), MODULES) as butler:
        await site.server.run(f"alter role {butler.location.app} password 'changed'")
        async with butler.database.transaction(butler.caller()):
            with pytest.raises(Unavailable, match="refuses the application's role"):
                await butler.database.ping()


async def test_a_role_in_the_query_part_is_used(site):
    await site.create_role("admin_f", "createrole")
    await site.set_owner("admin_f")
    secret = quote(SECRET, safe="")
    url = f"postgresql:///{site.database}?host={site.server.cluster.sockets}&user=admin_f&password={secret}"
    assert await count_after_write(site, urls(url)) == 1


async def test_an_application_role_that_is_missing_is_made_with_its_urls_password(site):
    await site.create_role("admin_g", "createrole")
    await site.set_owner("admin_g")
    environment = urls(site.url(site.app, "its own"), site.url("admin_g"))
    assert await count_after_write(site, environment) == 1
    assert await count_after_write(site, environment) == 2
    async with connected(site.url(site.app, "its own")) as connection:
        assert await connection.fetchval("select current_user") == site.app


async def test_a_missing_application_role_is_made_once_by_starts_at_the_same_moment(site):
    await site.create_role("admin_h", "createrole")
    await site.set_owner("admin_h")
    environment = urls(site.url(site.app), site.url("admin_h"))
    await asyncio.gather(*(count_after_write(site, environment) for _ in range(4)))
    assert await count_after_write(site, environment) == 5


async def test_a_missing_application_role_that_can_not_be_made_is_a_clear_fault(site):
    await site.create_role(site.owner)
    await site.set_owner(site.owner)
    with pytest.raises(ConfigurationFault, match=f"the role {site.app} does not exist") as refused:
        await count_after_write(site, urls(site.url(site.app), site.url(site.owner)))
    assert "CREATE ROLE" in refused.value.hint


async def test_two_existing_restricted_roles_are_enough(site):
    await site.create_role(site.owner)
    await site.create_role(site.app)
    await site.set_owner(site.owner)
    assert await count_after_write(site, urls(site.url(site.app), site.url(site.owner))) == 1


async def test_the_same_role_for_both_is_refused(site):
    await site.create_role(site.owner)
    await site.set_owner(site.owner)
    with pytest.raises(migrate.MigrationFault, match="would own the tables"):
        await count_after_write(site, urls(site.url(site.owner), site.url(site.owner)))


async def test_an_application_role_with_too_many_rights_is_refused_by_two_urls_as_well(site):
    await site.create_role(site.owner)
    await site.create_role(site.app, "bypassrls")
    await site.set_owner(site.owner)
    with pytest.raises(ConfigurationFault, match=f"{site.app} bypasses row-level security"):
        await count_after_write(site, urls(site.url(site.app), site.url(site.owner)))


async def test_the_applications_url_alone_serves_a_database_that_is_prepared(site):
    await site.create_role(site.owner)
    await site.create_role(site.app)
    await site.set_owner(site.owner)
    assert await count_after_write(site, urls(site.url(site.app), site.url(site.owner))) == 1
    assert await count_after_write(site, urls(site.url(site.app))) == 2


async def test_maintenance_that_needs_the_owner_is_forbidden_to_a_butler_with_the_applications_url_alone(site):
    await site.create_role(site.owner)
    await site.create_role(site.app)
    await site.set_owner(site.owner)
    await count_after_write(site, urls(site.url(site.app), site.url(site.owner)))
    async with app.open_butler(site.config, urls(site.url(site.app)), MODULES) as butler:
        with pytest.raises(Forbidden, match="BUTLERS_ADMIN_DATABASE_URL"):
            butler.database.owner_connection()


async def test_the_applications_url_alone_is_refused_on_an_empty_database(site):
    await site.create_role(site.app)
    with pytest.raises(ConfigurationFault, match="needs the owner of the tables") as refused:
        await count_after_write(site, urls(site.url(site.app)))
    assert "BUTLERS_ADMIN_DATABASE_URL" in refused.value.hint
    assert "butlers migrate" in refused.value.hint


async def test_the_owners_connection_is_refused_if_only_the_application_is_known(site):
    await site.create_role(site.app)
    async with app.locate_database(site.config, urls(site.url(site.app))) as location:
        with pytest.raises(ConfigurationFault, match="needs the owner") as refused:
            async with location.owner_connection():
                pass
    assert "BUTLERS_ADMIN_DATABASE_URL" in refused.value.hint


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
    text = f"{refused.value} {caplog.text}".replace("PASSWORD", "")
    hint_free = text.replace(refused.value.hint, "")
    assert not re.search(leaks, hint_free)
    assert refused.value.hint


async def test_a_start_with_passwords_logs_none_of_them(site, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    await site.create_role("admin_i", "createrole")
    await site.set_owner("admin_i")
    async with app.open_butler(site.config, urls(site.url("admin_i")), MODULES) as butler:
        derived = re.search(r":([0-9a-f]{64})@", butler.location.dsn)
    assert derived
    log = (site.server.cluster.folder / "data" / "server.log").read_text()
    output = caplog.text + log + "".join(capfd.readouterr())
    for secret in (SECRET, ENCODED, derived[1]):
        assert secret not in output


async def test_a_server_that_is_still_starting_is_waited_for(own_home):
    """PostgreSQL answers 57P03 until it has recovered from a crash."""
    cluster = embedded_server.acquire(own_home)
    data = cluster.folder / "data"
    embedded_server._run("pg_ctl", f"--pgdata={data}", "--mode=immediate", "--wait", "stop")
    # A standby without readers refuses clients in the same way, and stays so until it is promoted.
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
    await asyncio.to_thread(wait_until, lambda: promote(data), "the standby to be promoted")
    connection = await waiting
    assert await connection.fetchval("select 1") == 1
    await connection.close()
    cluster.release()


def promote(data: Path) -> bool:
    """Promote the standby; return False if it is not ready for that yet."""
    try:
        embedded_server._run("pg_ctl", f"--pgdata={data}", "promote")
    except Unavailable:
        return False
    return True


async def test_a_backup_is_restored_by_an_owner_who_is_no_superuser(external, tmp_path):
    """From one database to another, each with its own owner and application role."""
    config = app.load_configuration(write_folder(tmp_path, probe=False))
    places = []
    for _ in range(2):
        name = f"site_{next(_numbers)}"
        await external.run(f"create database {name}")
        await external.run("create extension vector", database=name)
        place = Site(external, name, config)
        await place.create_role(place.owner)
        await place.create_role(place.app)
        await place.set_owner(place.owner)
        places.append(place)
    old, new = (urls(place.url(place.app), place.url(place.owner)) for place in places)
    async with app.open_butler(config, old) as butler, butler.database.transaction(butler.caller()) as tx:
        await tx.execute("insert into rules (tenant_id, content) values ('default', 'Be kind')")
    await backup.create(config, old, tmp_path / "b")
    restored = await backup.restore(config, new, tmp_path / "b")
    assert (restored.rows["rules"], restored.tenants) == (1, 1)
    async with app.open_butler(config, new) as butler, butler.database.transaction(butler.caller()) as tx:
        assert await tx.fetchval("select content from rules") == "Be kind"
    superuser = [external.cluster.dsn(place.database) for place in places]
    assert await describe(superuser[0]) == await describe(superuser[1])
