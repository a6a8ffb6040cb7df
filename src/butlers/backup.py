"""Backup and restore of a butler's database with PostgreSQL's own programs."""

import asyncio
import os
import re
import shutil
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from io import RawIOBase
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from butlers import app, db, embedded_server, migrate
from butlers.caller import Caller
from butlers.config import Configuration
from butlers.cron import local_now
from butlers.environment import Environment
from butlers.errors import AlreadyExists, ConfigurationFault, InvalidInput, Unavailable
from butlers.host import job_runs
from butlers.provision import DatabaseLocation, password_of, without_password

BACKUP_JOB = "backup"
_MAX_ERROR_CHARACTERS = 300
_MAGIC = b"PGDMP"
_SKIPPED_ENTRY = re.compile(r"^\d+; \d+ \d+ (?:EXTENSION|COMMENT - EXTENSION|POLICY|ROW SECURITY|BLOBS?) ")
_ISOLATION = "FUNCTION public enable_tenant_isolation(regclass, boolean)"
_TABLE = re.compile(r"^\d+; \d+ \d+ TABLE public (\S+) ", re.MULTILINE)


class Backup(NamedTuple):
    """A backup file and its size."""

    file: Path
    bytes: int


async def create(config: Configuration, environment: Environment, file: Path) -> Backup:
    """Write a consistent snapshot of the database to a file; write no file on failure."""
    async with app.migrated_database(config, environment) as location:
        admin = _admin_dsn(location)
        with tempfile.TemporaryDirectory(prefix=".butlers-backup-", dir=_check_target_folder(file)) as folder:
            new_file = Path(folder) / "backup"
            # Without large objects: a butler has none, and they can't be restored in the same transaction.
            options = ["--format=custom", "--no-owner", "--no-privileges", "-B", f"--file={new_file}"]
            # Row-level security binds an external owner, whose policy lets it read all rows.
            row_security = [] if location.cluster else ["--enable-row-security"]
            await _run_program("pg_dump", [*options, *row_security], admin)
            new_file.chmod(0o600)
            size = new_file.stat().st_size
            new_file.replace(file)
        await _record_backup(location, config, size)
    return Backup(file, size)


async def restore(config: Configuration, environment: Environment, file: Path) -> migrate.Migration:
    """Restore a backup into the butler's database and migrate it; raise `AlreadyExists` if it is not empty."""
    source = _check_backup_file(file)
    async with app.locate_database(config, environment) as location:
        admin = _admin_dsn(location)
        await _refuse_non_empty(location)
        contents = await _run_program("pg_restore", ["--list", source], admin, connect=False)
        if _ISOLATION not in contents:
            raise migrate.OutdatedSchema(f"{file} was made by an earlier development version of butlers")
        with tempfile.NamedTemporaryFile("w", suffix=".list", encoding="utf-8") as entries:
            # Not extensions, which exist already, nor policies, which name other roles.
            entries.writelines(line for line in contents.splitlines(True) if not _SKIPPED_ENTRY.search(line))
            entries.flush()
            role = [f"--role={location.owner}"] if location.owner else []
            options = ["--no-owner", "--no-privileges", *role, f"--use-list={entries.name}", "--file=-", source]
            await _restore_in_one_transaction(options, admin, _tenant_policy_statements(contents))
        return await app.upgrade_schema(location, app.migration_branches(config))


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


def _check_backup_file(file: Path) -> str:
    if not file.is_file():
        raise InvalidInput(f"there is no file {file}", hint="Name a file that `butlers backup` wrote.")
    with file.open("rb") as opened:
        if opened.read(len(_MAGIC)) != _MAGIC:
            raise InvalidInput(
                f"{file} is not a backup",
                hint="Name a file that `butlers backup` wrote; an export goes in by `butlers memory import`.",
            )
    return str(file.absolute())


def _check_target_folder(file: Path) -> Path:
    if not file.parent.is_dir():
        raise InvalidInput(f"there is no folder {file.parent}", hint="Create it, or name another folder.")
    return file.parent


async def _refuse_non_empty(location: DatabaseLocation) -> None:
    async with location.owner_connection() as owner:
        has_tables = await owner.fetchval("select exists (select from pg_tables where schemaname = 'public')")
    if has_tables:
        raise AlreadyExists(
            "the butler's database is not empty",
            hint="Restore under another name (butler.name), or into another database or BUTLERS_HOME.",
        )


def _tenant_policy_statements(contents: str) -> list[str]:
    """The statements that isolate tenants in the restored tables, for the roles of this database."""
    tables = [table for table in _TABLE.findall(contents) if table != "alembic_version"]
    isolate = "select enable_tenant_isolation('{}', owner_writes => {})"
    return ["set search_path = public, pg_catalog", *(isolate.format(table, table == "api_keys") for table in tables)]


async def _run_program(program: str, arguments: Sequence[str], dsn: str, *, connect: bool = True) -> str:
    database = ["--dbname=" + without_password(dsn)] if connect else []
    return await _program_output(program, await _start_program(program, [*arguments, *database], dsn))


async def _restore_in_one_transaction(options: Sequence[str], dsn: str, afterwards: Sequence[str]) -> None:
    """Run the statements of a backup, and `afterwards` others, in one transaction of psql.

    Not over a connection of pg_restore: some settings of an extension exist only after the connection used it.
    """
    load_trgm = "select case when to_regproc('public.similarity') is not null then public.similarity('', '') end"
    quiet = ["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--output=/dev/null"]
    database = "--dbname=" + without_password(dsn)
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "wb", buffering=0) as sink:
        try:
            pg_restore = await _start_program("pg_restore", options, dsn, stdout=write_end)
            arguments = [*quiet, database, "--command=begin", f"--command={load_trgm}", "--file=-"]
            psql = await _start_program("psql", arguments, dsn, stdin=read_end)
        finally:
            os.close(read_end)
        # The error of psql comes first: pg_restore only reports a closed pipe.
        outcomes = await asyncio.gather(
            _program_output("psql", psql), _append_and_commit(pg_restore, sink, afterwards), return_exceptions=True
        )
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


async def _append_and_commit(pg_restore: Process, sink: RawIOBase, afterwards: Sequence[str]) -> None:
    """Wait for pg_restore to succeed, then write the statements `afterwards` and the commit.

    The commit is written only here: a truncated backup may end right after a complete statement.
    """
    with sink:
        await _program_output("pg_restore", pg_restore)
        await asyncio.to_thread(sink.write, ";\n".join([*afterwards, "commit;\n"]).encode())


async def _start_program(
    program: str, arguments: Sequence[str], dsn: str, *, stdin: int = DEVNULL, stdout: int = PIPE
) -> Process:
    # Pass the password in the environment, which other users can't read.
    password = password_of(dsn)
    env = os.environ | ({"PGPASSWORD": password} if password else {})
    path = _program_path(program)
    return await asyncio.create_subprocess_exec(path, *arguments, stdin=stdin, stdout=stdout, stderr=PIPE, env=env)


async def _program_output(program: str, process: Process) -> str:
    try:
        output, errors = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        raise Unavailable(f"{program} failed: {_first_error_line(errors)}", hint="The database is unchanged.")
    return (output or b"").decode("utf-8", "replace")


def _first_error_line(output: bytes) -> str:
    """Return the first line with an error: later lines quote statements."""
    lines = output.decode("utf-8", "replace").strip().splitlines() or ["it printed no error"]
    return next((line for line in lines if "error" in line.lower()), lines[0])[:_MAX_ERROR_CHARACTERS]


def _program_path(program: str) -> str:
    """Return the path of the program bundled with the embedded server, or of the installed one."""
    path = embedded_server.program_path(program) or shutil.which(program)
    if path is None:
        raise Unavailable(f"the program {program} is not installed", hint="Install PostgreSQL's client programs.")
    return str(path)
