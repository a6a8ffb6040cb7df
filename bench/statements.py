"""Recording of the SQL statements that a call sends, and their replay on a plain connection."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from asyncpg.connection import LoggedQuery

from butlers.app import Butler
from butlers.db import Database

Statement = tuple[str, tuple[Any, ...]]


@asynccontextmanager
async def record_statements(database: Database) -> AsyncIterator[list[Statement]]:
    """The statements, including those of transactions, that a single caller sends inside the block."""
    statements: list[Statement] = []

    def append(query: LoggedQuery) -> None:
        statements.append((query.query, tuple(query.args or ())))

    # The pool hands out the connection that was used last, so a single caller always gets the same one.
    async with database._connection() as connection:  # noqa: SLF001
        connection.add_query_logger(append)
    try:
        yield statements
    finally:
        async with database._connection() as connection:  # noqa: SLF001
            connection.remove_query_logger(append)


async def replay(connection: Any, statements: list[Statement]) -> None:
    """Send the statements again, one after the other."""
    for query, arguments in statements:
        if arguments:
            await connection.fetch(query, *arguments)
        else:
            await connection.execute(query)


@asynccontextmanager
async def plain_connection(butler: Butler) -> AsyncIterator[Any]:
    """A connection from the butler's pool."""
    async with butler.database._connection() as connection:  # noqa: SLF001
        yield connection
