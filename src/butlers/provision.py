"""The butler's database and its two roles: created at the first start, checked at every start."""

import asyncio
import contextlib
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
from butlers.db import DRIVER_ERRORS, PlainConnection, translate_cut, translate_errors
from butlers.environment import Environment
from butlers.errors import ConfigurationFault, Fault, Unavailable
from butlers.migrate import MIN_SERVER_VERSION, quote_identifier

log = logging.getLogger("butlers.database")

_EXTENSIONS = ("vector", "uuid-ossp", "pg_trgm", "unaccent")
_CONNECT_TIMEOUT_SECONDS = 10
_COMMAND_TIMEOUT_SECONDS = 60.0
_WATCH_INTERVAL_SECONDS = 1.0
_TWO_URLS_HINT = (
    "Set BUTLERS_ADMIN_DATABASE_URL to a role that owns the tables and BUTLERS_DATABASE_URL to a restricted one."
)


@dataclass(frozen=True, slots=True)
class DatabaseLocation:
    """A butler's database: connections and roles of the application and, if known, of the owner."""

    dsn: str
    app: str
    admin_dsn: str | None = None
    owner: str | None = None
    cluster: embedded_server.Cluster | None = None

    @contextlib.asynccontextmanager
    async def owner_connection(self) -> AsyncIterator[PlainConnection]:
        """Open a connection of the owner; raise `ConfigurationFault` if its credentials are unknown.

        Its commands have no time limit: a restore takes as long as it has rows.
        """
        if self.admin_dsn is None:
            raise ConfigurationFault(
                "this needs the owner of the tables, and only the application's role is known", hint=_TWO_URLS_HINT
            )
        with translate_errors():
            async with open_connection(self.admin_dsn, command_seconds=None) as connection:
                if self.owner is not None:
                    await connection.execute(f"set role {quote_identifier(self.owner)}")
                yield connection

    @contextlib.asynccontextmanager
    async def watch_server(self) -> AsyncIterator[None]:
        """Restart the embedded server whenever it dies, until the block ends."""
        watch = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    async def _watch(self) -> None:
        while self.cluster is not None:
            await asyncio.sleep(_WATCH_INTERVAL_SECONDS)
            try:
                if await asyncio.to_thread(self.cluster.restart_if_dead):
                    log.warning("the embedded server died and was restarted")
            except Unavailable as fault:
                log.warning("the embedded server can't be restarted: %s", fault.message)

    async def release(self, *, stop: bool = True) -> None:
        """Release the embedded server, if the database is there."""
        if self.cluster is not None:
            await asyncio.to_thread(self.cluster.release, stop=stop)


async def locate(config: Configuration, environment: Environment) -> DatabaseLocation:
    """Return the butler's database after creating it and its two roles where they are missing."""
    url = environment.database_url or config.butler.database.url
    if url is None:
        return await _locate_embedded(config.butler.name, environment)
    with translate_errors():
        if environment.admin_database_url:
            return await _locate_by_two_urls(url, environment.admin_database_url)
        return await _locate_by_one_url(url, config.butler.name)


async def _locate_embedded(butler: str, environment: Environment) -> DatabaseLocation:
    """Locate the database `butler_<name>` on the embedded server; its superuser creates it and the two roles."""
    cluster = await _acquire_server(environment.home)
    database = f"butler_{butler}"
    owner, app = f"{database}_owner", f"{database}_app"
    try:
        with translate_errors():
            async with open_connection(cluster.dsn("postgres")) as connection:
                await _create_database(connection, database)
            admin = cluster.dsn(database)
            await _create_roles(admin, owner=owner, app=app, password=None)
    except BaseException:
        await asyncio.to_thread(cluster.release)
        raise
    return DatabaseLocation(cluster.dsn(database, app), app, admin, owner, cluster)


async def _acquire_server(home: Path) -> embedded_server.Cluster:
    """Return the server; if cancelled, wait for the thread that starts it and release the server."""
    acquiring = asyncio.ensure_future(asyncio.to_thread(embedded_server.acquire, home))
    try:
        return await asyncio.shield(acquiring)
    except asyncio.CancelledError:
        # Ctrl-C also ends the program that starts the server: its failure is not worth telling.
        with contextlib.suppress(Fault):
            cluster = await acquiring
            await asyncio.to_thread(cluster.release)
        raise


async def _locate_by_one_url(url: str, butler: str) -> DatabaseLocation:
    """Locate by one URL: of an administrator, who creates the roles, or of the application on a prepared database."""
    async with open_connection(url) as connection:
        [role] = await connection.fetch(
            "select rolname, rolsuper or rolcreaterole as creates_roles from pg_roles where rolname = current_user"
        )
    if not role["creates_roles"]:
        return DatabaseLocation(url, _user(url) or role["rolname"])
    owner, app = f"butler_{butler}_owner", f"butler_{butler}_app"
    password = _derive_password(url, app)
    await _create_roles(url, owner=owner, app=app, password=password)
    return DatabaseLocation(_with_role(url, app, password), app, url, owner)


async def _locate_by_two_urls(url: str, admin_url: str) -> DatabaseLocation:
    """Locate by two URLs: the owner migrates, and creates the application's role if that is missing and allowed."""
    with _refuse_malformed_url():
        app = _user(url)
    if app is None:
        raise ConfigurationFault("BUTLERS_DATABASE_URL names no role", hint="Write postgresql://ROLE:PASSWORD@…")
    async with open_connection(admin_url) as admin:
        await _check_server_version(admin)
        try:
            async with admin.transaction():
                await admin.execute("select pg_advisory_xact_lock(hashtextextended($1, 2))", app)
                if not await _role_exists(admin, app):
                    await _create_login_role(admin, app, password_of(url))
        except asyncpg.InsufficientPrivilegeError:
            raise ConfigurationFault(
                f"the role {app} does not exist and the administrator's role may not create it",
                hint=f"As a role that may, run: CREATE ROLE {quote_identifier(app)} LOGIN PASSWORD '…'.",
            ) from None
    return DatabaseLocation(url, app, admin_url)


@contextlib.asynccontextmanager
async def open_connection(
    dsn: str, *, command_seconds: float | None = _COMMAND_TIMEOUT_SECONDS
) -> AsyncIterator[PlainConnection]:
    """Yield a connection and close it at the end; raise the faults of `connect`.

    A command that takes longer than `command_seconds`, or waits so long for a lock, raises `TimeoutError`.
    """
    connection = await connect(dsn, command_seconds)
    try:
        with translate_cut(connection):
            yield connection
    finally:
        with contextlib.suppress(OSError, *DRIVER_ERRORS):
            await connection.close()


async def connect(dsn: str, command_seconds: float | None = None) -> PlainConnection:
    """Open a connection; raise a fault that names the address, without the password, if that fails."""
    deadline = time.monotonic() + _CONNECT_TIMEOUT_SECONDS
    while True:
        try:
            with _refuse_malformed_url():
                return await asyncpg.connect(
                    dsn,
                    timeout=_CONNECT_TIMEOUT_SECONDS,
                    command_timeout=command_seconds,
                    server_settings={"search_path": "public, pg_catalog"},
                )
        except (OSError, *DRIVER_ERRORS) as error:
            # Wait while the server is starting, or recovering from a crash.
            if not isinstance(error, asyncpg.CannotConnectNowError) or time.monotonic() > deadline:
                raise Unavailable(
                    f"PostgreSQL can't be reached at {without_password(dsn)}: {type(error).__name__}",
                    hint="Is the server running, and are host, database, role and password right? Then start again.",
                ) from error
            await asyncio.sleep(0.2)


@contextlib.contextmanager
def _refuse_malformed_url() -> Iterator[None]:
    """Turn the error of a malformed URL into a fault that does not repeat it: it contains a password."""
    try:
        yield
    except ValueError:
        raise ConfigurationFault(
            "the URL of the database is malformed",
            hint="Write postgresql://ROLE:PASSWORD@HOST:PORT/DATABASE; in it %2F is /, %40 is @ and %23 is #.",
        ) from None


async def _check_server_version(connection: PlainConnection) -> None:
    version = connection.get_server_version()
    if version.major < MIN_SERVER_VERSION:
        raise ConfigurationFault(
            f"PostgreSQL {version.major} is too old", hint=f"Use {MIN_SERVER_VERSION} or newer, with pgvector."
        )


async def _create_database(connection: PlainConnection, name: str) -> None:
    """Create the database if it is missing; a lock lets several butlers of that name start at once."""
    await connection.execute("select pg_advisory_lock(hashtextextended($1, 1))", name)
    if not await connection.fetchval("select exists (select from pg_database where datname = $1)", name):
        await connection.execute(f"create database {quote_identifier(name)}")


async def _create_roles(admin_dsn: str, *, owner: str, app: str, password: str | None) -> None:
    """Create the two roles with their rights, and the extensions that only an administrator can create."""
    async with open_connection(admin_dsn) as connection:
        await _check_server_version(connection)
        async with connection.transaction():
            await connection.execute("select pg_advisory_xact_lock(hashtextextended($1, 2))", owner)
            if not await _role_exists(connection, owner):
                await connection.execute(f"create role {quote_identifier(owner)} nologin")
                await connection.execute(f"grant {quote_identifier(owner)} to current_user")
            if not await _role_exists(connection, app):
                await _create_login_role(connection, app, password)
            elif password is not None:
                await _set_password(connection, app, password)
            await _grant_database_access(connection, owner, app)
            await _create_extensions(connection)


async def _grant_database_access(connection: PlainConnection, owner: str, app: str) -> None:
    database = quote_identifier(await connection.fetchval("select current_database()"))
    await connection.execute(f"""
        revoke all on database {database} from public;
        grant connect, create, temporary on database {database} to {quote_identifier(owner)};
        grant connect on database {database} to {quote_identifier(app)};
        revoke create on schema public from public;
        grant usage, create on schema public to {quote_identifier(owner)};
        grant usage on schema public to {quote_identifier(app)};
    """)


async def _create_extensions(connection: PlainConnection) -> None:
    """Create the extensions that the server offers; the migrations check for missing ones."""
    available = await connection.fetch(
        "select name from pg_available_extensions where name = any($1) and installed_version is null",
        list(_EXTENSIONS),
    )
    for row in available:
        statement = f"create extension if not exists {quote_identifier(row['name'])} with schema public"
        with contextlib.suppress(asyncpg.InsufficientPrivilegeError):
            async with connection.transaction():
                await connection.execute(statement)


async def _role_exists(connection: PlainConnection, role: str) -> bool:
    return bool(await connection.fetchval("select exists (select from pg_roles where rolname = $1)", role))


async def _create_login_role(connection: PlainConnection, role: str, password: str | None) -> None:
    await connection.execute(
        f"create role {quote_identifier(role)} login nosuperuser nocreatedb nocreaterole nobypassrls noinherit"
    )
    if password is not None:
        await _set_password(connection, role, password)


async def _set_password(connection: PlainConnection, role: str, password: str) -> None:
    # ALTER ROLE takes no parameters, so let the server quote the text.
    quoting = "select format('alter role %I password %L', $1::text, $2::text)"
    await connection.execute(await connection.fetchval(quoting, role, password))


def _derive_password(admin_url: str, role: str) -> str | None:
    """Derive the application's password from the administrator's: the same on every machine, stored on none."""
    secret = password_of(admin_url)
    return hmac.digest(secret.encode(), f"butlers:{role}".encode(), "sha256").hex() if secret else None


async def refuse_unsafe(connection: PlainConnection) -> None:
    """Raise `ConfigurationFault` unless row-level security binds the connected role on every table with tenants."""
    [role] = await connection.fetch(
        """
        select session_user as name,
               bool_or(rolsuper) as is_superuser,
               bool_or(rolbypassrls) as bypasses_rls
          from pg_roles
         where pg_has_role(session_user, oid, 'member')
        """
    )
    if role["is_superuser"] or role["bypasses_rls"]:
        reason = "is a superuser" if role["is_superuser"] else "bypasses row-level security"
        raise ConfigurationFault(
            f"the application's role {role['name']} {reason}: tenants would not be isolated", hint=_TWO_URLS_HINT
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
            f"the application's role {role['name']} owns {', '.join(owned)}: it could disable row-level security",
            hint=_TWO_URLS_HINT,
        )
    if open_tables := [table["name"] for table in tables if not table["forced"]]:
        raise ConfigurationFault(
            f"row-level security is not forced on {', '.join(open_tables)}",
            hint="As the owner, run ALTER TABLE … ENABLE ROW LEVEL SECURITY and … FORCE ROW LEVEL SECURITY.",
        )


def without_password(dsn: str) -> str:
    """Return the URI without its password, for logs and errors."""
    parts = urlsplit(dsn)
    # A password with an unescaped / ? or # is parsed as path, query or fragment.
    if "@" in parts.path + parts.query + parts.fragment:
        return f"{parts.scheme}://…"
    return _with_credentials(dsn, quote(_user(dsn) or "", safe=""), drop={"user", "password", "sslpassword"})


def _with_role(url: str, role: str, password: str | None) -> str:
    """Return the URL with another role, whether the URL has its role before the host or in the query."""
    secret = f":{quote(password, safe='')}" if password else ""
    return _with_credentials(url, quote(role, safe="") + secret, drop={"user", "password"})


def _with_credentials(url: str, credentials: str, *, drop: set[str]) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    query = urlencode([pair for pair in parse_qsl(parts.query) if pair[0] not in drop], safe="/", quote_via=quote)
    return urlunsplit(parts._replace(netloc=f"{credentials}@{host}" if credentials else host, query=query))


def _user(url: str) -> str | None:
    parts = urlsplit(url)
    return unquote(parts.username) if parts.username else dict(parse_qsl(parts.query)).get("user")


def password_of(url: str) -> str | None:
    """Return the password of a URL, whether the URL has it before the host or in the query."""
    parts = urlsplit(url)
    return unquote(parts.password) if parts.password else dict(parse_qsl(parts.query)).get("password")
