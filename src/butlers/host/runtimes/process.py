"""Programs that answer: something on stdin, an answer on stdout, and nothing left running afterwards."""

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from butlers.errors import SessionFailed, Unavailable
from butlers.host.runtimes.runtime import MOST_ANSWER_BYTES, session_timeout

_GUARD = Path(__file__).with_name("process_guard.py")
_MOST_COMPLAINT_BYTES = 4096
_LAST_WORDS_SECONDS = 0.5
_LONGEST_ENDING = 10.0
_STDIN, _STDOUT, _STDERR = 0, 1, 2
# Our own settings name databases and their passwords; a program inside another session of its kind would refuse.
_PRIVATE = ("BUTLERS_", "CLAUDECODE")


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """A program that ended by itself."""

    code: int
    stdout: str
    stderr: str


def require_program(program: str) -> None:
    """Return when the program can be started; raise `Unavailable` when it is not there."""
    if shutil.which(program) is None:
        raise Unavailable(
            f"the program {program} is not installed",
            hint="Install it, or set butler.runtime.command in butler.toml.",
        )


@contextlib.contextmanager
def session_folder() -> Iterator[Path]:
    """A folder for what a session may read, closed to everybody else."""
    # The warden may have removed it by then.
    with tempfile.TemporaryDirectory(prefix="butlers-session-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


async def run_program(
    command: Sequence[str],
    stdin: str,
    *,
    seconds: float,
    cwd: Path,
    folder: Path,
    variables: Mapping[str, str] | None = None,
) -> ProcessResult:
    """Run a program to its end; past its time, or when this call is cancelled, it ends with all it started.

    `folder` holds what it may read, and is gone when it has ended, even if nobody is left to remove it.
    """
    require_program(command[0])
    async with _start_guarded(command, cwd, folder, variables or {}) as program:
        try:
            async with asyncio.timeout(seconds):
                program.tell(stdin)
                return await program.ended()
        except TimeoutError:
            raise session_timeout(seconds) from None


class _Program(asyncio.SubprocessProtocol):
    """A running program: what it said so far, and whether it has ended.

    Not asyncio's own, which takes a program for running as long as anybody holds its output open.
    """

    def __init__(self) -> None:
        self._transport: asyncio.SubprocessTransport | None = None
        self._said = {_STDOUT: bytearray(), _STDERR: bytearray()}
        self._open = {_STDOUT, _STDERR}
        self._silent = asyncio.Event()
        self._too_much = asyncio.Event()
        self.gone = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        said = self._said[fd]
        said += data
        if fd == _STDERR:
            del said[:-_MOST_COMPLAINT_BYTES]
        elif len(said) > MOST_ANSWER_BYTES:
            self._too_much.set()
            self._pipe(fd).close()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        del exc
        self._open.discard(fd)
        if not self._open:
            self._silent.set()

    def process_exited(self) -> None:
        self.gone.set()

    def tell(self, text: str) -> None:
        """Send it something to read; it need not."""
        stdin = cast("asyncio.WriteTransport", self._pipe(_STDIN))
        stdin.write(text.encode("utf-8", "replace"))
        stdin.close()

    async def ended(self) -> ProcessResult:
        """What it said, once it has ended; what outlives it and holds its output open is not waited for."""
        await _wait_for_first(self.gone, self._too_much)
        if self._too_much.is_set():
            raise SessionFailed(f"the session answered more than {MOST_ANSWER_BYTES >> 20} MiB")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_SECONDS):
                await self._silent.wait()
        code = self._transport.get_returncode() if self._transport else None
        return ProcessResult(-1 if code is None else code, self._text(_STDOUT), self._text(_STDERR))

    def close(self) -> None:
        """Let go of its pipes."""
        if self._transport is not None:
            self._transport.close()

    def _text(self, fd: int) -> str:
        return self._said[fd].decode("utf-8", "replace")

    def _pipe(self, fd: int) -> asyncio.BaseTransport:
        pipe = self._transport.get_pipe_transport(fd) if self._transport else None
        if pipe is None:
            raise TypeError(fd)
        return pipe


async def _wait_for_first(*events: asyncio.Event) -> None:
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()


@contextlib.asynccontextmanager
async def _start_guarded(
    command: Sequence[str], cwd: Path, folder: Path, variables: Mapping[str, str]
) -> AsyncIterator[_Program]:
    """A program under its warden, which ends it when the pipe between us is closed, however that happens."""
    theirs, ours = os.pipe()
    try:
        _, program = await asyncio.get_running_loop().subprocess_exec(
            _Program,
            sys.executable, "-I", "-S", str(_GUARD), str(theirs), str(folder), *command,
            stdin=PIPE, stdout=PIPE, stderr=PIPE, pass_fds=(theirs,), start_new_session=True,
            cwd=cwd, env=_session_environment(variables),
        )  # fmt: skip
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    try:
        yield program
    finally:
        os.close(ours)
        await asyncio.shield(_wait_for_exit(program))


async def _wait_for_exit(program: _Program) -> None:
    """Return when the warden has ended it all."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LONGEST_ENDING):
            await program.gone.wait()
    program.close()


def _session_environment(variables: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_PRIVATE)}
    return {**kept, **variables}


def require_success(ran: ProcessResult, program: str) -> str:
    """What it answered; a failure is told by its code and the last thing it complained about."""
    if ran.code == 0:
        return ran.stdout
    lines = [line.strip() for line in ran.stderr.splitlines() if line.strip()]
    said = f": {lines[-1][:300]}" if lines else ""
    raise SessionFailed(f"{program} ended with exit code {ran.code}{said}")
