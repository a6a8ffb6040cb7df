"""Schema migrations with Alembic under an advisory lock, and the rights of the application's role.

Alembic and SQLAlchemy take half a second to import and are rarely needed, so only the functions that migrate
import them. `pending_branches` finds out without them whether there is anything to do.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import uuid4

import asyncpg

from butlers.connector import Connector
from butlers.db import DRIVER_ERRORS
from butlers.errors import AlreadyExists, Conflict, Fault, Unavailable

if TYPE_CHECKING:
    from alembic.script import ScriptDirectory
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection

log = logging.getLogger("butlers.migrate")

MIN_SERVER_VERSION = 15
_LOCK = 0x6275746C657273  # "butlers"
_REVISION_FILE = re.compile(r"([a-z]+_\d{3,})_\w+\.py")
_OBJECT = re.compile(r"(table|function|sequence) ([a-z_][a-z0-9_]*)(\([a-z0-9_, \[\]]*\))?")
# A database with a core revision but without this function has revisions that were replaced since.
_VERSIONS = """
    select version_num, to_regprocedure('public.enable_tenant_isolation(regclass, boolean)') is null as is_outdated
      from public.alembic_version
"""
_MISSING_RIGHTS = """
    select distinct w.kind || ' ' || w.name as name
      from unnest($1::text[], $2::text[], $3::text[]) as w (kind, name, privilege)
     where not case w.kind
               when 'table' then has_table_privilege(to_regclass('public.' || w.name), w.privilege)
               when 'function' then has_function_privilege(to_regprocedure('public.' || w.name), w.privilege)
               when 'sequence' then has_sequence_privilege(to_regclass('public.' || w.name), w.privilege)
               end
     order by 1
"""
# A role that may write here is the application's, of this butler or of another one on the same database.
_APPLICATION_ROLES = """
    select pg_get_userbyid(acl.grantee)::text as name
      from pg_class c, aclexplode(c.relacl) as acl
     where c.oid = to_regclass('public.idempotency_keys')
       and acl.privilege_type = 'INSERT'
       and acl.grantee not in (0, c.relowner)
"""
_PRIVILEGES = frozenset({"select", "insert", "update", "delete", "execute", "usage"})

_CONNECT_TIMEOUT_SECONDS = 60.0
_REBUILD_LOCK_SECONDS = 5.0
_LOCK_POLL_SECONDS = 0.2
_PROGRESS_SECONDS = 10.0
# Everybody else who needs a table queues behind a migration that waits for it: shorter than a call's own limit.
_TABLE_LOCK_SECONDS = 1.0
_TABLE_LOCK_TOTAL_SECONDS = 600.0
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 1.0, 10.0
_BLOCKING_USER = """
    select a.pid, a.usename::text as role, nullif(a.application_name, '') as application,
           extract(epoch from now() - a.xact_start)::bigint as seconds,
           array_agg(distinct l.relation::regclass::text) as tables
      from pg_locks l
      join pg_stat_activity a on a.pid = l.pid
      join pg_class c on c.oid = l.relation and c.relkind in ('r', 'p') and c.relnamespace = 'public'::regnamespace
     where l.granted
       and a.datname = current_database()
       and a.pid <> pg_backend_pid()
     group by a.pid, a.usename, a.application_name, a.xact_start
     order by a.xact_start nulls last
     limit 1
"""
_NOT_EMPTY_HINT = "Restore under another name (butler.name), or into another database or BUTLERS_HOME."
_RIGHTS_HINT = "Run `butlers migrate` as the owner: it grants the application's role what it needs."
_LOCKED_HINT = "Wait until it has finished; `butlers doctor` then says what is there."

_alembic_lock = asyncio.Lock()


class MigrationFault(Fault):
    """The migration failed; the database is unchanged."""

    hint = "Nothing was changed. Fix the cause and run `butlers migrate` again."


class TablesInUse(Conflict):
    """Another transaction holds a lock on a table that has to change; the database is unchanged."""

    hint = "Nothing was changed. End the other transaction, or try again when it has ended."


class UnknownRevision(MigrationFault):
    """The database was migrated by a newer version of butlers."""

    code = "conflict"
    hint = "Upgrade butlers to the version that migrated this database, or newer."


class OutdatedSchema(MigrationFault):
    """The database has revisions of an earlier development version, which the present ones replace."""

    code = "conflict"
    hint = (
        "Run `butlers memory export DIR FILE` with the version of butlers that made it, then "
        "`butlers memory import DIR FILE` with this one on an empty database."
    )


@dataclass(frozen=True, slots=True)
class Branch:
    """A line of migrations, and the rights of the application's role on the objects they create.

    Revisions are files named `<revision>_<slug>.py`; their ids share the prefix of `head`. `rights` maps
    an object ("table facts", "function api_key(uuid)") to privileges ("select, insert"; "" for none), `extensions`
    an extension that the branch needs to its oldest version that works.
    """

    label: str
    location: Path
    head: str
    rights: Mapping[str, str] = field(default_factory=dict)
    extensions: Mapping[str, str] = field(default_factory=dict)

    def owns(self, revision: str) -> bool:
        """Whether a revision, known or not, belongs to this branch."""
        return revision.rpartition("_")[0] == self.head.rpartition("_")[0]

    def revisions(self) -> frozenset[str]:
        """Return the revisions that this version of butlers has, from the file names."""
        matches = (_REVISION_FILE.fullmatch(file.name) for file in self.location.iterdir())
        return frozenset(match[1] for match in matches if match)


class Migration(NamedTuple):
    """The revision of each branch before and after a migration."""

    before: Mapping[str, str | None]
    after: Mapping[str, str]


async def pending_branches(connection: asyncpg.Connection[Any], branches: Sequence[Branch]) -> dict[str, str | None]:
    """Return the branches that are not at head, with their current revisions."""
    if await connection.fetchval("select to_regclass('public.alembic_version')") is None:
        return {branch.label: None for branch in branches}
    try:
        rows = await connection.fetch(_VERSIONS)
    except asyncpg.InsufficientPrivilegeError as error:
        raise MigrationFault("this role may not read alembic_version", hint=_RIGHTS_HINT) from error
    positions = _positions(_known_versions(rows), branches)
    return {branch.label: positions[branch.label] for branch in branches if positions[branch.label] != branch.head}


async def refuse_missing_rights(connection: asyncpg.Connection[Any], branches: Iterable[Branch]) -> None:
    """Raise `MigrationFault` unless the connected role has every right that the branches list."""
    wanted = [
        (*name.split(" ", 1), privilege)
        for branch in branches
        for name, privileges in branch.rights.items()
        for privilege in filter(None, privileges.split(", "))
    ]
    rows = await connection.fetch(_MISSING_RIGHTS, *(list(column) for column in zip(*wanted, strict=True)))
    if rows:
        raise MigrationFault(f"this role may not use {rows[0]['name']}", hint=_RIGHTS_HINT)


async def upgrade(
    dsn: str,
    branches: Sequence[Branch],
    *,
    app_role: str,
    owner: str | None = None,
    lock_seconds: float = _TABLE_LOCK_TOTAL_SECONDS,
) -> Migration:
    """Migrate every branch to head and grant the application its rights, in one transaction.

    Several processes may call it at once: one migrates, the others wait and find nothing to do. A table that others
    use is waited for in short attempts, so that calls go on; raises `TablesInUse` after `lock_seconds` of them.
    """
    deadline, pause = time.monotonic() + lock_seconds, _FIRST_PAUSE_SECONDS
    while True:
        try:
            return await _upgrade_once(dsn, branches, app_role=app_role, owner=owner)
        except TablesInUse as fault:
            user = await _find_blocking_user(dsn)
            if time.monotonic() + pause > deadline:
                raise TablesInUse(f"{fault.message}: {user}") from fault
            log.warning("the migration waits, and tries again in %g s: %s", pause, user)
        await asyncio.sleep(pause)
        pause = min(2 * pause, _MAX_PAUSE_SECONDS)


async def _upgrade_once(dsn: str, branches: Sequence[Branch], *, app_role: str, owner: str | None) -> Migration:
    async with _transaction(dsn, owner) as (connection, progress):
        before = _positions(await connection.run_sync(_read_versions), branches)
        await connection.run_sync(_run, branches, _HEADS, progress)
        progress.step = "granting the application's rights"
        driver: Any = (await connection.get_raw_connection()).driver_connection
        await grant_privileges(driver, branches, app_role=app_role)
    return Migration(before, {branch.label: branch.head for branch in branches})


async def _find_blocking_user(dsn: str) -> str:
    """Return who has used tables of the database for longest, in words."""
    row = None
    # Without the answer, the next attempt says what is wrong with the connection.
    with suppress(OSError, *DRIVER_ERRORS):
        connection = await Connector(dsn).connect()
        try:
            row = await connection.fetchrow(_BLOCKING_USER)
        finally:
            await connection.close()
    if row is None:
        return "somebody used a table that it changes"
    tables = ", ".join(row["tables"][:3]) + (", …" if len(row["tables"]) > 3 else "")
    duration = "" if row["seconds"] is None else f" for {row['seconds']} s"
    return f"{row['application'] or 'a connection'} of {row['role']} (pid {row['pid']}) has used {tables}{duration}"


async def rebuild(
    dsn: str,
    branches: Sequence[Branch],
    revisions: Iterable[str],
    load: Callable[[asyncpg.Connection[Any]], Awaitable[None]],
    *,
    app_role: str,
    owner: str | None = None,
) -> Migration:
    """Make the schema of `revisions` in a database without rows, `load` its rows and migrate, in one transaction.

    Raises `AlreadyExists` if the database has rows, and `Conflict` while another process migrates or rebuilds it.
    """
    async with _transaction(dsn, owner, lock_seconds=_REBUILD_LOCK_SECONDS) as (connection, progress):
        driver: Any = (await connection.get_raw_connection()).driver_connection
        await _refuse_rows(driver)
        await connection.run_sync(_run, branches, _Target("base", is_downgrade=True), progress)
        await _refuse_tables(driver)
        for revision in revisions:
            await connection.run_sync(_run, branches, _Target(revision), progress)
        before = _positions(await connection.run_sync(_read_versions), branches)
        progress.step = "loading the rows"
        await load(driver)
        await connection.run_sync(_run, branches, _HEADS, progress)
        await grant_privileges(driver, branches, app_role=app_role)
    return Migration(before, {branch.label: branch.head for branch in branches})


async def _refuse_rows(connection: asyncpg.Connection[Any]) -> None:
    """Lock the owner's tables against writes, and raise `AlreadyExists` if one has rows."""
    filled = []
    for table in await _tables(connection, "tableowner = current_user"):
        await connection.execute(f"lock table public.{quote_identifier(table)} in share row exclusive mode")
        if await connection.fetchval(f"select exists (select from public.{quote_identifier(table)})"):  # noqa: S608
            filled.append(table)
    if filled:
        raise AlreadyExists(
            f"the butler's database is not empty: it has rows in {', '.join(filled)}", hint=_NOT_EMPTY_HINT
        )


async def _refuse_tables(connection: asyncpg.Connection[Any]) -> None:
    if tables := await _tables(connection, "true"):
        raise AlreadyExists(f"the database has tables of another program: {', '.join(tables)}", hint=_NOT_EMPTY_HINT)


async def _tables(connection: asyncpg.Connection[Any], condition: str) -> list[str]:
    statement = f"""
        select tablename::text as name
          from pg_tables
         where schemaname = 'public' and tablename <> 'alembic_version' and {condition}
         order by 1
    """  # noqa: S608 — the conditions are constants
    return [row["name"] for row in await connection.fetch(statement)]


async def downgrade(
    dsn: str, branch: Branch, target: str, *, branches: Sequence[Branch] = (), owner: str | None = None
) -> None:
    """Downgrade one branch to one of its revisions, or to "base"; `branches` are those it depends on."""
    known = tuple({each.label: each for each in (*branches, branch)}.values())
    async with _transaction(dsn, owner) as (connection, progress):
        _positions(await connection.run_sync(_read_versions), known)
        await connection.run_sync(_run, known, _Target(f"{branch.label}@{target}", is_downgrade=True), progress)


async def grant_privileges(connection: asyncpg.Connection[Any], branches: Iterable[Branch], *, app_role: str) -> None:
    """Grant the application's role exactly the rights that the branches list, and PUBLIC none.

    The roles of other butlers on this database get the same: what a migration makes anew has no rights yet.
    """
    async with connection.transaction():
        await connection.execute("select pg_advisory_xact_lock($1)", _LOCK)
        # Revoking from the owner would remove the owner's rights, and an owner could disable the policies.
        if await connection.fetchval("select current_user = $1", app_role):
            raise MigrationFault(
                f"{app_role} would own the tables and be the application's role",
                hint="Use two roles: an owner that migrates and a restricted one for the application.",
            )
        others = {row["name"] for row in await connection.fetch(_APPLICATION_ROLES)} - {app_role}
        for statement in _grant_statements(branches, [app_role, *sorted(others)]):
            await connection.execute(statement)


def run_sql_file(revision_file: str, name: str) -> None:
    """Execute every statement of `sql/<name>.sql` beside a revision."""
    from alembic import op

    text = (Path(revision_file).parent / "sql" / f"{name}.sql").read_text(encoding="utf-8")
    # Through the driver: SQLAlchemy prepares what it sends, and a prepared statement is a single one.
    connection: Any = op.get_bind().connection.dbapi_connection
    connection.run_async(lambda driver: driver.execute(text))


def create_extension(connection: Connection, name: str) -> str | None:
    """Create an extension unless it exists; return why that fails, or None. The transaction stays usable."""
    if connection.exec_driver_sql("select 1 from pg_extension where extname = $1", (name,)).first():
        return None
    from sqlalchemy.exc import DBAPIError

    try:
        with connection.begin_nested():
            connection.exec_driver_sql(f"create extension if not exists {quote_identifier(name)} with schema public")
    except DBAPIError as error:
        server_error = _find(error, asyncpg.PostgresError)
        return str(server_error.args[0] if server_error else error)
    return None


def refuse_old_extension(name: str, version: str, minimum: str) -> None:
    """Raise `MigrationFault` if the version of an extension is older than the minimum."""
    if _version_numbers(version) < _version_numbers(minimum):
        raise MigrationFault(
            f"the extension {name} is {version} in this database, and {minimum} or newer is needed",
            hint=f"Install a newer one on the server and run: ALTER EXTENSION {quote_identifier(name)} UPDATE;",
        )


def _version_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


@contextmanager
def as_connecting_role(connection: Connection) -> Iterator[None]:
    """Switch to the connecting role for statements that the owner may not run, such as creating extensions."""
    role = connection.exec_driver_sql("select quote_ident(current_user)").scalar_one()
    connection.exec_driver_sql("set local role none")
    yield
    connection.exec_driver_sql(f"set local role {role}")


@dataclass(slots=True)
class _Progress:
    """The current step, for the message of a failure, and the fault that ended it."""

    step: str = "preparing the migration"
    fault: Fault | None = None


class _Target(NamedTuple):
    """The revision that a migration goes to."""

    revision: str
    is_downgrade: bool = False

    def steps(self, script: ScriptDirectory, heads: Any) -> Iterable[Any]:
        # Alembic's commands use these methods, and there are no public ones.
        find = script._downgrade_revs if self.is_downgrade else script._upgrade_revs  # noqa: SLF001
        return find(self.revision, heads)


_HEADS = _Target("heads")


def _positions(versions: Iterable[str], branches: Sequence[Branch]) -> dict[str, str | None]:
    """Where each branch is. Revisions of branches that are not asked about are left alone."""
    positions: dict[str, str | None] = {branch.label: None for branch in branches}
    for version, branch in product(versions, branches):
        if branch.owns(version):
            if version not in branch.revisions():
                raise UnknownRevision(f"the database is at {version}, which this version of butlers does not know")
            positions[branch.label] = version
    return positions


@asynccontextmanager
async def _transaction(
    dsn: str, owner: str | None, *, lock_seconds: float | None = None
) -> AsyncIterator[tuple[AsyncConnection, _Progress]]:
    """Open a transaction as the owner, with the migration lock and the search path `public`.

    Raises `Conflict` if another process holds that lock for longer than `lock_seconds`, and `TablesInUse` if a
    statement waits too long for a table.
    """
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.pool import NullPool

    # asyncpg parses the URI: SQLAlchemy does not support Unix sockets in the query part.
    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=functools.partial(Connector(dsn, _CONNECT_TIMEOUT_SECONDS).connect, statement_cache_size=0),
        poolclass=NullPool,
        # Behind a pooler, a statement of that name may be there already.
        connect_args={"prepared_statement_cache_size": 0, "prepared_statement_name_func": _statement_name},
    )
    progress = _Progress()
    # Alembic's `op` is global: two databases migrated at once would mix up their statements.
    with _translate_errors(progress):
        async with _alembic_lock, engine.begin() as connection:
            try:
                await connection.run_sync(_prepare_session)
                await _take_migration_lock(connection, lock_seconds)
                await connection.run_sync(_become_owner, owner)
                yield connection, progress
            except Fault as fault:
                progress.fault = fault
                raise


def _statement_name() -> str:
    return f"butlers_{uuid4().hex}"


def _prepare_session(connection: Connection) -> None:
    """Refuse servers that are too old, and lift the limits that a migration may exceed."""
    server = int(connection.exec_driver_sql("show server_version_num").scalar_one()) // 10_000
    if server < MIN_SERVER_VERSION:
        raise MigrationFault(
            f"the server is PostgreSQL {server}", hint=f"Butlers needs PostgreSQL {MIN_SERVER_VERSION} or newer."
        )
    # Via pg_settings, because servers before 17 do not have transaction_timeout.
    connection.exec_driver_sql(
        "select set_config(name, '0', true) from pg_settings where name in ("
        "'statement_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout')"
    )
    # A server notices a client that was killed only when a statement ends; this one may take minutes.
    connection.exec_driver_sql(
        "select set_config(name, '1s', true) from pg_settings where name = 'client_connection_check_interval'"
    )
    connection.exec_driver_sql("set local client_min_messages = warning")
    connection.exec_driver_sql("set local search_path = public, pg_temp")
    connection.exec_driver_sql(f"set local lock_timeout = '{_TABLE_LOCK_SECONDS * 1000:.0f}ms'")


async def _take_migration_lock(connection: AsyncConnection, seconds: float | None) -> None:
    """Wait for a process that migrates or restores; raise `Conflict` if it takes longer than `seconds`.

    Without `seconds` there is no limit, because a migration of a large table has none.
    """
    started = reported = time.monotonic()
    while not (await connection.exec_driver_sql(f"select pg_try_advisory_xact_lock({_LOCK})")).scalar_one():
        now = time.monotonic()
        if seconds is not None and now - started > seconds:
            raise Conflict("another process is migrating or restoring this database", hint=_LOCKED_HINT)
        if now - reported > _PROGRESS_SECONDS:
            log.warning("another process has migrated or restored this database for %.0f s: waiting", now - started)
            reported = now
        await asyncio.sleep(_LOCK_POLL_SECONDS)


def _become_owner(connection: Connection, owner: str | None) -> None:
    if owner is not None:
        connection.exec_driver_sql(f"set local role {quote_identifier(owner)}")


def _read_versions(connection: Connection) -> list[str]:
    """Return the revisions in alembic_version; none for an empty database."""
    if connection.exec_driver_sql("select to_regclass('public.alembic_version')").scalar_one() is None:
        return []
    return _known_versions(connection.exec_driver_sql(_VERSIONS).mappings())


def _known_versions(rows: Iterable[Any]) -> list[str]:
    """The revisions in alembic_version; raises `OutdatedSchema` for a database of an earlier development version."""
    versions = {row["version_num"]: row["is_outdated"] for row in rows}
    if any(is_outdated and version.startswith("core_") for version, is_outdated in versions.items()):
        raise OutdatedSchema("the database was made by an earlier development version of butlers")
    return list(versions)


def _script(branches: Sequence[Branch]) -> ScriptDirectory:
    from alembic.script import ScriptDirectory

    locations = [str(branch.location) for branch in branches]
    return ScriptDirectory(locations[0], version_locations=locations)


def _run(connection: Connection, branches: Sequence[Branch], target: _Target, progress: _Progress) -> None:
    """Migrate to the target, limited to the branches of this butler."""
    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext

    class KnownBranches(MigrationContext):
        """A context that ignores the versions of modules that this butler does not have."""

        def get_current_heads(self) -> tuple[str, ...]:
            return tuple(v for v in _read_versions(connection) if any(branch.owns(v) for branch in branches))

    script = _script(branches)

    def steps(heads: Any, _context: object) -> Iterator[Any]:
        for step in target.steps(script, heads):
            progress.step = f"{'downgrade of ' if target.is_downgrade else ''}migration {step.revision.revision}"
            yield step

    options = {"script": script, "fn": steps, "version_table_schema": "public"}
    context = KnownBranches(connection.dialect, connection, options)
    with Operations.context(context):
        context.run_migrations()


def _grant_statements(branches: Iterable[Branch], app_roles: Sequence[str]) -> Iterator[str]:
    roles = ", ".join(map(quote_identifier, app_roles))
    for branch in branches:
        for name, privileges in branch.rights.items():
            target = _grant_target(name)
            yield f"revoke all on {target} from public, {roles}"
            if privileges:
                yield f"grant {_check_privileges(privileges)} on {target} to {roles}"


def _grant_target(name: str) -> str:
    """Return an object such as "table facts" in the syntax of GRANT; raise `ValueError` if it is malformed."""
    match = _OBJECT.fullmatch(name)
    if match is None:
        raise ValueError(f"{name!r} does not name a table, function or sequence")
    kind, identifier, arguments = match.groups(default="")
    return f"{kind} public.{quote_identifier(identifier)}{arguments}"


def _check_privileges(text: str) -> str:
    privileges = [word.strip() for word in text.split(",")]
    if not _PRIVILEGES.issuperset(privileges):
        raise ValueError(f"unknown privileges: {text!r}")
    return ", ".join(privileges)


def quote_identifier(name: str) -> str:
    """Return the name as a quoted identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def _translate_errors(progress: _Progress) -> Iterator[None]:
    """Turn an error into a fault that names the failed step, with PostgreSQL's message if there is one."""
    try:
        yield
    except Fault:
        raise
    except Exception as error:
        # The rollback over a lost connection fails in turn: the fault before it says why.
        if progress.fault is not None:
            raise progress.fault from error
        server_error = _find(error, asyncpg.PostgresError)
        if server_error is None and isinstance(error, OSError):
            raise Unavailable(f"the database can't be reached: {error}") from error
        if server_error is None:
            raise MigrationFault(f"{progress.step} failed: {error}") from error
        if isinstance(server_error, (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)):
            raise TablesInUse(f"{progress.step} needs tables that somebody else uses") from error
        hint = f"{server_error.hint.rstrip('.')}. {MigrationFault.hint}" if server_error.hint else None
        if "permission denied for schema public" in str(server_error):
            hint = "As the owner of the database, let the owner of the tables: GRANT CREATE ON SCHEMA public TO …;"
        raise MigrationFault(f"{progress.step} failed: {server_error.args[0]}", hint=hint) from error


_E = TypeVar("_E", bound=BaseException)


def _find(error: BaseException | None, kind: type[_E]) -> _E | None:
    """Return the error of that kind that SQLAlchemy, its adapter or a failed rollback wrapped, if there is one."""
    if error is None or isinstance(error, kind):
        return error
    return _find(error.__cause__, kind) or _find(error.__context__, kind)
