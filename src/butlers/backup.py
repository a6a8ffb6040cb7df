"""Backup and restore of a butler's database: a restore takes rows from the file, and nothing else."""

import asyncio
import contextlib
import fcntl
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, NamedTuple
from uuid import UUID

import asyncpg

from butlers import app, backup_file, db, migrate
from butlers.backup_file import VERSION_TABLE, BackupFile, ForeignBackup, TableRows
from butlers.caller import Caller
from butlers.config import Configuration
from butlers.cron import local_now
from butlers.db import PlainConnection
from butlers.environment import Environment
from butlers.errors import ConfigurationFault, InvalidInput, Unavailable
from butlers.host import job_runs
from butlers.migrate import quote_identifier
from butlers.provision import DatabaseLocation

BACKUP_JOB = "backup"
_NEW_FILE_PREFIX = ".butlers-backup-"
_ISOLATION = "FUNCTION public enable_tenant_isolation(regclass, boolean)"


class Backup(NamedTuple):
    """A backup file and its size."""

    file: Path
    bytes: int


class Restoration(NamedTuple):
    """What a restore brought into the database."""

    created_at: datetime | None
    rows: Mapping[str, int]
    tenants: int
    migration: migrate.Migration


async def create(config: Configuration, environment: Environment, file: Path) -> Backup:
    """Write a consistent snapshot of the database to a file; write no file on failure."""
    with _new_file(file) as new_file:
        async with app.migrated_database(config, environment) as location:
            is_embedded = location.cluster is not None
            size = await backup_file.write_backup(_admin_dsn(location), new_file, is_embedded=is_embedded)
            _rename(new_file.name, file)
            await _record_backup(location, config, size)
    return Backup(file, size)


async def restore(config: Configuration, environment: Environment, file: Path) -> Restoration:
    """Load the rows of a backup into the butler's database; raise `AlreadyExists` if that has rows.

    The migrations make the tables, all in one transaction: the file can't bring a function, a trigger or a right.
    """
    backup = await backup_file.open_backup(file)
    if _ISOLATION not in backup.contents:
        raise migrate.OutdatedSchema(f"{file} was made by an earlier development version of butlers")
    revisions = await backup.revisions()
    branches = app.branches_of(config, revisions)
    loader = _Loader(backup)
    async with app.locate_database(config, environment) as location:
        with db.translate_errors():
            await app.refuse_unsuitable_database(location, branches)
        migration = await migrate.rebuild(
            _admin_dsn(location), branches, revisions, loader.load, app_role=location.app, owner=location.owner
        )
    return Restoration(backup.created_at, loader.rows, loader.tenants, migration)


async def _record_backup(location: DatabaseLocation, config: Configuration, size: int) -> None:
    """Record the backup as a job run, from which `butlers doctor` reads its time."""
    caller = Caller(tenant=config.butler.auth.tenant, butler=config.butler.name, actor="backup")
    database = await db.connect(location.dsn, pool_size=1)
    try:
        run_id = await job_runs.claim_run(database, caller, BACKUP_JOB, None, local_now())
        if isinstance(run_id, UUID):
            await job_runs.finish_run(database, caller, run_id, "succeeded", {"bytes": size}, None)
    finally:
        await database.close()


def _admin_dsn(location: DatabaseLocation) -> str:
    if location.admin_dsn is None:
        raise ConfigurationFault(
            "this needs the owner of the tables, and only the application's role is known",
            hint="Set BUTLERS_ADMIN_DATABASE_URL to the owner.",
        )
    return location.admin_dsn


def _rename(path: str, file: Path) -> None:
    Path(path).replace(file)


@contextmanager
def _new_file(file: Path) -> Iterator[IO[bytes]]:
    """Yield a new file beside `file` that only its owner can read; delete it at the end unless it was renamed."""
    if file.is_dir():
        raise InvalidInput(f"{file} is a folder", hint=f"Name a file in it, such as {file / 'butler.backup'}.")
    if not file.parent.is_dir():
        raise InvalidInput(f"there is no folder {file.parent}", hint="Create it, or name another folder.")
    try:
        opened = tempfile.NamedTemporaryFile(prefix=_NEW_FILE_PREFIX, dir=file.parent, delete=False)  # noqa: SIM115
    except OSError as error:
        raise InvalidInput(f"{file.parent}: {error.strerror}", hint="Name a folder that you may write to.") from error
    with opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        try:
            _delete_abandoned_files(file.parent)
            yield opened
        finally:
            Path(opened.name).unlink(missing_ok=True)


def _delete_abandoned_files(folder: Path) -> None:
    """Delete what killed backups left in the folder; a running one holds the lock of its file."""
    for path in folder.glob(f"{_NEW_FILE_PREFIX}*"):
        with contextlib.suppress(OSError), path.open("ab") as abandoned:
            fcntl.flock(abandoned, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


class _Loader:
    """Loads the rows of a backup into the tables of a new schema, and counts them."""

    def __init__(self, backup: BackupFile) -> None:
        self._backup = backup
        self.rows: dict[str, int] = {}
        self.tenants = 0

    async def load(self, connection: PlainConnection) -> None:
        """Load every table, as the owner of the tables."""
        columns = await _columns(connection)
        self._backup.refuse_other_tables({*columns, VERSION_TABLE})
        with db.translate_errors(), _translate_lost_connection():
            async with _without_indexes(connection), self._backup.rows(set(columns)) as tables:
                async for each in tables:
                    self.rows[each.table] = await _copy(connection, each, columns[each.table])
            self.tenants = await _count_tenants(connection, columns)


@contextmanager
def _translate_lost_connection() -> Iterator[None]:
    """Turn the driver's error about its own state into `Unavailable`: the connection was lost between statements."""
    try:
        yield
    except asyncpg.InternalClientError as error:
        raise Unavailable("the database ended the connection") from error


async def _columns(connection: PlainConnection) -> dict[str, set[str]]:
    """Return the columns of each table, without the generated ones."""
    rows = await connection.fetch("""
        select c.relname::text as "table", array_agg(a.attname::text) as columns
          from pg_class c
          join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
         where c.relnamespace = 'public'::regnamespace
           and c.relkind = 'r'
           and c.relname <> 'alembic_version'
         group by c.relname
    """)
    return {row["table"]: set(row["columns"]) for row in rows}


async def _copy(connection: PlainConnection, rows: TableRows, columns: set[str]) -> int:
    if len(rows.columns) != len(columns) or set(rows.columns) != columns:
        raise ForeignBackup(f"the columns of {rows.table} in the backup are not those of its revision")
    try:
        return await _copy_to_table(connection, rows)
    except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError) as error:
        # Without the server's message: it quotes the row.
        reason = error.constraint_name or type(error).__name__
        raise ForeignBackup(f"the backup has a row that does not fit the table {rows.table} ({reason})") from error


async def _copy_to_table(connection: PlainConnection, rows: TableRows) -> int:
    copy = connection.copy_to_table(rows.table, schema_name="public", columns=list(rows.columns), source=rows.chunks)
    copying = asyncio.ensure_future(copy)
    lost = asyncio.Event()

    def stop(_: object) -> None:
        # The driver would wait forever for a lost connection to accept more.
        lost.set()
        copying.cancel()

    connection.add_termination_listener(stop)
    try:
        status = await copying
    except asyncio.CancelledError:
        if lost.is_set():
            raise Unavailable("the database ended the connection") from None
        raise
    finally:
        connection.remove_termination_listener(stop)
    return int(status.rpartition(" ")[2])


@asynccontextmanager
async def _without_indexes(connection: PlainConnection) -> AsyncIterator[None]:
    """Drop indexes and foreign keys, and create them again at the end: faster than row by row, and in any order.

    Until then row-level security does not bind the owner: COPY refuses to write where it does.
    """
    tables = await connection.fetch("""
        select format('public.%I', relname) as name
          from pg_class
         where relnamespace = 'public'::regnamespace and relkind = 'r' and relforcerowsecurity
    """)
    foreign_keys = await connection.fetch("""
        select conrelid::regclass::text as "table", quote_ident(conname) as name,
               pg_get_constraintdef(oid) as definition
          from pg_constraint
         where connamespace = 'public'::regnamespace and contype = 'f'
    """)
    indexes = await connection.fetch("""
        select format('public.%I', i.relname) as name, pg_get_indexdef(i.oid) as definition
          from pg_index x
          join pg_class i on i.oid = x.indexrelid
         where i.relnamespace = 'public'::regnamespace
           and not exists (select from pg_constraint where conindid = i.oid)
    """)
    for each in tables:
        await connection.execute(f"alter table {each['name']} no force row level security")
    for each in foreign_keys:
        await connection.execute(f"alter table {each['table']} drop constraint {each['name']}")
    for each in indexes:
        await connection.execute(f"drop index {each['name']}")
    yield
    for each in indexes:
        await _create_index(connection, each["definition"])
    for each in foreign_keys:
        await connection.execute(f"alter table {each['table']} add constraint {each['name']} {each['definition']}")
    for each in tables:
        await connection.execute(f"alter table {each['name']} force row level security")


async def _create_index(connection: PlainConnection, definition: str) -> None:
    try:
        await connection.execute(definition)
    except asyncpg.UniqueViolationError as error:
        # Without the server's message: it quotes the row.
        raise ForeignBackup(
            f"two rows of the backup are one in this database ({error.constraint_name})",
            hint="Nothing is changed. Names that differ by case alone are one here: merge those in the old database.",
        ) from error


async def _count_tenants(connection: PlainConnection, columns: Mapping[str, set[str]]) -> int:
    tables = [quote_identifier(table) for table, names in columns.items() if "tenant_id" in names]
    tenants = " union ".join(f"select tenant_id from public.{table}" for table in tables)  # noqa: S608 — quoted
    return int(await connection.fetchval(f"select count(*) from ({tenants}) t"))  # noqa: S608
