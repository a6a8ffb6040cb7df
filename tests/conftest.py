"""Fixtures for all tests: one embedded server for all workers, the environment, a tenant, the administrator."""

import asyncio
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

from server_settings import skip_fsync

pytest_plugins = ("fault_table",)


@pytest.fixture(scope="session")
def home() -> Path:
    """BUTLERS_HOME of this test run, the same for every worker.

    Not in pytest's folder: when the tests run as root, the server's user can't read that.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    return Path(tempfile.gettempdir()) / f"butlers-test-{run[:12]}"


@pytest.fixture(scope="session")
def cluster(home: Path) -> Iterator[embedded_server.Cluster]:
    """The embedded server, up for the whole run."""
    cluster = embedded_server.acquire(home)
    asyncio.run(skip_fsync(cluster))
    yield cluster
    if cluster.release():
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def environment(home: Path, cluster: embedded_server.Cluster) -> Environment:
    """The environment of the butlers of this test run."""
    return Environment(
        home=home, database_url=None, admin_database_url=None, log_level="warning", log_format="console"
    )


@pytest.fixture(scope="session")
def worker() -> str:
    """The unique name of this test worker."""
    return os.environ.get("PYTEST_XDIST_WORKER", "main")


@pytest.fixture
def tenant() -> str:
    """A unique tenant."""
    return f"t-{uuid.uuid4().hex}"


@pytest.fixture
async def admin(cluster: embedded_server.Cluster) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """A connection as the server's administrator."""
    connection = await asyncpg.connect(cluster.dsn("postgres"))
    yield connection
    await connection.close()
