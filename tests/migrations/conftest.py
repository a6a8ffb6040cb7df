"""A server, a migrated template, and a fresh database for each test that writes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from butlers import embedded_server, migrate
from butlers.host.migrations import CORE
from butlers.modules.memory.migrations import MEMORY

BRANCHES = (CORE, MEMORY)
OWNER = "the owner"  # with a blank, so that a name that is not quoted fails
APP = "the app"


@pytest.fixture(scope="session")
def server_dsn(cluster: embedded_server.Cluster) -> str:
    """A superuser's DSN of the server all test workers share."""
    return cluster.dsn("postgres")


@dataclass
class Server:
    """Makes databases, empty or as copies of the migrated one."""

    dsn: str
    worker: str
    numbers: Iterator[int] = field(default_factory=count)

    def database(self, name: str) -> str:
        return urlunsplit(urlsplit(self.dsn)._replace(path=f"/{name}"))

    async def create(self, template: str = "template1") -> str:
        name = f"migrations_{self.worker}_{next(self.numbers)}"
        connection = await asyncpg.connect(self.dsn)
        try:
            await connection.execute(f'create database {name} template {template} owner "{OWNER}"')
        finally:
            await connection.close()
        return self.database(name)

    async def drop(self, dsn: str) -> None:
        """Gone at once: what is left over would all be written to disk when the server stops."""
        connection = await asyncpg.connect(self.dsn)
        try:
            await connection.execute(f"drop database {urlsplit(dsn).path.lstrip('/')} with (force)")
        finally:
            await connection.close()


@pytest.fixture(scope="session")
async def server(server_dsn: str, worker: str) -> Server:
    connection = await asyncpg.connect(server_dsn)
    for role in (f'"{OWNER}" nologin', f'"{APP}" login'):
        # Roles belong to the server, and another worker may have been first.
        with suppress(asyncpg.DuplicateObjectError, asyncpg.UniqueViolationError):
            await connection.execute(f"create role {role}")
    await connection.close()
    return Server(server_dsn, worker)


@pytest.fixture(scope="session")
async def template(server: Server) -> str:
    """The name of a database at head that nobody is connected to."""
    dsn = await server.create()
    await migrate.upgrade(dsn, BRANCHES, app_role=APP, owner=OWNER)
    return urlsplit(dsn).path.lstrip("/")


@pytest.fixture(scope="session")
async def blank(server: Server) -> str:
    """An empty database for what fails: the next test finds it as empty as it was."""
    return await server.create()


@pytest.fixture
async def empty(server: Server) -> AsyncIterator[str]:
    dsn = await server.create()
    yield dsn
    await server.drop(dsn)


@pytest.fixture
async def migrated(server: Server, template: str) -> AsyncIterator[str]:
    dsn = await server.create(template)
    yield dsn
    await server.drop(dsn)


@pytest.fixture(scope="session")
async def schema(server: Server, template: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """A connection to look at the migrated schema with; nothing is written through it for good."""
    connection = await asyncpg.connect(await server.create(template))
    yield connection
    await connection.close()


@asynccontextmanager
async def connected(dsn: str, role: str | None = None) -> AsyncIterator[asyncpg.Connection[Any]]:
    """A connection that is closed again, acting as the role; no role is the superuser."""
    connection = await asyncpg.connect(dsn)
    try:
        if role is not None:
            await connection.execute(f'set role "{role}"')
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def tenant(connection: asyncpg.Connection[Any], name: str) -> AsyncIterator[None]:
    """A transaction of one tenant."""
    async with connection.transaction():
        await connection.execute("select set_config('app.tenant_id', $1, true)", name)
        yield
