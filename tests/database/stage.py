"""What the tests of the database and of faults stand on: homes and butlers of their own, and real processes."""

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
    """A BUTLERS_HOME of its own, whose server and files are gone afterwards.

    Not below pytest's own folder, which is closed to the user the server runs as when the tests run as root.
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
    """A butler's folder; each has a name, and so a database, of its own."""
    name = name or new_name()
    folder = at / name
    folder.mkdir(exist_ok=True)
    modules = "[modules.memory]\nenabled = true\n" + ("[modules.probe]\nenabled = true\n" if probe else "")
    (folder / "butler.toml").write_text(f'[butler]\nname = "{name}"\nport = 0\n{extra}\n{modules}')
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
    """The server process of that home, as the process table shows it."""
    data = str(home / "postgres" / "data")
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or [""]
        if Path(command[0]).name == "postgres" and data in command:
            return process
    return None


def servers(home: Path) -> int:
    """How many server processes that home has."""
    data = str(home / "postgres" / "data")
    commands = [process.info["cmdline"] or [""] for process in psutil.process_iter(["cmdline"])]
    return sum(Path(command[0]).name == "postgres" and data in command for command in commands)


def kill_postmaster(home: Path) -> int:
    """End the server as a crash would; its children notice and follow."""
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


def wait_until(true: Callable[[], object], what: str, seconds: float = 30) -> None:
    give_up = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < give_up, f"waited in vain for {what}"
        time.sleep(0.02)


async def eventually(true: Callable[[], Any], what: str, seconds: float = 30) -> None:
    """The same for conditions that have to be asked for."""
    give_up = time.monotonic() + seconds
    while not await true():
        assert time.monotonic() < give_up, f"waited in vain for {what}"
        await asyncio.sleep(0.05)


@dataclass
class Process:
    """A program of ours in a process of its own; it is told things on stdin and its lines are read from files."""

    popen: "subprocess.Popen[str]"
    out: Path
    err: Path

    def line(self, start: str, seconds: float = 40) -> str:
        """What follows `start` on the line that begins with it, once there is one."""
        give_up = time.monotonic() + seconds
        while time.monotonic() < give_up:
            ended = self.popen.poll() is not None
            for line in (self.err.read_text() + self.out.read_text()).splitlines():
                if line.startswith(start):
                    return line.removeprefix(start)
            if ended:
                break
            time.sleep(0.02)
        raise AssertionError(f"never said {start!r}:\n{self.err.read_text()}\n{self.out.read_text()}")

    def ready(self) -> str:
        """The address a butler serves, once it does."""
        return self.line("ready: ")

    def go_on(self) -> None:
        """Let a program that waits for stdin to end go on."""
        assert self.popen.stdin
        self.popen.stdin.close()

    def end(self, number: int = signal.SIGTERM, seconds: float = 40) -> int:
        """Its exit code after that signal."""
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        return self.popen.wait(seconds)


WRITING = "select count(*) from pg_stat_activity where datname = current_database() and query like '%pg_sleep($1)%'"


@dataclass
class Served:
    """A running butler with the probe, and its database as an administrator sees it."""

    process: Process
    address: str
    admin_dsn: str

    async def call(self, tool: str, **arguments: Any) -> Any:
        async with Client(self.address) as client:
            # Known beforehand, so that the answer can be judged without asking a butler that has stopped by then.
            await client.list_tools()
            return await client.call_tool(tool, arguments, raise_on_error=False)

    async def ask(self, question: str) -> Any:
        async with connected(self.admin_dsn) as connection:
            return await connection.fetchval(question)

    async def writing(self) -> bool:
        """Whether a call is inside its transaction now."""
        return bool(await self.ask(f"{WRITING} and state = 'active' and pid <> pg_backend_pid()"))

    async def rows(self) -> int:
        return int(await self.ask("select count(*) from probe_rows"))

    async def open_transactions(self) -> int:
        return int(
            await self.ask(
                "select count(*) from pg_stat_activity"
                " where datname = current_database() and usename <> current_user and xact_start is not null"
            )
        )

    async def health(self) -> tuple[int, dict[str, Any]]:
        return await asyncio.to_thread(_health, self.address.removesuffix("/mcp") + "/health")


def _health(address: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310 — our own butler
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)


@dataclass
class Processes:
    """Starts programs and butlers in processes of their own, and ends what is left of them."""

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
        """`butlers run`, or the same with the probe."""
        program = ["-m", "probe"] if probe else ["-m", "butlers.cli", "run"]
        return self.python(*program, str(folder), *arguments, BUTLERS_HOME=str(home), **variables)

    def holder(self, home: Path) -> Process:
        """A process that holds the embedded server until its stdin ends."""
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
from butlers import embedded

async def system():
    connection = await asyncpg.connect(cluster.dsn("postgres"))
    try:
        return await connection.fetchval("select system_identifier::text from pg_control_system()")
    finally:
        await connection.close()

cluster = embedded.acquire(Path(sys.argv[1]))
print("holding:", asyncio.run(system()), flush=True)
sys.stdin.read()
print("stopped:", cluster.release(), flush=True)
"""
