"""PostgreSQL's client programs on this machine, and which of them fits a server."""

import asyncio
import contextlib
import re
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from butlers import embedded_server
from butlers.db import PlainConnection
from butlers.errors import Unavailable

ProgramName = Literal["pg_dump", "pg_restore"]

_TIMEOUT_SECONDS = 10.0
_VERSION = re.compile(rb"\(PostgreSQL\) (\d+)(\.\d+)*")
# Distributions install several versions side by side in these folders.
_FOLDERS = (
    "usr/lib/postgresql/*/bin",
    "usr/pgsql-*/bin",
    "opt/homebrew/opt/postgresql@*/bin",
    "opt/homebrew/opt/libpq/bin",
    "usr/local/opt/postgresql@*/bin",
    "usr/local/opt/libpq/bin",
)
# Debian's script in /usr/bin chooses a version by the clusters of this machine.
_WRAPPER = "pg_wrapper"


class ServerTraits(NamedTuple):
    """What a client program has to cope with."""

    major: int
    uses_tls: bool


@dataclass(frozen=True, slots=True)
class ClientProgram:
    """A client program of one version."""

    name: ProgramName
    path: Path
    version: str
    is_bundled: bool
    speaks_tls: bool

    @property
    def major(self) -> int:
        """The major version."""
        return int(self.version.partition(".")[0])

    def __str__(self) -> str:
        return f"{self.name} {self.version} ({'bundled' if self.is_bundled else self.path.parent})"


def server_traits(connection: PlainConnection) -> ServerTraits:
    """Return the server's version, and whether this connection is encrypted."""
    # Not from pg_stat_ssl: the server does not see the TLS that a proxy before it speaks.
    transport = connection._transport  # type: ignore[attr-defined] # noqa: SLF001
    return ServerTraits(connection.get_server_version().major, transport.get_extra_info("ssl_object") is not None)


async def find_programs(name: ProgramName, folders: Sequence[str] = _FOLDERS) -> list[ClientProgram]:
    """Return the programs of that name: the system's, oldest first, then the one that comes with the package."""
    bundled = embedded_server.program_path(name)
    paths = [path for path in _system_paths(name, folders) if bundled is None or path != bundled.resolve()]
    found = await asyncio.gather(*(_inspect(name, path, is_bundled=False) for path in paths))
    programs = sorted((each for each in found if each), key=lambda each: each.major)
    own = bundled and await _inspect(name, bundled, is_bundled=True)
    return [*programs, *([own] if own else [])]


async def fitting_pg_dump(server: ServerTraits, *, is_embedded: bool) -> ClientProgram:
    """Return the pg_dump for a server: the embedded one's own, or one that can dump another; raise `Unavailable`."""
    programs = await find_programs("pg_dump")
    return choose_pg_dump([each for each in programs if each.is_bundled or not is_embedded], server)


def choose_pg_dump(programs: Sequence[ClientProgram], server: ServerTraits) -> ClientProgram:
    """Return the program that can dump a server's database; raise `Unavailable` if there is none.

    pg_dump refuses a newer server. A program without TLS is the last choice, because it needs a tunnel.
    """
    new_enough = [each for each in programs if each.major >= server.major]
    if not new_enough:
        found = ", ".join(map(str, programs)) or "there is no pg_dump"
        raise Unavailable(
            f"the server is PostgreSQL {server.major}, and no pg_dump here is as new: {found}",
            hint=f"Install the client programs of PostgreSQL {server.major} or newer.",
        )
    direct = [each for each in new_enough if each.speaks_tls or not server.uses_tls]
    return (direct or new_enough)[0]


async def choose_pg_restore() -> ClientProgram:
    """Return the newest program: an older one can't read what a newer pg_dump wrote."""
    programs = await find_programs("pg_restore")
    if not programs:
        raise Unavailable("the program pg_restore is not installed", hint="Install PostgreSQL's client programs.")
    return max(programs, key=lambda each: (each.major, each.is_bundled))


def _system_paths(name: str, folders: Sequence[str]) -> list[Path]:
    """Return the programs on the path and in these folders, each once."""
    paths = {path.resolve(): None for path in _installed(name, folders)}
    return [path for path in paths if path.name != _WRAPPER]


def _installed(name: str, folders: Sequence[str]) -> Iterator[Path]:
    on_path = shutil.which(name)
    if on_path:
        yield Path(on_path)
    for folder in folders:
        yield from (path for path in Path("/").glob(f"{folder}/{name}") if path.is_file())


async def _inspect(name: ProgramName, path: Path, *, is_bundled: bool) -> ClientProgram | None:
    """Return the program with its abilities; None if it does not run."""
    output = await _run(path, "--version")
    match = _VERSION.search(output)
    if match is None:
        return None
    version = match[0].removeprefix(b"(PostgreSQL) ").decode()
    # pg_restore reads a file and connects to nothing.
    return ClientProgram(name, path, version, is_bundled, name == "pg_dump" and await _speaks_tls(path))


async def _speaks_tls(path: Path) -> bool:
    """Return whether the program was built with TLS: one that was not refuses the parameter before it connects."""
    output = await _run(path, "--dbname=postgresql:///nothing?host=/nonexistent&sslmode=require", "--no-password")
    return b"sslmode value" not in output


async def _run(path: Path, *arguments: str) -> bytes:
    """Return everything that a program prints; nothing if it does not run or takes too long."""
    try:
        process = await asyncio.create_subprocess_exec(path, *arguments, stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
    except OSError:
        return b""
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            out, err = await process.communicate()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        return b""
    return out + err
