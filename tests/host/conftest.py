"""Butlers with the probe, in this process and in others."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from probe import MODULES

from butlers import app
from butlers.config import Environment
from butlers.host.server import Server

TESTS = Path(__file__).parent.parent


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """Writes a butler's folder; each has a name, and so a database, of its own."""

    def write(extra: str = "", *, memory: bool = True, probe: bool = True, name: str | None = None) -> Path:
        name = name or f"t{uuid.uuid4().hex[:12]}"
        place = tmp_path / name
        place.mkdir(exist_ok=True)
        modules = ("[modules.memory]\nenabled = true\n" if memory else "") + (
            "[modules.probe]\nenabled = true\n" if probe else ""
        )
        (place / "butler.toml").write_text(f'[butler]\nname = "{name}"\nport = 0\n{extra}\n{modules}')
        return place

    return write


Running = Callable[[Path], AbstractAsyncContextManager[Server]]


@pytest.fixture
def running(environment: Environment) -> Running:
    """Runs a butler in this process and gives its server."""

    @asynccontextmanager
    async def run(place: Path) -> AsyncIterator[Server]:
        config = app.configuration(place, MODULES)
        async with app.opened(config, environment, MODULES) as butler, app.serving(butler) as server:
            yield server

    return run


@dataclass
class Process:
    """A butler in a process of its own."""

    popen: "subprocess.Popen[str]"
    log: Path

    def ready(self, seconds: float = 30) -> str:
        """The address it serves, once it does."""
        import time

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
        """Its exit code after that signal."""
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        return self.popen.wait(seconds)


@pytest.fixture
def process(home: Path, cluster: object, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Starts butlers in processes of their own and ends what is left of them."""
    started: list[Process] = []

    def start(place: Path, *arguments: str, probe: bool = True, **variables: str) -> Process:
        program = ["-m", "probe"] if probe else ["-m", "butlers.cli", "run"]
        log = tmp_path / f"{len(started)}.log"
        environment = {**os.environ, "BUTLERS_HOME": str(home), "PYTHONPATH": str(TESTS), **variables}
        with log.open("w") as stderr:
            popen = subprocess.Popen(
                [sys.executable, *program, str(place), *arguments],
                env=environment,
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
