"""Fixtures: a memory with its own database and the real model, and new tenants for each test."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport

from butlers import app
from butlers.app import Butler
from butlers.caller import Caller
from butlers.environment import Environment
from butlers.host import api_keys
from butlers.modules.memory.embedding import EmbeddingEngine, get_embedding_engine
from butlers.modules.memory.runtime import Memory
from database.butler_processes import Processes, connected
from memory.memory_fixtures import Archive, Tools, build_tenant_server, new_caller, serve_http, write_butler


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
    """A butler with an open database and the full toolset."""
    async with app.open_butler(app.load_configuration(place), environment) as opened:
        yield opened


@pytest.fixture(scope="session")
def memory(butler: Butler, engine: EmbeddingEngine) -> Memory:
    """The butler's memory, with the engine of this test run."""
    state: Memory = butler.modules[0].state
    return replace(state, embedder=engine)


@pytest.fixture(scope="session")
async def archive(butler: Butler) -> AsyncIterator[Archive]:
    """The rows of all tenants, as the administrator reads and changes them."""
    assert butler.location.admin_dsn
    async with connected(butler.location.admin_dsn) as connection:
        yield Archive(connection)


@pytest.fixture
def caller(memory: Memory) -> Caller:
    """A caller in a new tenant."""
    return new_caller(memory)


@pytest.fixture
async def tools(butler: Butler, memory: Memory, caller: Caller) -> AsyncIterator[Tools]:
    """The tools as an agent of that tenant calls them."""
    async with Client(build_tenant_server(butler, memory, caller.tenant).mcp) as client:
        yield Tools(client, caller.tenant)


@pytest.fixture
async def stranger(butler: Butler, memory: Memory) -> AsyncIterator[Tools]:
    """The tools as an agent of another tenant calls them."""
    tenant = f"t-{uuid4().hex}"
    async with Client(build_tenant_server(butler, memory, tenant).mcp) as client:
        yield Tools(client, tenant)


@pytest.fixture(scope="session")
async def address_with_keys(butler, memory):
    """The address of a butler whose callers need a key."""
    async with serve_http(build_tenant_server(butler, memory, "nobody", mode="keys")) as address:
        yield address


@pytest.fixture
def tools_with_key(address_with_keys, archive):
    """The tools over HTTP with a new key."""

    @asynccontextmanager
    async def open_tools(tenant: str, **options):
        _, key = await api_keys.create_key(
            archive.connection, api_keys.NewKey(tenant=tenant, actor="robot", **options)
        )
        headers = {"Authorization": f"Bearer {key}", "X-Request-Id": "request-1"}
        async with Client(StreamableHttpTransport(address_with_keys, headers=headers)) as client:
            yield Tools(client, tenant)

    return open_tools


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Programs in their own processes; they end with the test."""
    started = Processes(tmp_path)
    yield started
    started.end()


@pytest.fixture(scope="session")
async def loop() -> asyncio.AbstractEventLoop:
    """The event loop of the test session, for tests that are not coroutines."""
    return asyncio.get_running_loop()
