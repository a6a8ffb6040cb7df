"""Fixtures for tests with the real agents: their installation, a home folder, a project and a butler."""

import asyncio
import fcntl
import os
import runpy
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from butlers import app
from butlers.environment import Environment
from cli.conftest import write_butler

INSTALLER = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "install_agents.py"))
FACT = "Darjeeling, the first flush"
Result = subprocess.CompletedProcess[str]


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder with the programs of the agents; one of the test workers installs them."""
    INSTALLER["FOLDER"].mkdir(parents=True, exist_ok=True)
    with (INSTALLER["FOLDER"] / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        reason = None if INSTALLER["is_installed"]() else INSTALLER["install"]()
    assert reason is None, f"the agents can't be installed: {reason}"
    return Path(INSTALLER["BIN"])


@pytest.fixture
def owner(tmp_path: Path) -> Path:
    """The home folder of the agents' user."""
    folder = tmp_path / "owner"
    folder.mkdir()
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The folder of a project, with a space in its path."""
    folder = tmp_path / "tea house"
    folder.mkdir()
    return folder


@pytest.fixture
def variables(programs: Path, owner: Path, home: Path) -> dict[str, str]:
    """The environment of the agents: nothing of the developer's own agents, no update, no telemetry."""
    return {
        "PATH": f"{programs}:{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": str(owner),
        "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
        "LANG": "C.UTF-8",
        "NO_PROXY": "127.0.0.1",
        "BUTLERS_HOME": str(home),
        "COLUMNS": "200",
    }


@pytest.fixture
def butler(tmp_path: Path, worker: str, tenant: str) -> Path:
    """The folder of a butler with a new tenant on the shared database."""
    return write_butler(tmp_path, f"agents-{worker}", f'[butler.auth]\ntenant = "{tenant}"\n')


Run = Callable[..., Awaitable[Result]]


@pytest.fixture
def run(variables: dict[str, str], project: Path) -> Run:
    """Run a program in the project with the agents' environment."""

    async def run(*words: object, **more: str) -> Result:
        start = partial(
            subprocess.run,
            [str(word) for word in words],
            cwd=project,
            env={**variables, **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        return await asyncio.to_thread(start)

    return run


@pytest.fixture
def butlers(run: Run) -> Run:
    """Run `butlers …`."""
    return partial(run, sys.executable, "-m", "butlers.cli")


@pytest.fixture
async def known_fact(butler: Path, environment: Environment) -> str:
    """A fact that the butler knows."""
    async with app.open_butler(app.load_configuration(butler), environment) as opened, app.open_server(opened):
        arguments = {"subject": "user", "predicate": "favourite_tea", "content": FACT}
        await opened.spawner.local_client.call(opened.caller(), "memory_store_fact", arguments)
    return FACT


@pytest.fixture
def episodes(butler: Path, environment: Environment) -> Callable[[int], Awaitable[list[dict[str, Any]]]]:
    """Wait until the butler has this many episodes, and return them."""

    async def read(count: int) -> list[dict[str, Any]]:
        async with app.open_butler(app.load_configuration(butler), environment) as opened:
            for _ in range(300):
                async with opened.database.transaction(opened.caller()) as tx:
                    rows = [dict(row) for row in await tx.fetch("select * from episodes order by created_at")]
                if len(rows) >= count:
                    return rows
                await asyncio.sleep(0.1)
        return rows

    return read


@pytest.fixture
def unused_port() -> int:
    """A port on which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
