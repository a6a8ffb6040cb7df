"""Fixtures for butlers with the probe module, in this process and in others."""

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import asyncpg
import httpx2
import pytest

from butlers import app, embedded_server
from butlers.environment import Environment
from butlers.host import api_keys, http, logs
from butlers.host.connections import limits_from_config
from butlers.host.server import Server, http_app
from claude import cli, owner, standing  # noqa: F401 — fixtures for tests with the real CLI
from host.session_fixtures import RunningButler, open_running_butler
from probe import MODULES

TESTS = Path(__file__).parent.parent


@pytest.fixture
def folder(tmp_path: Path, worker: str) -> Callable[..., Path]:
    """Write a butler's folder. All share one name and database; `fresh` creates another."""

    def write(
        extra: str = "", *, memory: bool = True, probe: bool = True, probing: str = "", fresh: bool = False
    ) -> Path:
        name = f"t{uuid.uuid4().hex[:12]}" if fresh else f"shared_{worker}"
        place = tmp_path / uuid.uuid4().hex[:8]
        place.mkdir()
        modules = ("[modules.memory]\nenabled = true\n" if memory else "") + (
            f"[modules.probe]\nenabled = true\n{probing}\n" if probe else ""
        )
        text = f'[butler]\nname = "{name}"\nport = 0\n{extra}\n{modules}'
        (place / "butler.toml").write_text(without_draining(text))
        return place

    return write


def without_draining(text: str) -> str:
    """Return the configuration of a butler that stops at once; one with limits of its own stays as it is."""
    return text if "[butler.limits]" in text else f"{text}\n[butler.limits]\ndrain_seconds = 0\n"


Running = Callable[..., AbstractAsyncContextManager[Server]]


@pytest.fixture
def running(environment: Environment) -> Running:
    """Start a butler in this process and yield its server."""

    @asynccontextmanager
    async def run(place: Path, modules=MODULES, env: Environment = environment) -> AsyncIterator[Server]:
        config = app.load_configuration(place, modules)
        async with app.open_butler(config, env, modules) as butler, app.open_server(butler) as server:
            yield server

    return run


Hosting = Callable[..., AbstractAsyncContextManager[RunningButler]]


@pytest.fixture
def hosting(environment: Environment) -> Hosting:
    """Start a butler in this process and yield it with its sessions."""

    def run(place: Path, env: Environment = environment, **options) -> AbstractAsyncContextManager[RunningButler]:
        return open_running_butler(place, env, **options)

    return run


@dataclass
class Site:
    """A butler in this process with an HTTP port."""

    url: str
    server: Server

    @property
    def mcp(self) -> str:
        return f"{self.url}/mcp"

    async def send(self, method: str, path: str, **options) -> httpx2.Response:
        async with httpx2.AsyncClient(timeout=20) as client:
            return await client.request(method, f"{self.url}{path}", **options)

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        return await self.send("GET", path, headers={name.replace("_", "-"): text for name, text in headers.items()})

    async def call(self, credential: str | None = None, tool: str = "probe_whoami", **arguments) -> httpx2.Response:
        """Send one tool call as a plain POST."""
        message = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": tool, "arguments": arguments},
        }
        headers = {"Accept": "application/json, text/event-stream"}
        if credential is not None:
            headers["Authorization"] = f"Bearer {credential}"
        return await self.send("POST", "/mcp", json=message, headers=headers)


@pytest.fixture
def listening(running: Running) -> Callable[..., AbstractAsyncContextManager[Site]]:
    """Start a butler in this process on a real HTTP port."""

    @asynccontextmanager
    async def run(place: Path, **options) -> AsyncIterator[Site]:
        async with running(place, **options) as server:
            limits = limits_from_config(server.config)
            with http.bind_socket("127.0.0.1", 0) as socket:
                async with http.serve_in_background(http_app(server), socket, limits):
                    yield Site(f"http://127.0.0.1:{socket.getsockname()[1]}", server)

    return run


@dataclass
class Keyring:
    """Creates and revokes keys of the shared butler."""

    owner: asyncpg.Connection

    async def make(self, tenant: str = "acme", **options) -> str:
        return (await api_keys.create_key(self.owner, api_keys.NewKey(tenant=tenant, actor="robot", **options)))[1]

    async def end(self, key: str) -> None:
        await api_keys.revoke_key(self.owner, uuid.UUID(key.split("_")[1]))


@pytest.fixture
def keyring(cluster: embedded_server.Cluster, worker: str) -> Callable[[], AbstractAsyncContextManager[Keyring]]:
    """Open the keyring of the shared butler, which must have been started before."""

    @asynccontextmanager
    async def open_running_butler() -> AsyncIterator[Keyring]:
        connection = await asyncpg.connect(cluster.dsn(f"butler_shared_{worker}"))
        try:
            yield Keyring(connection)
        finally:
            await connection.close()

    return open_running_butler


@dataclass
class Wire:
    """A TCP proxy to the database server that can be cut."""

    socket: Path
    port: int = 0
    _server: asyncio.Server | None = None
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    async def join(self) -> None:
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._open:
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(str(self.socket))
        self._open |= {writer, back}
        await asyncio.gather(_copy(reader, back), _copy(there, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@pytest.fixture
async def wire(cluster: embedded_server.Cluster) -> AsyncIterator[Wire]:
    """A TCP proxy to the embedded server."""
    made = Wire(cluster.sockets / ".s.PGSQL.5432")
    await made.join()
    yield made
    await made.cut()


@pytest.fixture
def by_wire(home: Path, cluster: embedded_server.Cluster, worker: str, wire: Wire) -> Environment:
    """The environment of a butler that reaches the shared database through `wire`."""
    database = f"butler_shared_{worker}"
    return Environment(
        home=home,
        database_url=f"postgresql://{quote(database)}_app@127.0.0.1:{wire.port}/{database}?sslmode=disable",
        admin_database_url=cluster.dsn(database),
        log_level="warning",
        log_format="console",
    )


@dataclass
class Process:
    """A butler in its own process."""

    popen: "subprocess.Popen[str]"
    log: Path

    def ready(self, seconds: float = 60) -> str:
        """Return the address once the butler serves it."""
        give_up = time.monotonic() + seconds
        while time.monotonic() < give_up:
            for line in self.log.read_text().splitlines():
                if line.startswith("ready: "):
                    return line.removeprefix("ready: ")
            if self.popen.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError(f"not ready:\n{self.log.read_text()}")

    def end(self, number: int = signal.SIGTERM, seconds: float = 30) -> int:
        """Send the signal and return the exit code."""
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        return self.popen.wait(seconds)


@pytest.fixture
def variables(home: Path, cluster: object) -> dict[str, str]:
    """The environment variables of a butler process."""
    return {**os.environ, "BUTLERS_HOME": str(home), "PYTHONPATH": str(TESTS)}


@pytest.fixture
def process(variables: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Start butler processes, and kill them after the test."""
    started: list[Process] = []

    def start(place: Path, *arguments: str, probe: bool = True, **more: str) -> Process:
        program = ["-m", "probe"] if probe else ["-m", "butlers.cli", "run"]
        log = tmp_path / f"{len(started)}.log"
        with log.open("w") as stderr:
            popen = subprocess.Popen(
                [sys.executable, *program, str(place), *arguments],
                env={**variables, **more},
                stderr=stderr,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        started.append(Process(popen, log))
        return started[-1]

    yield start
    for each in started:
        each.end(signal.SIGKILL)
        for stream in (each.popen.stdin, each.popen.stdout):
            if stream:
                stream.close()


@pytest.fixture
def logging_as(capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[[str, str], None]]:
    """Configure logging as a butler does, and restore it after the test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield logs.configure_logging
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("butlers").setLevel(logging.NOTSET)
