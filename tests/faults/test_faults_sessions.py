"""Sessions: descendants that detach themselves (row 43)."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

import pytest

from butlers.errors import SessionFailed, TimedOut
from butlers.host.runtimes import process
from butlers.host.runtimes.command import CommandRuntime
from butlers.host.runtimes.runtime import RuntimeResult, SessionTask
from database.butler_processes import is_alive, wait_until

# Starts four processes that no signal to the program's group reaches, and writes the pid of each to a file.
ESCAPE = """#!/usr/bin/env python3
import os, signal, sys, time

def stay(name, variables=None):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with open(f"new-{name}", "w") as file:
        file.write(str(os.getpid()))
    os.rename(f"new-{name}", f"pid-{name}")
    if variables is not None:
        os.execve("/bin/sleep", ["sleep", "600"], variables)
    time.sleep(600)

def own_group():
    os.setpgid(0, 0)
    stay("own-group")

def own_session():
    os.setsid()
    stay("own-session")

def daemon(name="daemon", variables=None):
    os.setsid()
    if os.fork() == 0:
        stay(name, variables)
    os._exit(0)

def daemon_without_environment():
    daemon("daemon-without-environment", {})

children = (own_group, own_session, daemon, daemon_without_environment)
for start in children:
    if os.fork() == 0:
        start()
while sum(name.startswith("pid-") for name in os.listdir()) < len(children):
    time.sleep(0.02)
"""
# Forks and exits in new sessions, as fast as it can: each process lives for a moment only.
HOP = """#!/usr/bin/env python3
import os, time
started = time.monotonic()
def hop():
    while time.monotonic() - started < 30:
        if os.fork():
            os._exit(0)
        os.setsid()
        os.write(log, b".")
log = os.open("hops", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for _ in range(4):
    if os.fork() == 0:
        hop()
time.sleep(0.5)
"""
ANSWER = "print('done', flush=True)"
WAIT = "time.sleep(600)"
FAIL = "sys.exit('out of tea')"
FLOOD = "while True: print('x' * 100_000)"
KILL_GUARD = f"os.kill(os.getppid(), signal.SIGKILL); {WAIT}"
STOP_GUARD = f"os.kill(os.getppid(), signal.SIGSTOP); {WAIT}"
RUN_SESSION = """
import asyncio, sys
from pathlib import Path
from uuid import uuid4
from butlers.host.runtimes.command import CommandRuntime
from butlers.host.runtimes.runtime import SessionTask

program = Path(sys.argv[1])
asyncio.run(CommandRuntime([str(program)], program.parent).run(SessionTask(uuid4(), "Go on.", 600)))
"""
GUARD_WITHOUT_SUBREAPER = """
import ctypes, runpy, shutil, subprocess, sys
sys.platform = "darwin"
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def new_session(tmp_path):
    """Make sessions, and kill what they leave."""
    made: list[Session] = []

    def make():
        made.append(Session(tmp_path / f"session{len(made)}"))
        made[-1].folder.mkdir()
        return made[-1]

    yield make
    for pid in [pid for each in made for pid in each.pids().values() if is_alive(pid)]:
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def session(new_session):
    """A session whose program starts detached processes."""
    return new_session()


class Session:
    """A session whose program starts detached processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = folder / "think"

    def write(self, text: str) -> None:
        self.program.write_text(text)
        self.program.chmod(0o755)

    async def run(self, then: str, seconds: float = 60) -> RuntimeResult:
        """Start the detached processes, then do the rest."""
        self.write(f"{ESCAPE}\n{then}\n")
        return await self.run_program(seconds)

    async def run_program(self, seconds: float = 60) -> RuntimeResult:
        runtime = CommandRuntime([str(self.program)], self.folder)
        return await asyncio.wait_for(runtime.run(SessionTask(uuid4(), "Go on.", seconds)), 60)

    def pids(self) -> dict[str, int]:
        return {path.name.removeprefix("pid-"): int(path.read_text()) for path in self.folder.glob("pid-*")}

    def alive(self) -> list[str]:
        return [name for name, pid in self.pids().items() if is_alive(pid)]

    def wait_for_start(self) -> None:
        wait_until(lambda: len(self.alive()) == 4, "the detached processes to start")

    def assert_all_ended(self, *, but: str = "") -> None:
        assert len(self.pids()) == 4, "the processes did not start"
        assert [name for name in self.alive() if name != but] == []


async def test_row_43_a_session_that_answers_ends_with_its_detached_processes(session):
    outcome = await session.run(ANSWER)
    session.assert_all_ended()
    assert outcome.text == "done\n"


@pytest.mark.parametrize(
    ("then", "fault"), [(FAIL, "out of tea"), (FLOOD, "more than 8 MiB")], ids=["fails", "answers too much"]
)
async def test_row_43_a_session_that_fails_ends_with_its_detached_processes(session, then, fault):
    with pytest.raises(SessionFailed, match=fault):
        await session.run(then)
    session.assert_all_ended()


async def test_row_43_a_session_over_its_time_ends_with_its_detached_processes(session):
    with pytest.raises(TimedOut):
        await session.run(WAIT, seconds=4)
    session.assert_all_ended()


async def test_row_43_a_cancelled_session_ends_with_its_detached_processes(session):
    running = asyncio.ensure_future(session.run(WAIT))
    await asyncio.to_thread(session.wait_for_start)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    session.assert_all_ended()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_row_43_a_session_whose_butler_is_killed_ends_with_its_detached_processes(session, processes, number):
    session.write(f"{ESCAPE}\n{WAIT}\n")
    butler = processes.python("-c", RUN_SESSION, str(session.program))
    session.wait_for_start()
    butler.end(number)
    wait_until(lambda: not session.alive(), "the detached processes to end", 10)


@pytest.mark.parametrize(
    "then", [KILL_GUARD, pytest.param(STOP_GUARD, marks=pytest.mark.slow)], ids=["kills", "stops"]
)
async def test_row_43_a_session_that_ends_its_guard_ends_with_what_carries_its_id(session, then):
    """Without the guard, the session's id in the environment is left: a process without it lives on."""
    with pytest.raises((SessionFailed, TimedOut)):
        await session.run(then, seconds=4)
    session.assert_all_ended(but="daemon-without-environment")


async def test_row_43_processes_that_keep_forking_into_new_sessions_are_ended(session):
    session.write(HOP)
    started = time.monotonic()
    await session.run_program()
    hops = session.folder / "hops"
    length = hops.stat().st_size
    assert length > 50, "the processes did not start"
    await asyncio.sleep(1)
    assert hops.stat().st_size == length
    assert time.monotonic() - started < 20


def test_row_43_without_a_subreaper_what_carries_the_sessions_id_is_ended(session):
    """Where the guard can't adopt orphans, as on macOS, a process without the id lives on."""
    session.write(f"{ESCAPE}\n{ANSWER}\n")
    pipe = os.pipe()
    guard = [sys.executable, "-I", "-c", GUARD_WITHOUT_SUBREAPER, process._GUARD, str(pipe[0])]
    variables = {**os.environ, "BUTLERS_SESSION_ID": str(uuid4())}
    with (session.folder / "output").open("w+b") as output:
        guarded = [*guard, session.folder / "private", session.program]
        options = {"cwd": session.folder, "env": variables, "pass_fds": pipe[:1], "stdout": output, "stderr": output}
        code = subprocess.run(guarded, **options, timeout=30, check=False).returncode
    for end in pipe:
        os.close(end)
    assert (code, (session.folder / "output").read_text()) == (0, "done\n")
    session.assert_all_ended(but="daemon-without-environment")


async def test_row_43_a_session_leaves_the_processes_of_another_alone(new_session):
    other = new_session()
    running = asyncio.ensure_future(other.run(WAIT))
    await asyncio.to_thread(other.wait_for_start)
    await new_session().run(ANSWER)
    with pytest.raises(SessionFailed):
        await new_session().run(KILL_GUARD)
    assert len(other.alive()) == 4
    running.cancel()
    await asyncio.wait({running})
    other.assert_all_ended()
