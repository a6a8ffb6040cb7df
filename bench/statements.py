"""The statements a call sends to the database: written down once, and sent again without anything around them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from asyncpg.connection import LoggedQuery

from butlers.app import Butler
from butlers.db import Database

Statement = tuple[str, tuple[Any, ...]]


@asynccontextmanager
async def recorded(database: Database) -> AsyncIterator[list[Statement]]:
    """What a caller who is alone sends while the block lasts; transactions included."""
    said: list[Statement] = []

    def note(query: LoggedQuery) -> None:
        said.append((query.query, tuple(query.args or ())))

    # The pool hands out the connection that was used last: one caller after the other has the same one.
    async with database._connection() as connection:  # noqa: SLF001
        connection.add_query_logger(note)
    try:
        yield said
    finally:
        async with database._connection() as connection:  # noqa: SLF001
            connection.remove_query_logger(note)


async def replay(connection: Any, statements: list[Statement]) -> None:
    """Send the same again, one after the other."""
    for query, arguments in statements:
        if arguments:
            await connection.fetch(query, *arguments)
        else:
            await connection.execute(query)


@asynccontextmanager
async def plain_connection(butler: Butler) -> AsyncIterator[Any]:
    """A connection like those of the pool, for nobody else."""
    async with butler.database._connection() as connection:  # noqa: SLF001
        yield connection
