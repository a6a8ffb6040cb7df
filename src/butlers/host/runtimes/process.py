"""Programs that answer: something on stdin, an answer on stdout, and nothing left running afterwards."""

import asyncio
import contextlib
import os
import shutil
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from butlers.errors import SessionFailed, Unavailable
from butlers.host.runtimes.runtime import MOST_ANSWER_BYTES, took_too_long

_WARDEN = Path(__file__).with_name("warden.py")
_MOST_COMPLAINT_BYTES = 4096
_CHUNK = 65536
# Our own settings name databases and their passwords; a program inside another session of its kind would refuse.
_PRIVATE = ("BUTLERS_", "CLAUDECODE")


@dataclass(frozen=True, slots=True)
class Ran:
    """A program that ended by itself."""

    code: int
    stdout: str
    stderr: str


def installed(program: str) -> None:
    """Return when the program can be started; raise `Unavailable` when it is not there."""
    if shutil.which(program) is None:
        raise Unavailable(
            f"the program {program} is not installed",
            hint="Install it, or set butler.runtime.command in butler.toml.",
        )


async def run(
    command: Sequence[str], stdin: str, *, seconds: float, cwd: Path, variables: Mapping[str, str] | None = None
) -> Ran:
    """Run a program to its end; past its time, or when this call is cancelled, it ends with all it started."""
    installed(command[0])
    async with _started(command, cwd, variables or {}) as process:
        try:
            async with asyncio.timeout(seconds):
                return await _talked(process, stdin)
        except TimeoutError:
            raise took_too_long(seconds) from None


@contextlib.asynccontextmanager
async def _started(command: Sequence[str], cwd: Path, variables: Mapping[str, str]) -> AsyncIterator[Process]:
    """A program under its warden, which ends it when the pipe between us is closed, however that happens."""
    theirs, ours = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", str(_WARDEN), str(theirs), *command,
            stdin=PIPE, stdout=PIPE, stderr=PIPE, pass_fds=(theirs,), start_new_session=True,
            cwd=cwd, env=_environment(variables),
        )  # fmt: skip
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    try:
        yield process
    finally:
        os.close(ours)
        await asyncio.shield(process.wait())


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_PRIVATE)}
    return {**kept, **variables}


async def _talked(process: Process, stdin: str) -> Ran:
    if process.stdin is None or process.stdout is None or process.stderr is None:
        raise TypeError(process)
    told = asyncio.ensure_future(_tell(process.stdin, stdin))
    complaint = asyncio.ensure_future(_tail(process.stderr))
    try:
        answer = await _whole(process.stdout)
        await told
        return Ran(await process.wait(), answer, await complaint)
    finally:
        told.cancel()
        complaint.cancel()


async def _tell(stream: asyncio.StreamWriter, text: str) -> None:
    # A program need not read what it is told.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        stream.write(text.encode("utf-8", "replace"))
        await stream.drain()
    stream.close()


async def _whole(stream: asyncio.StreamReader) -> str:
    said = bytearray()
    while chunk := await stream.read(_CHUNK):
        said += chunk
        if len(said) > MOST_ANSWER_BYTES:
            raise SessionFailed(f"the session answered more than {MOST_ANSWER_BYTES >> 20} MiB")
    return said.decode("utf-8", "replace")


async def _tail(stream: asyncio.StreamReader) -> str:
    said = bytearray()
    while chunk := await stream.read(_CHUNK):
        said = (said + chunk)[-_MOST_COMPLAINT_BYTES:]
    return said.decode("utf-8", "replace")


def ended_well(ran: Ran, program: str) -> str:
    """What it answered; a failure is told by its code and the last thing it complained about."""
    if ran.code == 0:
        return ran.stdout
    lines = [line.strip() for line in ran.stderr.splitlines() if line.strip()]
    said = f": {lines[-1][:300]}" if lines else ""
    raise SessionFailed(f"{program} ended with exit code {ran.code}{said}")
