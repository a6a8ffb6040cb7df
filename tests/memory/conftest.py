"""A memory on a database of its own, with the real model; each test has tenants of its own."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from fastmcp import Client

from butlers import app
from butlers.app import Butler
from butlers.caller import Caller
from butlers.environment import Environment
from butlers.modules.memory.embedding import EmbeddingEngine, get_embedding_engine
from butlers.modules.memory.runtime import Memory
from database.stage import Processes, connected
from memory.stage import Archive, Tools, served, write_butler


@pytest.fixture(scope="session")
def engine(home: Path) -> EmbeddingEngine:
    """The real embedding engine."""
    return get_embedding_engine(home)


@pytest.fixture(scope="session")
def place(worker: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of this worker's butler."""
    return write_butler(tmp_path_factory.mktemp("memory"), f"memory_{worker}")


@pytest.fixture(scope="session")
async def butler(place: Path, environment: Environment) -> AsyncIterator[Butler]:
    """A butler with its database open, the further tools included."""
    async with app.open_butler(app.load_configuration(place), environment) as opened:
        yield opened


@pytest.fixture(scope="session")
def memory(butler: Butler, engine: EmbeddingEngine) -> Memory:
    """Its memory, with the engine of this test run."""
    state: Memory = butler.modules[0].state
    return replace(state, embedder=engine)


@pytest.fixture(scope="session")
async def archive(butler: Butler) -> AsyncIterator[Archive]:
    """Every tenant's rows, as the administrator sees and ages them."""
    assert butler.place.admin_dsn
    async with connected(butler.place.admin_dsn) as connection:
        yield Archive(connection)


@pytest.fixture
def caller(memory: Memory) -> Caller:
    """Somebody in a tenant nobody else uses."""
    return Caller(tenant=f"t-{uuid4().hex}", butler=memory.butler, actor="somebody")


@pytest.fixture
async def tools(butler: Butler, memory: Memory, caller: Caller) -> AsyncIterator[Tools]:
    """The tools as an agent of that tenant calls them."""
    async with Client(served(butler, memory, caller.tenant).mcp) as client:
        yield Tools(client, caller.tenant)


@pytest.fixture
async def stranger(butler: Butler, memory: Memory) -> AsyncIterator[Tools]:
    """The tools as an agent of another tenant calls them."""
    tenant = f"t-{uuid4().hex}"
    async with Client(served(butler, memory, tenant).mcp) as client:
        yield Tools(client, tenant)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Programs in processes of their own; whatever is left of them ends with the test."""
    started = Processes(tmp_path)
    yield started
    started.end()


@pytest.fixture(scope="session")
async def loop() -> asyncio.AbstractEventLoop:
    """The loop everything of this session lives on, for tests that are no coroutines."""
    return asyncio.get_running_loop()
