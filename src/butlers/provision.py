"""The butler's database and its two roles: created at the first start, checked at every start."""

import asyncio
import contextlib
import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from butlers import embedded_server
from butlers.application_logins import (
    PRIVATE_SCHEMA,
    ApplicationLogin,
    create_login_table,
    find_login,
    store_login,
)
from butlers.config import Configuration
from butlers.connect_faults import connect_fault
from butlers.connector import Connector, ServerConnection
from butlers.database_url import driver_url, password_of, refuse_malformed_url, user_of, with_role
from butlers.db import DRIVER_ERRORS, PlainConnection, translate_cut, translate_errors
from butlers.environment import Environment
from butlers.errors import ConfigurationFault, Fault, Unavailable
from butlers.migrate import MIN_SERVER_VERSION, quote_identifier
from butlers.pooling import is_pooled

log = logging.getLogger("butlers.database")

_EXTENSIONS = ("vector", "uuid-ossp", "pg_trgm", "unaccent")
_CONNECT_TIMEOUT_SECONDS = 10
_COMMAND_TIMEOUT_SECONDS = 60.0
_WATCH_INTERVAL_SECONDS = 1.0
_SEARCH_PATH = "public, pg_catalog"
_pooled_urls: dict[str, bool] = {}
"""Whether a pooler is behind a URL, as far as this process has found out."""
_LOGIN_OPTIONS = "login nosuperuser nocreatedb nocreaterole nobypassrls noinherit"
# The schema is there before the tables: it lets two butlers that start at once on an empty database agree.
_OWNER_OF_TABLES = f"""
    select coalesce(
        (select tableowner::text from pg_tables where schemaname = 'public' and tablename = 'alembic_version'),
        (select pg_get_userbyid(nspowner)::text from pg_namespace where nspname = '{PRIVATE_SCHEMA}')
    )
"""  # noqa: S608 — a constant
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
                    scope = "local " if connection.is_in_transaction() else ""
                    await connection.execute(f"set {scope}role {quote_identifier(self.owner)}")
                yield connection

    @property
    def has_direct_owner(self) -> bool:
        """Whether the owner's credentials are known, and no pooler keeps it from work outside a transaction."""
        return self.admin_dsn is not None and not _pooled_urls.get(self.admin_dsn)

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
            return await _locate_by_two_urls(driver_url(url), driver_url(environment.admin_database_url))
        return await _locate_by_one_url(driver_url(url), config.butler.name)


async def _locate_embedded(butler: str, environment: Environment) -> DatabaseLocation:
    """Locate the database `butler_<name>` on the embedded server; its superuser creates it and the two roles."""
    cluster = await _acquire_server(environment.home)
    database = f"butler_{butler}"
    app = f"{database}_app"
    try:
        with translate_errors():
            async with open_connection(cluster.dsn("postgres")) as connection:
                await _create_database(connection, database)
            admin = cluster.dsn(database)
            async with open_connection(admin) as connection, connection.transaction():
                owner = await _create_owner(connection, butler)
                await _create_role(connection, app, _LOGIN_OPTIONS)
                await _grant_database_access(connection, owner, app)
                await _create_extensions(connection)
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
            return DatabaseLocation(url, user_of(url) or role["rolname"])
        await _check_server_version(connection)
        async with connection.transaction():
            owner = await _create_owner(connection, butler)
            login = await _make_login(connection, url, owner, butler)
            await _grant_database_access(connection, owner, login.role)
            await _create_extensions(connection)
        dsn = with_role(url, login.role, login.password)
        if login.password and not await _accepts_login(dsn):
            # The role is new, or somebody has changed its password.
            await _set_password(connection, login.role, login.password)
    return DatabaseLocation(dsn, login.role, url, owner)


async def _make_login(connection: PlainConnection, url: str, owner: str, butler: str) -> ApplicationLogin:
    """Return the login of the butler's application, with its role created; store it if it is a new one."""
    derived = ApplicationLogin(f"butler_{butler}_app", _derive_password(url, butler))
    if not await create_login_table(connection, owner):
        await _create_role(connection, derived.role, _LOGIN_OPTIONS)
        return derived
    login = await find_login(connection, owner, butler)
    if login is None:
        login = await _choose_login(connection, url, butler, derived)
        await store_login(connection, owner, butler, login)
    await _create_role(connection, login.role, _LOGIN_OPTIONS)
    return login


async def _choose_login(
    connection: PlainConnection, url: str, butler: str, derived: ApplicationLogin
) -> ApplicationLogin:
    """Return a login that takes no password away from anybody.

    Roles belong to the server. One of the usual name was made by an earlier version, which derived its password, or
    serves another database; then this one gets a role of its own.
    """
    if not await _role_exists(connection, derived.role):
        return ApplicationLogin(derived.role, secrets.token_hex(32))
    if derived.password and await _accepts_login(with_role(url, *derived)):
        return derived
    role = f"butler_{butler}_{await _database_digest(connection)}_app"
    return ApplicationLogin(role, secrets.token_hex(32))


async def _accepts_login(dsn: str) -> bool:
    """Return whether the server takes the role and password of a URL, with or without the right to connect."""
    try:
        connection = await connect(dsn)
    except Fault as fault:
        # A pooler reports an unknown role or a wrong password as a violation of the protocol.
        refusals = (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.ProtocolViolationError)
        if isinstance(fault.__cause__, refusals):
            return False
        if isinstance(fault.__cause__, asyncpg.InsufficientPrivilegeError):
            return True
        raise
    await connection.close()
    return True


async def _locate_by_two_urls(url: str, admin_url: str) -> DatabaseLocation:
    """Locate by two URLs: the owner migrates, and creates the application's role if that is missing and allowed."""
    app = user_of(url)
    if app is None:
        raise ConfigurationFault("BUTLERS_DATABASE_URL names no role", hint="Write postgresql://ROLE:PASSWORD@…")
    async with open_connection(admin_url) as admin:
        await _check_server_version(admin)
        try:
            async with admin.transaction():
                await admin.execute("select pg_advisory_xact_lock(hashtextextended($1, 2))", app)
                if await _create_role(admin, app, _LOGIN_OPTIONS) and (password := password_of(url)):
                    await _set_password(admin, app, password)
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

    Behind a pooler the whole block is one transaction. A command that takes longer than `command_seconds`, or waits
    so long for a lock, raises `TimeoutError`.
    """
    connection = await connect(dsn, command_seconds)
    try:
        with translate_cut(connection):
            if not await _is_pooled(connection, dsn):
                yield connection
                return
            # A pooler may give each transaction to another server process, and keeps no setting.
            async with connection.transaction():
                await connection.execute(f"set local search_path = {_SEARCH_PATH}")
                yield connection
    finally:
        with contextlib.suppress(OSError, *DRIVER_ERRORS):
            await connection.close()


async def connect(dsn: str, command_seconds: float | None = None) -> ServerConnection:
    """Open a connection; raise a fault that names the address, without the password, if that fails."""
    deadline = time.monotonic() + _CONNECT_TIMEOUT_SECONDS
    with refuse_malformed_url():
        connector = Connector(dsn, _CONNECT_TIMEOUT_SECONDS)
        while True:
            try:
                return await connector.connect(command_timeout=command_seconds, **_connect_options(dsn))
            except asyncpg.ProtocolViolationError as error:
                if _pooled_urls.get(dsn) or "startup parameter" not in str(error):
                    raise connect_fault(error, dsn) from error
                # A pooler takes no settings of a connection.
                _pooled_urls[dsn] = True
            except (OSError, *DRIVER_ERRORS) as error:
                # Wait while the server is starting, or recovering from a crash.
                if not isinstance(error, asyncpg.CannotConnectNowError) or time.monotonic() > deadline:
                    raise connect_fault(error, dsn) from error
                await asyncio.sleep(0.2)


def _connect_options(dsn: str) -> dict[str, Any]:
    """Return the options of a connection: behind a pooler no settings, and no prepared statements."""
    is_pooled = _pooled_urls.get(dsn)
    settings = {} if is_pooled else {"search_path": _SEARCH_PATH}
    return {"server_settings": settings, **({} if is_pooled is False else {"statement_cache_size": 0})}


async def _is_pooled(connection: ServerConnection, dsn: str) -> bool:
    """Return whether a pooler is between this process and the server of a URL; ask once."""
    if dsn not in _pooled_urls:
        _pooled_urls[dsn] = await is_pooled(connection)
    return _pooled_urls[dsn]


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


async def _create_owner(connection: PlainConnection, butler: str) -> str:
    """Return a role that owns the tables, or will, and as which the connected role may act.

    Raises `ConfigurationFault` if the tables belong to a role as which it may not act.
    """
    await connection.execute("select pg_advisory_xact_lock(hashtextextended('roles of butlers', 2))")
    owner: str | None = await connection.fetchval(_OWNER_OF_TABLES)
    if owner is None:
        owner = f"butler_{butler}_owner"
        if not await _create_role(connection, owner, "nologin") and not await _join_role(connection, owner):
            # It serves another database of this server, with another administrator.
            owner = f"butler_{butler}_{await _database_digest(connection)}_owner"
    await _create_role(connection, owner, "nologin")
    if not await _join_role(connection, owner):
        administrator = await connection.fetchval("select current_user::text")
        grant = f"GRANT {quote_identifier(owner)} TO {quote_identifier(administrator)};"
        raise ConfigurationFault(
            f"the tables belong to {owner}, and {administrator} may not act as that role",
            hint=f"As a role that may, run: {grant}",
        )
    return owner


async def _join_role(connection: PlainConnection, name: str) -> bool:
    """Let the connected role act as another one; return False if only others can allow that."""
    role = quote_identifier(name)
    for statement in (f"set local role {role}; set local role none", f"grant {role} to current_user"):
        with contextlib.suppress(asyncpg.InsufficientPrivilegeError):
            async with connection.transaction():
                await connection.execute(statement)
            return True
    return False


async def _database_digest(connection: PlainConnection) -> str:
    """Return eight characters for the database, to tell its roles from those of the server's other databases."""
    database = await connection.fetchval("select current_database()")
    return hashlib.sha256(database.encode()).hexdigest()[:8]


async def _create_role(connection: PlainConnection, role: str, options: str) -> bool:
    """Create a role unless it exists; return whether it was created."""
    if await _role_exists(connection, role):
        return False
    try:
        async with connection.transaction():
            await connection.execute(f"create role {quote_identifier(role)} {options}")
    except (asyncpg.DuplicateObjectError, asyncpg.UniqueViolationError):
        # Roles belong to the server: a butler of that name in another of its databases was first.
        return False
    return True


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
    # A GRANT by a role that may not give the right is a warning only.
    if not await connection.fetchval("select has_schema_privilege($1, 'public', 'create')", owner):
        role = await connection.fetchval("select current_user::text")
        raise ConfigurationFault(
            f"the role {role} may not let {owner} create tables in this database",
            hint=f"As its owner, run: ALTER DATABASE {database} OWNER TO {quote_identifier(role)};",
        )


async def _create_extensions(connection: PlainConnection) -> None:
    """Create the extensions that the server offers; the migrations say why a missing one can't be created."""
    available = await connection.fetch(
        "select name from pg_available_extensions where name = any($1) and installed_version is null",
        list(_EXTENSIONS),
    )
    for row in available:
        statement = f"create extension if not exists {quote_identifier(row['name'])} with schema public"
        with contextlib.suppress(asyncpg.PostgresError):
            async with connection.transaction():
                await connection.execute(statement)


async def _role_exists(connection: PlainConnection, role: str) -> bool:
    return bool(await connection.fetchval("select exists (select from pg_roles where rolname = $1)", role))


async def _set_password(connection: PlainConnection, role: str, password: str) -> None:
    """Set a role's password; leave it as it is where only another administrator may change it."""
    # ALTER ROLE takes no parameters, so let the server quote the text.
    quoting = "select format('alter role %I password %L', $1::text, $2::text)"
    statement = await connection.fetchval(quoting, role, password)
    with contextlib.suppress(asyncpg.InsufficientPrivilegeError):
        async with connection.transaction():
            await connection.execute(statement)


def _derive_password(admin_url: str, butler: str) -> str | None:
    """Return the password that earlier versions derived from the administrator's at each start."""
    secret = password_of(admin_url)
    return hmac.digest(secret.encode(), f"butlers:butler_{butler}_app".encode(), "sha256").hex() if secret else None


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
