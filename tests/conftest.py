"""One embedded server for all test workers, and butlers on databases of their own."""

import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from butlers import embedded_server
from butlers.environment import Environment

sys.path.insert(0, str(Path(__file__).parent))

pytest_plugins = ("rows",)


@pytest.fixture(scope="session")
def home() -> Path:
    """BUTLERS_HOME of this test run, the same for every worker.

    Not below pytest's own folder, which is closed to the user the server runs as when the tests run as root.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    return Path(tempfile.gettempdir()) / f"butlers-test-{run[:12]}"


@pytest.fixture(scope="session")
def cluster(home: Path) -> Iterator[embedded_server.Cluster]:
    """The embedded server, up for the whole run."""
    held = embedded_server.acquire(home)
    yield held
    if held.release():
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def environment(home: Path, cluster: embedded_server.Cluster) -> Environment:
    """What a butler of this test run finds in its environment."""
    return Environment(
        home=home, database_url=None, admin_database_url=None, log_level="warning", log_format="console"
    )


@pytest.fixture(scope="session")
def worker() -> str:
    """A name no other test worker uses."""
    return os.environ.get("PYTEST_XDIST_WORKER", "main")


@pytest.fixture
def tenant() -> str:
    """A tenant nobody else uses."""
    return f"t-{uuid.uuid4().hex}"


@pytest.fixture
async def admin(cluster: embedded_server.Cluster) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """The server's administrator, who sees everything."""
    connection = await asyncpg.connect(cluster.dsn("postgres"))
    yield connection
    await connection.close()
