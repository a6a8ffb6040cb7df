"""A butler's whole database in one file, and back into an empty place; PostgreSQL's own tools do it."""

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import RawIOBase
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from butlers import app, db, embedded_server, migrate
from butlers.caller import Caller
from butlers.config import Configuration
from butlers.cron import local_now
from butlers.environment import Environment
from butlers.errors import AlreadyExists, ConfigurationFault, InvalidInput, Unavailable
from butlers.host import job_runs
from butlers.provision import DatabaseLocation, without_password

BACKUP_JOB = "backup"
_MAX_ERROR_CHARACTERS = 300
_MAGIC = b"PGDMP"
_SKIPPED_ENTRY = re.compile(r"^\d+; \d+ \d+ (?:EXTENSION|COMMENT - EXTENSION|POLICY|ROW SECURITY|BLOBS?) ")
_ISOLATION = "FUNCTION public enable_tenant_isolation(regclass, boolean)"
_TABLE = re.compile(r"^\d+; \d+ \d+ TABLE public (\S+) ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Backup:
    """A file that holds everything."""

    file: Path
    bytes: int


async def create(config: Configuration, environment: Environment, file: Path) -> Backup:
    """Write the whole database to a file: all of it, as it was at one moment, or no file at all."""
    async with app.migrated_database(config, environment) as place:
        admin = _admin_dsn(place)
        with tempfile.TemporaryDirectory(prefix=".butlers-backup-", dir=_check_target_folder(file)) as beside:
            made = Path(beside) / "backup"
            # Without large objects: a butler has none, and nobody could restore them in a transaction with the rest.
            options = ["--format=custom", "--no-owner", "--no-privileges", "-B", f"--file={made}"]
            # An owner that is bound by row-level security reads by the policy that lets it.
            rows = [] if place.cluster else ["--enable-row-security"]
            await _run_program("pg_dump", [*options, *rows], admin)
            made.chmod(0o600)
            size = made.stat().st_size
            made.replace(file)
        await _record_backup(place, config, size)
    return Backup(file, size)


async def restore(config: Configuration, environment: Environment, file: Path) -> migrate.Migration:
    """Put a backup into the butler's database, which must be empty, and bring its schema up to date."""
    source = _check_backup_file(file)
    async with app.locate_database(config, environment) as place:
        admin = _admin_dsn(place)
        await _refuse_non_empty(place)
        contents = await _run_program("pg_restore", ["--list", source], admin, connect=False)
        if _ISOLATION not in contents:
            raise migrate.OutdatedSchema(f"{file} was made by an earlier development version of butlers")
        with tempfile.NamedTemporaryFile("w", suffix=".list", encoding="utf-8") as wanted:
            wanted.write(_restore_list(contents))
            wanted.flush()
            role = [f"--role={place.owner}"] if place.owner else []
            options = ["--no-owner", "--no-privileges", *role, f"--use-list={wanted.name}", "--file=-", source]
            await _restore_in_one_transaction(options, admin, _tenant_policy_statements(contents))
        return await app.upgrade_schema(place, app.migration_branches(config))


async def _record_backup(place: DatabaseLocation, config: Configuration, size: int) -> None:
    """Keep on record that there is a backup: `butlers doctor` tells when the last one was made."""
    caller = Caller(tenant=config.butler.auth.tenant, butler=config.butler.name, actor="backup")
    database = await db.connect(place.dsn, pool_size=1)
    try:
        begun = await job_runs.claim_run(database, caller, BACKUP_JOB, None, local_now())
        if isinstance(begun, job_runs.ClaimedRun):
            await job_runs.finish_run(database, caller, begun.id, "succeeded", {"bytes": size}, None)
    finally:
        await database.close()


def _admin_dsn(place: DatabaseLocation) -> str:
    if place.admin_dsn is None:
        raise ConfigurationFault(
            "this needs the owner of the tables, and only the application's role is known",
            hint="Set BUTLERS_ADMIN_DATABASE_URL to the owner.",
        )
    return place.admin_dsn


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
        raise InvalidInput(f"there is no folder {file.parent}", hint="Make it, or name another place.")
    return file.parent


async def _refuse_non_empty(place: DatabaseLocation) -> None:
    async with place.owner_connection() as owner:
        there = await owner.fetchval("select count(*) from pg_tables where schemaname = 'public'")
    if there:
        raise AlreadyExists(
            "the butler's database is not empty",
            hint="Restore under another name (butler.name), or into another database or BUTLERS_HOME.",
        )


def _restore_list(contents: str) -> str:
    """What is restored: extensions are there already, the administrator's, and policies name roles of elsewhere."""
    kept = (line for line in contents.splitlines() if not _SKIPPED_ENTRY.search(line))
    return "\n".join(kept) + "\n"


def _tenant_policy_statements(contents: str) -> list[str]:
    """The statements that isolate tenants in the restored tables, for the roles of this database."""
    tables = [table for table in _TABLE.findall(contents) if table != "alembic_version"]
    isolate = "select enable_tenant_isolation('{}', owner_writes => {})"
    return ["set search_path = public, pg_catalog", *(isolate.format(table, table == "api_keys") for table in tables)]


async def _run_program(program: str, arguments: Sequence[str], dsn: str, *, connect: bool = True) -> str:
    """What one of PostgreSQL's own programs says."""
    where = ["--dbname=" + without_password(dsn)] if connect else []
    process = await _start_program(program, [*arguments, *where], dsn)
    return await _program_output(program, process)


async def _restore_in_one_transaction(options: Sequence[str], dsn: str, afterwards: Sequence[str]) -> None:
    """Read a backup as statements into one transaction of one connection, and others after it: all or nothing.

    Not by pg_restore's own connection: some settings of extensions are known only once the extension was used there.
    """
    used = "select case when to_regproc('public.similarity') is null then null else public.similarity('', '') end"
    quiet = ["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--output=/dev/null"]
    where = "--dbname=" + without_password(dsn)
    theirs, ours = os.pipe()
    with os.fdopen(ours, "wb", buffering=0) as sink:
        try:
            reading = await _start_program("pg_restore", options, dsn, stdout=ours)
            words = [*quiet, where, "--command=begin", f"--command={used}", "--file=-"]
            writing = await _start_program("psql", words, dsn, stdin=theirs)
        finally:
            os.close(theirs)
        # What psql says tells more: pg_restore only notices that nobody reads any more.
        outcomes = await asyncio.gather(
            _program_output("psql", writing), _append_and_commit(reading, sink, afterwards), return_exceptions=True
        )
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


async def _append_and_commit(reading: asyncio.subprocess.Process, sink: RawIOBase, afterwards: Sequence[str]) -> None:
    """Once pg_restore has told everything, add what comes after it, and commit.

    Nobody else does: a backup that breaks off, or whoever reads it, may do so just behind a statement.
    """
    with sink:
        await _program_output("pg_restore", reading)
        await asyncio.to_thread(sink.write, ";\n".join([*afterwards, "commit;\n"]).encode())


async def _start_program(
    program: str,
    arguments: Sequence[str],
    dsn: str,
    *,
    stdin: int = asyncio.subprocess.DEVNULL,
    stdout: int = asyncio.subprocess.PIPE,
) -> asyncio.subprocess.Process:
    # The password goes by the environment, which nobody else reads.
    return await asyncio.create_subprocess_exec(
        _program_path(program), *arguments,
        stdin=stdin, stdout=stdout, stderr=asyncio.subprocess.PIPE, env={**os.environ, **_password_environment(dsn)},
    )  # fmt: skip


async def _program_output(program: str, process: asyncio.subprocess.Process) -> str:
    try:
        said, complained = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        raise Unavailable(
            f"{program} failed: {_first_error_line(complained)}", hint="The database is as it was before."
        )
    return (said or b"").decode("utf-8", "replace")


def _first_error_line(complained: bytes) -> str:
    """The first line that names an error: those after it quote statements."""
    lines = complained.decode("utf-8", "replace").strip().splitlines() or ["it does not say why"]
    return next((line for line in lines if "error" in line.lower()), lines[0])[:_MAX_ERROR_CHARACTERS]


def _password_environment(dsn: str) -> Mapping[str, str]:
    parts = urlsplit(dsn)
    password = unquote(parts.password) if parts.password else dict(parse_qsl(parts.query)).get("password")
    return {"PGPASSWORD": password} if password else {}


def _program_path(program: str) -> str:
    """The one that comes along with the embedded server, or the system's."""
    beside = embedded_server.program_path(program)
    if beside is not None:
        return str(beside)
    installed = shutil.which(program)
    if installed is None:
        raise Unavailable(f"the program {program} is not installed", hint="Install PostgreSQL's client programs.")
    return installed
