"""Backup files: written by pg_dump, read by pg_restore as rows of tables; no statement of a file is run."""

import asyncio
import os
import re
import tempfile
from asyncio import StreamReader
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, NamedTuple

from butlers.application_logins import PRIVATE_SCHEMA
from butlers.client_programs import ClientProgram, choose_pg_restore, fitting_pg_dump, server_traits
from butlers.database_url import password_of, with_parameters, without_password
from butlers.errors import Fault, InvalidInput, Unavailable
from butlers.provision import open_connection
from butlers.tls_tunnel import TunnelEnd, open_tunnel

VERSION_TABLE = "alembic_version"
_MAGIC = b"PGDMP"
_CHUNK_BYTES = 1 << 20
_MAX_LINE_BYTES = 1 << 16
_MAX_ERROR_CHARACTERS = 300
_MAX_REVISIONS_BYTES = 4096
_LOCK_TIMEOUT_SECONDS = 60.0
_SILENCE_SECONDS = 600.0
# The other parameters are settings of the server, which libpq does not take, or younger than the oldest pg_dump.
_LIBPQ_PARAMETERS = frozenset({
    "application_name", "dbname", "gsslib", "host", "krbsrvname", "options", "passfile", "port", "service",
    "ssl_max_protocol_version", "ssl_min_protocol_version", "sslcert", "sslcrl", "sslkey", "sslmode", "sslpassword",
    "sslrootcert", "target_session_attrs", "user",
})  # fmt: skip
_CREATED = re.compile(r"^;\s+Archive created at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)", re.MULTILINE)
_ROWS_ENTRY = re.compile(r"^\d+; \d+ \d+ TABLE DATA (\S+) (\S+) .*$", re.MULTILINE)
_COPY = re.compile(rb'COPY public\.([a-z0-9_]+) \(([a-z0-9_", ]+)\) FROM stdin;\n')
_END_OF_ROWS = b"\n\\.\n"
# The lines around the rows in a script of pg_restore. They are not run either: another line tells a foreign file.
_OTHER_LINE = re.compile(
    rb"""(--[^\n]*
        |\\(un)?restrict\ \w+
        |SET\ client_encoding\ =\ 'UTF8';
        |SET\ (?!client_encoding)\w+\ =\ \w+;
        |SELECT\ pg_catalog\.set_config\('search_path',\ '',\ false\);
    )?\n""",
    re.VERBOSE,
)


class ForeignBackup(InvalidInput):
    """The file is no backup, is damaged, or holds something that no backup of butlers holds."""

    hint = "The database is unchanged. Name a file that `butlers backup` wrote."


class TableRows(NamedTuple):
    """The rows of one table in PostgreSQL's text format of COPY."""

    table: str
    columns: Sequence[str]
    chunks: AsyncIterator[bytes]


@dataclass(frozen=True, slots=True)
class BackupFile:
    """A backup, known by its table of contents."""

    path: Path
    contents: str

    @property
    def created_at(self) -> datetime | None:
        """The time of the backup."""
        match = _CREATED.search(self.contents)
        return datetime.fromisoformat(match[1]).replace(tzinfo=UTC) if match else None

    async def revisions(self) -> list[str]:
        """Return the revisions of the schema that the backup was made with."""
        async with self.rows({VERSION_TABLE}) as tables:
            text = b""
            async for each in tables:
                async for chunk in each.chunks:
                    text += chunk
                    # The file is compressed: a small one may hold gigabytes.
                    if len(text) > _MAX_REVISIONS_BYTES:
                        raise ForeignBackup(f"{self.path} has more revisions of the schema than there are")
        return text.decode("ascii", "replace").split()

    @asynccontextmanager
    async def rows(self, tables: set[str]) -> AsyncIterator[AsyncIterator[TableRows]]:
        """Yield the rows of these tables, to be read in turn; raise `ForeignBackup` unless the file is intact."""
        entries = "".join(f"{match[0]}\n" for match in self._row_entries() if match[2] in tables)
        with tempfile.NamedTemporaryFile("w", suffix=".list", encoding="utf-8") as use:
            use.write(entries)
            use.flush()
            arguments = ["--data-only", f"--use-list={use.name}", "--file=-", str(self.path)]
            async with _running(await choose_pg_restore(), arguments) as output:
                yield _Script(output).tables(tables)

    def refuse_other_tables(self, tables: set[str]) -> None:
        """Raise `ForeignBackup` if the backup has rows of other tables, or lacks those of one of these."""
        held = {match[2] if match[1] == "public" else f"{match[1]}.{match[2]}" for match in self._row_entries()}
        if unknown := sorted(held - tables):
            raise ForeignBackup(f"{self.path} has rows of {', '.join(unknown)}, which is no table of this butler")
        if missing := sorted(tables - held):
            raise ForeignBackup(f"{self.path} has no rows for {', '.join(missing)}")

    def _row_entries(self) -> Iterator[re.Match[str]]:
        """Return the tables with rows; the passwords of roles, which a dump by hand holds, belong to their server."""
        return (match for match in _ROWS_ENTRY.finditer(self.contents) if match[1] != PRIVATE_SCHEMA)


async def open_backup(path: Path) -> BackupFile:
    """Return the backup in a file; raise `InvalidInput` if there is none."""
    _check_magic(path)
    async with _running(await choose_pg_restore(), ["--list", str(path)]) as output:
        contents = await output.read()
    return BackupFile(path, contents.decode("utf-8", "replace"))


def _check_magic(path: Path) -> None:
    if not path.is_file():
        raise InvalidInput(f"there is no file {path}", hint="Name a file that `butlers backup` wrote.")
    with path.open("rb") as opened:
        if opened.read(len(_MAGIC)) != _MAGIC:
            raise InvalidInput(
                f"{path} is not a backup",
                hint="Name a file that `butlers backup` wrote; an export goes in by `butlers memory import`.",
            )


async def write_backup(
    dsn: str,
    file: IO[bytes],
    *,
    is_embedded: bool,
    lock_seconds: float = _LOCK_TIMEOUT_SECONDS,
    silence_seconds: float = _SILENCE_SECONDS,
) -> int:
    """Write a consistent snapshot of the database to an open file and to the disk; return its size.

    Through a pipe: pg_dump ends with this process, even if it is killed. It has no limit as long as it writes, and
    waits for a table that somebody else has locked for `lock_seconds` at most. Raises `Unavailable` if it fails.
    """
    # Without large objects: a butler has none.
    options = ["--format=custom", "--no-owner", "--no-privileges", "-B", "--encoding=UTF8"]
    # Row-level security binds an external owner, whose policy lets it read all rows.
    row_security = [] if is_embedded else ["--enable-row-security"]
    limits = [f"--lock-wait-timeout={round(lock_seconds * 1000)}", f"--exclude-schema={PRIVATE_SCHEMA}"]
    async with _dump_source(dsn, is_embedded=is_embedded) as (program, source):
        arguments = [*options, *row_security, *limits, "--dbname=" + source.url]
        async with _running(program, arguments, source.password) as output:
            while chunk := await _read_in_time(output, silence_seconds):
                await asyncio.to_thread(file.write, chunk)
    file.flush()
    await asyncio.to_thread(os.fsync, file.fileno())
    return file.tell()


@asynccontextmanager
async def _dump_source(dsn: str, *, is_embedded: bool) -> AsyncIterator[tuple[ClientProgram, TunnelEnd]]:
    """Yield the pg_dump that fits the server, and the URL by which it reaches the database."""
    async with open_connection(dsn) as connection:
        server = server_traits(connection)
    program = await fitting_pg_dump(server, is_embedded=is_embedded)
    if server.uses_tls and not program.speaks_tls:
        async with open_tunnel(dsn) as end:
            yield program, end
    else:
        yield program, TunnelEnd(with_parameters(without_password(dsn), _LIBPQ_PARAMETERS), password_of(dsn))


async def _read_in_time(output: StreamReader, seconds: float) -> bytes:
    try:
        async with asyncio.timeout(seconds):
            return await output.read(_CHUNK_BYTES)
    except TimeoutError:
        raise Unavailable(
            f"pg_dump wrote nothing for {seconds:g} s", hint="Check that the database server answers, then try again."
        ) from None


class _Script:
    """A script of pg_restore, read as the rows of its tables."""

    def __init__(self, stream: StreamReader) -> None:
        self._stream = stream
        self._buffer = b""

    async def tables(self, expected: set[str]) -> AsyncIterator[TableRows]:
        """Yield each table; its rows have to be read before the next."""
        remaining = set(expected)
        while line := await self._line():
            if header := _COPY.fullmatch(line):
                name = header[1].decode()
                if name not in remaining:
                    raise ForeignBackup(f"the backup has rows of {name} where none should be")
                remaining.remove(name)
                columns = [column.strip('" ') for column in header[2].decode().split(",")]
                yield TableRows(name, columns, self._rows())
            elif not _OTHER_LINE.fullmatch(line):
                raise ForeignBackup("the backup holds a statement that no backup of butlers holds")
        if remaining:
            raise ForeignBackup(f"the backup has no rows for {', '.join(sorted(remaining))}")

    async def _line(self) -> bytes:
        """Return the next line outside of rows; empty at the end."""
        while b"\n" not in self._buffer and await self._read_more():
            if len(self._buffer) > _CHUNK_BYTES + _MAX_LINE_BYTES:
                raise ForeignBackup("the backup holds a statement that no backup of butlers holds")
        line, end, self._buffer = self._buffer.partition(b"\n")
        return line + end

    async def _rows(self) -> AsyncIterator[bytes]:
        """Yield the rows of a table, without the line that ends them."""
        # The line break before the first row lets an empty table end like any other.
        self._buffer = b"\n" + self._buffer
        skip = 1
        while (end := self._buffer.find(_END_OF_ROWS)) < 0:
            keep = len(_END_OF_ROWS) - 1
            if len(self._buffer) > keep + skip:
                yield self._buffer[skip:-keep]
                self._buffer, skip = self._buffer[-keep:], 0
            if not await self._read_more():
                raise ForeignBackup("the backup ends in the middle of a table")
        yield self._buffer[skip : end + 1]
        self._buffer = self._buffer[end + len(_END_OF_ROWS) :]

    async def _read_more(self) -> bool:
        chunk = await self._stream.read(_CHUNK_BYTES)
        self._buffer += chunk
        return bool(chunk)


@asynccontextmanager
async def _running(
    program: ClientProgram, arguments: Sequence[str], password: str | None = None
) -> AsyncIterator[StreamReader]:
    """Run a program and yield its output, to be read to the end; raise a fault if it fails."""
    # The password goes into the environment, which other users can't read; the times in a backup are in UTC.
    env = os.environ | {"TZ": "UTC"} | ({"PGPASSWORD": password} if password else {})
    with tempfile.TemporaryFile() as errors:
        process = await asyncio.create_subprocess_exec(
            program.path, *arguments, stdin=DEVNULL, stdout=PIPE, stderr=errors, env=env, limit=_CHUNK_BYTES
        )
        output = process.stdout
        assert output  # noqa: S101 — it is a pipe
        try:
            yield output
        except BaseException:
            # Where the output ends too early, the program's own error says more.
            if not output.at_eof() or not await process.wait():
                await _kill(process)
                raise
        if await process.wait():
            raise _failure(program.name, errors)


async def _kill(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    # Read the output too: a full pipe would keep the process from being waited for.
    await process.communicate()


def _failure(program: str, errors: IO[bytes]) -> Fault:
    """Return a fault with the first line that has an error: later lines quote statements."""
    errors.seek(0)
    lines = errors.read().decode("utf-8", "replace").strip().splitlines() or ["it printed no error"]
    line = next((line for line in lines if "error" in line.lower()), lines[0])[:_MAX_ERROR_CHARACTERS]
    fault = ForeignBackup if program == "pg_restore" else Unavailable
    return fault(f"{program} failed: {line}")
