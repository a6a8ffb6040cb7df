"""Where the database is, who owns it and who uses it; made at first start and checked at every one."""

import asyncio
import contextlib
import hashlib
import hmac
import logging
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

import asyncpg

from butlers import embedded_server
from butlers.config import Configuration
from butlers.db import PlainConnection, translate_errors
from butlers.environment import Environment
from butlers.errors import ConfigurationFault, Unavailable

log = logging.getLogger("butlers.database")

OLDEST_SERVER = 150000
_EXTENSIONS = ("vector", "uuid-ossp", "pg_trgm", "unaccent")
_CONNECT_SECONDS = 10
_WATCH_SECONDS = 1.0
_BOTH_URLS = (
    "Set BUTLERS_ADMIN_DATABASE_URL to a role that owns the tables and BUTLERS_DATABASE_URL to a restricted one."
)


@dataclass(frozen=True, slots=True)
class DatabaseLocation:
    """A butler's database: how the application reaches it, and how its owner does where we know that."""

    dsn: str
    app: str
    admin_dsn: str | None = None
    owner: str | None = None
    cluster: embedded_server.Cluster | None = None

    @contextlib.asynccontextmanager
    async def owner_connection(self) -> AsyncIterator[PlainConnection]:
        """A connection of the owner's, for what only an administrator does."""
        if self.admin_dsn is None:
            raise ConfigurationFault(
                "this needs the owner of the tables, and only the application's role is known",
                hint=_BOTH_URLS,
            )
        with translate_errors():
            connection = await connect(self.admin_dsn)
            try:
                if self.owner is not None:
                    await connection.execute(f"set role {_quote_identifier(self.owner)}")
                yield connection
            finally:
                await connection.close()

    @contextlib.asynccontextmanager
    async def watch_server(self) -> AsyncIterator[None]:
        """While the block lasts, an embedded server that dies is started again."""
        watch = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    async def _watch(self) -> None:
        while self.cluster is not None:
            await asyncio.sleep(_WATCH_SECONDS)
            try:
                if await asyncio.to_thread(self.cluster.restart_if_dead):
                    log.warning("the embedded server had died and was started again")
            except Unavailable as fault:
                log.warning("the embedded server can't be started again: %s", fault.message)

    async def release(self, *, stop: bool = True) -> None:
        """Let go of the embedded server, if that is where the database is."""
        if self.cluster is not None:
            await asyncio.to_thread(self.cluster.release, stop=stop)


async def locate(config: Configuration, environment: Environment) -> DatabaseLocation:
    """A database with its two roles, made if need be."""
    url = environment.database_url or config.butler.database.url
    if url is None:
        return await _locate_embedded(config.butler.name, environment)
    with translate_errors():
        if environment.admin_database_url:
            return await _locate_by_two_urls(url, environment.admin_database_url)
        return await _locate_by_one_url(url, config.butler.name)


async def _locate_embedded(butler: str, environment: Environment) -> DatabaseLocation:
    """The embedded server: its superuser makes a database `butler_<name>` and the two roles."""
    cluster = await _acquire_server(environment.home)
    database = f"butler_{butler}"
    owner, app = f"{database}_owner", f"{database}_app"
    try:
        with translate_errors():
            connection = await connect(cluster.dsn("postgres"))
            try:
                await _create_database(connection, database)
            finally:
                await connection.close()
            admin = cluster.dsn(database)
            await _create_roles(admin, owner=owner, app=app, password=None)
    except BaseException:
        await asyncio.to_thread(cluster.release)
        raise
    return DatabaseLocation(cluster.dsn(database, app), app, admin, owner, cluster)


async def _acquire_server(home: Path) -> embedded_server.Cluster:
    """The server, or none at all: a start that is cancelled lets go of what its thread still brings."""
    acquiring = asyncio.ensure_future(asyncio.to_thread(embedded_server.acquire, home))
    try:
        return await asyncio.shield(acquiring)
    except asyncio.CancelledError:
        cluster = await acquiring
        await asyncio.to_thread(cluster.release)
        raise


async def _locate_by_one_url(url: str, butler: str) -> DatabaseLocation:
    """One URL: an administrator's, who makes the two roles, or the application's on a database made ready."""
    connection = await connect(url)
    try:
        powers = await connection.fetchrow(
            "select current_user as role, rolsuper or rolcreaterole as makes_roles"
            " from pg_roles where rolname = current_user"
        )
    finally:
        await connection.close()
    if powers is None or not powers["makes_roles"]:
        return DatabaseLocation(url, _user(url) or str(powers and powers["role"]))
    owner, app = f"butler_{butler}_owner", f"butler_{butler}_app"
    password = _derive_password(url, app)
    await _create_roles(url, owner=owner, app=app, password=password)
    return DatabaseLocation(_with_role(url, app, password), app, url, owner)


async def _locate_by_two_urls(url: str, admin_url: str) -> DatabaseLocation:
    """Two URLs: the owner migrates, and makes the application's role where it is missing and may be made."""
    with _refuse_malformed_url():
        app = _user(url)
    if app is None:
        raise ConfigurationFault("BUTLERS_DATABASE_URL names no role", hint="Write postgresql://ROLE:PASSWORD@…")
    admin = await connect(admin_url)
    try:
        await _check_server_version(admin)
        async with admin.transaction():
            await admin.execute("select pg_advisory_xact_lock(hashtextextended($1, 2))", app)
            if not await _role_exists(admin, app):
                await _create_login_role(admin, app, _password(url))
    except asyncpg.InsufficientPrivilegeError:
        raise ConfigurationFault(
            f"the role {app} does not exist and the administrator's role may not make it",
            hint=f"Run: CREATE ROLE {_quote_identifier(app)} LOGIN PASSWORD '…' as a role that may.",
        ) from None
    finally:
        await admin.close()
    return DatabaseLocation(url, app, admin_url)


async def connect(dsn: str) -> PlainConnection:
    """A connection, or a fault that says where it was sought (and no password)."""
    give_up = time.monotonic() + _CONNECT_SECONDS
    while True:
        try:
            with _refuse_malformed_url():
                return await asyncpg.connect(
                    dsn, timeout=_CONNECT_SECONDS, server_settings={"search_path": "public, pg_catalog"}
                )
        except asyncpg.CannotConnectNowError as error:
            # It is starting, or recovering from a crash: a matter of moments.
            if time.monotonic() > give_up:
                raise _connect_failure(dsn, error) from error
            await asyncio.sleep(0.2)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise _connect_failure(dsn, error) from error


@contextlib.contextmanager
def _refuse_malformed_url() -> Iterator[None]:
    """An address that makes no sense is refused without repeating it: what is wrong may be the password."""
    try:
        yield
    except ValueError:
        raise ConfigurationFault(
            "the address of the database can't be read",
            hint="Write postgresql://ROLE:PASSWORD@HOST:PORT/DATABASE; in it %2F is /, %40 is @ and %23 is #.",
        ) from None


def _connect_failure(dsn: str, error: Exception) -> Unavailable:
    return Unavailable(
        f"PostgreSQL can't be reached at {without_password(dsn)}: {type(error).__name__}",
        hint="Is the server running, and are host, database, role and password right? Then start again.",
    )


async def _check_server_version(connection: PlainConnection) -> None:
    version = connection.get_server_version()
    if version.major * 10000 < OLDEST_SERVER:
        raise ConfigurationFault(f"PostgreSQL {version.major} is too old", hint="Use 15 or newer, with pgvector.")


async def _create_database(connection: PlainConnection, name: str) -> None:
    """The database, once, however many butlers of that name start at this moment."""
    await connection.execute("select pg_advisory_lock(hashtextextended($1, 1))", name)
    if not await connection.fetchval("select exists (select from pg_database where datname = $1)", name):
        await connection.execute(f"create database {_quote_identifier(name)}")


async def _create_roles(admin_dsn: str, *, owner: str, app: str, password: str | None) -> None:
    """Owner and application's role with what each needs, and the extensions only an administrator can load."""
    connection = await connect(admin_dsn)
    try:
        await _check_server_version(connection)
        async with connection.transaction():
            await connection.execute("select pg_advisory_xact_lock(hashtextextended($1, 2))", owner)
            if not await _role_exists(connection, owner):
                await connection.execute(f"create role {_quote_identifier(owner)} nologin")
                await connection.execute(f"grant {_quote_identifier(owner)} to current_user")
            if await _role_exists(connection, app):
                if password is not None:
                    await _set_password(connection, app, password)
            else:
                await _create_login_role(connection, app, password)
            await _grant_database_access(connection, owner, app)
            await _load_extensions(connection)
    finally:
        await connection.close()


async def _grant_database_access(connection: PlainConnection, owner: str, app: str) -> None:
    database = _quote_identifier(await connection.fetchval("select current_database()"))
    for statement in (
        f"revoke all on database {database} from public",
        f"grant connect, create, temporary on database {database} to {_quote_identifier(owner)}",
        f"grant connect on database {database} to {_quote_identifier(app)}",
        "revoke create on schema public from public",
        f"grant usage, create on schema public to {_quote_identifier(owner)}",
        f"grant usage on schema public to {_quote_identifier(app)}",
    ):
        await connection.execute(statement)


async def _load_extensions(connection: PlainConnection) -> None:
    """What the server has of the extensions in use; the migrations judge what is missing."""
    available = await connection.fetch(
        "select name from pg_available_extensions where name = any($1) and installed_version is null",
        list(_EXTENSIONS),
    )
    for row in available:
        try:
            async with connection.transaction():
                await connection.execute(
                    f"create extension if not exists {_quote_identifier(row['name'])} with schema public"
                )
        except asyncpg.InsufficientPrivilegeError:
            continue


async def _role_exists(connection: PlainConnection, role: str) -> bool:
    return bool(await connection.fetchval("select exists (select from pg_roles where rolname = $1)", role))


async def _create_login_role(connection: PlainConnection, role: str, password: str | None) -> None:
    await connection.execute(
        f"create role {_quote_identifier(role)} login nosuperuser nocreatedb nocreaterole nobypassrls noinherit"
    )
    if password is not None:
        await _set_password(connection, role, password)


async def _set_password(connection: PlainConnection, role: str, password: str) -> None:
    # ALTER ROLE takes no parameters; the server quotes the text for us.
    statement = await connection.fetchval(
        "select format('alter role %I password %L', $1::text, $2::text)", role, password
    )
    await connection.execute(statement)


def _derive_password(admin_url: str, role: str) -> str | None:
    """The application's password made from the administrator's: the same on every machine, kept on none."""
    secret = _password(admin_url)
    if not secret:
        return None
    return hmac.new(secret.encode(), f"butlers:{role}".encode(), hashlib.sha256).hexdigest()


async def refuse_unsafe(connection: PlainConnection) -> None:
    """Raise unless the connected role is bound by row-level security on every table that has tenants."""
    role = await connection.fetchrow(
        """
        select session_user as name,
               bool_or(rolsuper) as is_superuser,
               bool_or(rolbypassrls) as bypasses
          from pg_roles
         where pg_has_role(session_user, oid, 'member')
        """
    )
    if role is None or role["is_superuser"] or role["bypasses"]:
        power = "is a superuser" if role is None or role["is_superuser"] else "bypasses row-level security"
        raise ConfigurationFault(
            f"the application's role {role and role['name']} {power}: tenants would not be walled off",
            hint=_BOTH_URLS,
        )
    tables = await connection.fetch(
        """
        select c.relname as name,
               pg_has_role(session_user, c.relowner, 'member') as owned,
               c.relrowsecurity and c.relforcerowsecurity as forced
          from pg_class c
          join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id' and not a.attisdropped
         where c.relkind in ('r', 'p')
           and c.relnamespace = 'public'::regnamespace
         order by c.relname
        """
    )
    if owned := [table["name"] for table in tables if table["owned"]]:
        raise ConfigurationFault(
            f"the application's role {role['name']} owns {', '.join(owned)}: it could lift row-level security",
            hint=_BOTH_URLS,
        )
    if open_tables := [table["name"] for table in tables if not table["forced"]]:
        raise ConfigurationFault(
            f"row-level security is not forced on {', '.join(open_tables)}",
            hint="As the owner, run ALTER TABLE … ENABLE ROW LEVEL SECURITY and … FORCE ROW LEVEL SECURITY.",
        )


def without_password(dsn: str) -> str:
    """The URI as it may stand in a log or an error."""
    parts = urlsplit(dsn)
    # A password with a bare / ? or # in it ends up beyond the host.
    if "@" in parts.path + parts.query + parts.fragment:
        return f"{parts.scheme}://…"
    return _with_credentials(dsn, quote(_user(dsn) or "", safe=""), drop={"user", "password", "sslpassword"})


def _with_role(url: str, role: str, password: str | None) -> str:
    """The same address for that role, whether the URL names its own in front of the host or in the query."""
    secret = f":{quote(password, safe='')}" if password else ""
    return _with_credentials(url, quote(role, safe="") + secret, drop={"user", "password"})


def _with_credentials(url: str, who: str, *, drop: set[str]) -> str:
    parts = urlsplit(url)
    where = parts.netloc.rpartition("@")[2]
    query = urlencode([pair for pair in parse_qsl(parts.query) if pair[0] not in drop], safe="/", quote_via=quote)
    return urlunsplit(parts._replace(netloc=f"{who}@{where}" if who else where, query=query))


def _user(url: str) -> str | None:
    parts = urlsplit(url)
    return unquote(parts.username) if parts.username else dict(parse_qsl(parts.query)).get("user")


def _password(url: str) -> str | None:
    parts = urlsplit(url)
    return unquote(parts.password) if parts.password else dict(parse_qsl(parts.query)).get("password")


def _quote_identifier(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'
