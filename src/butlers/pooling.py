"""Detection of a pooler between butler and server, and of what survives in it between two transactions."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from uuid import uuid4

import asyncpg

from butlers.connector import Connector, ServerConnection

_PROBE_SECONDS = 2.0
_ROUNDS = 3
_BACKEND = "select pg_backend_pid()"


@dataclass(frozen=True, slots=True)
class Pooling:
    """What a connection keeps between two transactions."""

    is_pooled: bool = False
    """Whether a pooler answers instead of the server: settings then go with each transaction."""
    keeps_session: bool = True
    """Whether all transactions of a connection have the same server process."""
    keeps_statements: bool = True
    """Whether a prepared statement is there for the next transaction."""

    def __str__(self) -> str:
        if not self.is_pooled:
            return "no pooler"
        mode = "one that keeps a session" if self.keeps_session else "one that gives each transaction a connection"
        return f"behind a pooler, {mode}; prepared statements are {'' if self.keeps_statements else 'not '}used"


DIRECT = Pooling()


async def detect_pooling(connector: Connector) -> Pooling:
    """Find out what the connections of a URL keep: from one connection, and from a second one behind a pooler."""
    async with _open(connector) as first:
        if not await is_pooled(first):
            return DIRECT
        # Another client may have taken the first one's server process in between.
        for _ in range(_ROUNDS):
            found = await _compare(connector, first)
            if not found.keeps_session:
                break
        return found


@asynccontextmanager
async def _open(connector: Connector) -> AsyncIterator[ServerConnection]:
    """Yield a connection that prepares nothing by itself, and end it."""
    connection = await connector.connect(statement_cache_size=0)
    try:
        yield connection
    finally:
        connection.terminate()


async def is_pooled(connection: ServerConnection) -> bool:
    """Return whether a pooler answers: it gives its clients another key than the server process has."""
    async with connection.transaction():
        return bool(await connection.fetchval(_BACKEND) != connection.get_server_pid())


async def _compare(connector: Connector, first: ServerConnection) -> Pooling:
    """Look whether a second connection gets the server process of the first one, which is idle but open."""
    statement = await first.prepare(_BACKEND, name=f"butlers_{uuid4().hex}")
    before = await _backend(first)
    # The second may have to wait for a server connection, and in vain where the pooler has only one.
    with suppress(TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        async with asyncio.timeout(_PROBE_SECONDS), _open(connector) as second, second.transaction():
            if await second.fetchval(_BACKEND) != before:
                return Pooling(is_pooled=True)
            survives = False
            with suppress(TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                # Its process is taken: only a pooler that knows the statement has it elsewhere.
                survives = await statement.fetchval(timeout=_PROBE_SECONDS / 2) is not None
            return Pooling(is_pooled=True, keeps_session=False, keeps_statements=survives)
    return Pooling(is_pooled=True)


async def _backend(connection: ServerConnection) -> int:
    async with connection.transaction():
        return int(await connection.fetchval(_BACKEND))
