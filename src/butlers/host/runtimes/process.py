"""Child processes of sessions: input on stdin, answer on stdout, and nothing left running afterwards."""

import asyncio
import contextlib
import logging
import os
import shutil
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast
from uuid import UUID

from butlers.errors import SessionFailed, Unavailable
from butlers.host.runtimes.runtime import MAX_ANSWER_BYTES, session_timeout

log = logging.getLogger("butlers.sessions")
_GUARD = Path(__file__).with_name("process_guard.py")
_SWEEP = Path(__file__).with_name("process_sweep.py")
_MAX_STDERR_BYTES = 4096
_FLUSH_SECONDS = 0.5
_EXIT_TIMEOUT_SECONDS = 10.0
_STDIN, _STDOUT, _STDERR = 0, 1, 2
# BUTLERS_ variables contain database passwords; with CLAUDECODE set, the CLI refuses to start.
_REMOVED_PREFIXES = ("BUTLERS_", "CLAUDECODE")


class ProcessResult(NamedTuple):
    """Exit code and output of a program."""

    code: int
    stdout: str
    stderr: str


def require_program(program: str) -> None:
    """Raise `Unavailable` if the program is not installed."""
    if shutil.which(program) is None:
        raise Unavailable(
            f"the program {program} is not installed",
            hint="Install it, or set butler.runtime.command in butler.toml.",
        )


@contextlib.contextmanager
def session_folder() -> Iterator[Path]:
    """Yield a temporary folder that only this user can read."""
    # The guard process may have removed the folder before.
    with tempfile.TemporaryDirectory(prefix="butlers-session-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


async def run_program(
    command: Sequence[str],
    stdin: str,
    *,
    session: UUID,
    seconds: float,
    cwd: Path,
    folder: Path,
    variables: Mapping[str, str],
) -> ProcessResult:
    """Run a program and return its result. Raises `TimedOut` after `seconds`, `SessionFailed` for too much output.

    In every case, the program and all its descendants are ended. The guard process removes `folder` when the program
    has ended, even if this process is gone.
    """
    require_program(command[0])
    variables = {**variables, "BUTLERS_SESSION_ID": str(session)}
    async with _start_guarded(command, cwd, folder, variables) as program:
        try:
            async with asyncio.timeout(seconds):
                program.send(stdin)
                return await program.wait()
        except TimeoutError:
            raise session_timeout(seconds) from None


class _Program(asyncio.SubprocessProtocol):
    """A running program and its output so far.

    asyncio's own protocol is not used: it waits until every process that inherited the output has closed it.
    """

    def __init__(self) -> None:
        self._output = {_STDOUT: bytearray(), _STDERR: bytearray()}
        self._open_pipes = {_STDOUT, _STDERR}
        self._output_closed = asyncio.Event()
        self._ended = asyncio.Event()
        self.exited = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        output = self._output[fd]
        output += data
        if fd == _STDERR:
            del output[:-_MAX_STDERR_BYTES]
        elif len(output) > MAX_ANSWER_BYTES:
            self._ended.set()
            self._pipe(fd).close()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        del exc
        self._open_pipes.discard(fd)
        if not self._open_pipes:
            self._output_closed.set()

    def process_exited(self) -> None:
        self.exited.set()
        self._ended.set()

    def send(self, text: str) -> None:
        """Write the text to stdin and close it."""
        stdin = self._pipe(_STDIN)
        stdin.write(text.encode("utf-8", "replace"))
        stdin.close()

    async def wait(self) -> ProcessResult:
        """Return the result when the program has exited, without waiting for children that keep its output open."""
        await self._ended.wait()
        if len(self._output[_STDOUT]) > MAX_ANSWER_BYTES:
            raise SessionFailed(f"the session answered more than {MAX_ANSWER_BYTES >> 20} MiB")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_SECONDS):
                await self._output_closed.wait()
        code = self.transport.get_returncode()
        stdout, stderr = (output.decode("utf-8", "replace") for output in self._output.values())
        return ProcessResult(-1 if code is None else code, stdout, stderr)

    def _pipe(self, fd: int) -> Any:
        return self.transport.get_pipe_transport(fd)


@contextlib.asynccontextmanager
async def _start_guarded(
    command: Sequence[str], cwd: Path, folder: Path, variables: Mapping[str, str]
) -> AsyncIterator[_Program]:
    """Yield a program started by the guard process, which ends it when our end of the pipe is closed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_REMOVED_PREFIXES)}
    guard_end, our_end = os.pipe()
    start = asyncio.get_running_loop().subprocess_exec(
        _Program,
        sys.executable, "-I", "-S", str(_GUARD), str(guard_end), str(folder), *command,
        stdin=PIPE, stdout=PIPE, stderr=PIPE, pass_fds=(guard_end,), start_new_session=True,
        cwd=cwd, env={**kept, **variables},
    )  # fmt: skip
    # Its own task, which is not cancelled: asyncio would kill the guard, and the program might run already.
    starting = asyncio.ensure_future(start)
    starting.add_done_callback(lambda _: os.close(guard_end))
    try:
        await asyncio.wait({starting})
        _, program = starting.result()
        yield program
    finally:
        os.close(our_end)
        await asyncio.shield(_wait_for_exit(starting, variables["BUTLERS_SESSION_ID"]))


async def _wait_for_exit(starting: "asyncio.Future[tuple[Any, _Program]]", session: str) -> None:
    """Wait for the end of the guard process; if it was killed or hangs, end what it guarded."""
    await asyncio.wait({starting})
    if starting.cancelled() or starting.exception():
        return
    _, program = starting.result()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_EXIT_TIMEOUT_SECONDS):
            await program.exited.wait()
    code = program.transport.get_returncode()
    program.transport.close()
    if code is None or code < 0:
        log.warning("the guard process of a session was killed or hung", extra={"session": session})
        with contextlib.suppress(OSError):
            await _sweep(session)


async def _sweep(session: str) -> None:
    """Kill the processes that carry the session's id; warn if that takes too long."""
    command = (sys.executable, "-I", str(_SWEEP), session)
    sweep = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=DEVNULL)
    try:
        async with asyncio.timeout(_EXIT_TIMEOUT_SECONDS):
            await sweep.wait()
    except TimeoutError:
        log.warning("processes of a session could not be ended", extra={"session": session})
        sweep.kill()
        await sweep.wait()


def require_success(result: ProcessResult, program: str) -> str:
    """Return the stdout; raise `SessionFailed` with the last line of stderr if the exit code is not 0."""
    if result.code == 0:
        return result.stdout
    lines = [line.strip() for line in result.stderr.splitlines() if line.strip()]
    reason = f": {lines[-1][:300]}" if lines else ""
    raise SessionFailed(f"{program} ended with exit code {result.code}{reason}")
