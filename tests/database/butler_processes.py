"""Temporary homes, butler folders and real butler processes for the tests of the database and of faults."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import psutil
from fastmcp import Client

from butlers import app, embedded_server
from butlers.config import Configuration
from butlers.environment import Environment
from probe import MODULES

TESTS = Path(__file__).parent.parent
NOBODY = 65534


@contextmanager
def new_home(below: str = "") -> Iterator[Path]:
    """Yield a new BUTLERS_HOME; stop its server and delete its files afterwards.

    It is not in pytest's folder, which the server's user can't read when the tests run as root.
    """
    root = Path(tempfile.mkdtemp(prefix="butlers-home-"))
    home = root / below if below else root
    home.mkdir(parents=True, exist_ok=True)
    try:
        yield home
    finally:
        embedded_server._stop(home / "postgres" / "data")
        shutil.rmtree(root, ignore_errors=True)


def environment_of(home: Path, url: str | None = None, admin_url: str | None = None) -> Environment:
    return Environment(
        home=home, database_url=url, admin_database_url=admin_url, log_level="warning", log_format="console"
    )


def new_name() -> str:
    return f"t{uuid.uuid4().hex[:12]}"


def write_folder(at: Path, extra: str = "", *, name: str | None = None, probe: bool = True) -> Path:
    """Write a butler's folder; each has its own name and so its own database."""
    name = name or new_name()
    folder = at / name
    folder.mkdir(exist_ok=True)
    modules = "[modules.memory]\nenabled = true\n" + ("[modules.probe]\nenabled = true\n" if probe else "")
    # Most tests want a butler that stops at once.
    limits = "" if "[butler.limits]" in extra else "[butler.limits]\ndrain_seconds = 0\n"
    (folder / "butler.toml").write_text(f'[butler]\nname = "{name}"\nport = 0\n{extra}\n{modules}{limits}')
    return folder


def configured(at: Path, extra: str = "", *, name: str | None = None) -> Configuration:
    return app.load_configuration(write_folder(at, extra, name=name), MODULES)


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    connection = await asyncpg.connect(dsn, timeout=10)
    try:
        yield connection
    finally:
        await connection.close()


def postmaster(home: Path) -> psutil.Process | None:
    """Return the server process of a home, from the process table."""
    data = str(home / "postgres" / "data")
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or [""]
        if Path(command[0]).name == "postgres" and data in command:
            return process
    return None


def servers(home: Path) -> int:
    """Return the number of server processes of a home."""
    data = str(home / "postgres" / "data")
    commands = [process.info["cmdline"] or [""] for process in psutil.process_iter(["cmdline"])]
    return sum(Path(command[0]).name == "postgres" and data in command for command in commands)


def kill_postmaster(home: Path) -> int:
    """Kill the server, as a crash would, and return its pid; its children notice and exit."""
    process = postmaster(home)
    assert process is not None
    process.kill()
    wait_until(lambda: not is_alive(process.pid), "the server to be dead")
    return int(process.pid)


def is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_until(condition: Callable[[], object], what: str, seconds: float = 30) -> None:
    """Wait until `condition` is true; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"timed out waiting for {what}"
        time.sleep(0.02)


async def eventually(condition: Callable[[], Any], what: str, seconds: float = 30) -> None:
    """Wait until the asynchronous `condition` is true; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, f"timed out waiting for {what}"
        await asyncio.sleep(0.05)


@dataclass
class Process:
    """A Python program in its own process, with its output in files."""

    popen: "subprocess.Popen[str]"
    out: Path
    err: Path

    def line(self, start: str, seconds: float = 40) -> str:
        """Wait for a line of output that starts with `start` and return the rest of it."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            ended = self.popen.poll() is not None
            for line in (self.err.read_text() + self.out.read_text()).splitlines():
                if line.startswith(start):
                    return line.removeprefix(start)
            if ended:
                break
            time.sleep(0.02)
        raise AssertionError(f"never printed {start!r}:\n{self.err.read_text()}\n{self.out.read_text()}")

    def ready(self) -> str:
        """Wait until the butler serves and return its address."""
        return self.line("ready: ")

    def close_stdin(self) -> None:
        """Close stdin, for a program that waits for its end."""
        assert self.popen.stdin
        self.popen.stdin.close()

    def end(self, number: int = signal.SIGTERM, seconds: float = 40) -> int:
        """Send the signal and return the exit code."""
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        return self.popen.wait(seconds)


_PROBE_WRITES = (
    "select count(*) from pg_stat_activity where datname = current_database() and query like '%pg_sleep($1)%'"
)


@dataclass
class Served:
    """A running butler with the probe module, and its database as an administrator."""

    process: Process
    address: str
    admin_dsn: str

    async def call(self, tool: str, **arguments: Any) -> Any:
        async with Client(self.address) as client:
            # The client validates the answer with this list and can't fetch it from a butler that has stopped.
            await client.list_tools()
            return await client.call_tool(tool, arguments, raise_on_error=False)

    async def fetch_value(self, statement: str) -> Any:
        async with connected(self.admin_dsn) as connection:
            return await connection.fetchval(statement)

    async def is_writing(self) -> bool:
        """Whether a call is in its transaction now."""
        return bool(await self.fetch_value(f"{_PROBE_WRITES} and state = 'active' and pid <> pg_backend_pid()"))

    async def rows(self) -> int:
        return int(await self.fetch_value("select count(*) from probe_rows"))

    async def open_transactions(self) -> int:
        return int(
            await self.fetch_value(
                "select count(*) from pg_stat_activity"
                " where datname = current_database() and usename <> current_user and xact_start is not null"
            )
        )

    async def health(self) -> tuple[int, dict[str, Any]]:
        return await asyncio.to_thread(_health, self.address.removesuffix("/mcp") + "/health")


def _health(address: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310 — a butler of the test
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


@dataclass
class Processes:
    """Programs and butlers in their own processes; `end` kills those that still run."""

    logs: Path
    started: list[Process] = field(default_factory=list)

    def python(self, *arguments: str, **variables: str) -> Process:
        out, err = (self.logs / f"{len(self.started)}.{kind}" for kind in ("out", "err"))
        with out.open("w") as stdout, err.open("w") as stderr:
            popen = subprocess.Popen(
                [sys.executable, *arguments],
                env={**os.environ, "PYTHONPATH": str(TESTS), **variables},
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=stderr,
                text=True,
            )
        self.started.append(Process(popen, out, err))
        return self.started[-1]

    def butler(self, folder: Path, home: Path, *arguments: str, probe: bool = False, **variables: str) -> Process:
        """Start `butlers run`, or the same with the probe module."""
        program = ["-m", "probe"] if probe else ["-m", "butlers.cli", "run"]
        return self.python(*program, str(folder), *arguments, BUTLERS_HOME=str(home), **variables)

    def holder(self, home: Path) -> Process:
        """Start a process that uses the embedded server until its stdin is closed."""
        return self.python("-c", _HOLDER, str(home))

    def end(self) -> None:
        for process in self.started:
            process.end(signal.SIGKILL)
            if process.popen.stdin:
                process.popen.stdin.close()


_HOLDER = """
import asyncio, sys
from pathlib import Path
import asyncpg
from butlers import embedded_server

async def system():
    connection = await asyncpg.connect(cluster.dsn("postgres"))
    try:
        return await connection.fetchval("select system_identifier::text from pg_control_system()")
    finally:
        await connection.close()

cluster = embedded_server.acquire(Path(sys.argv[1]))
print("holding:", asyncio.run(system()), flush=True)
sys.stdin.read()
print("stopped:", cluster.release(), flush=True)
"""
