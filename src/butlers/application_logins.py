"""Logins of the application roles that butlers make: stored in the database, where only the owner reads them.

The administrator's password may change at any time. Processes that run with the old one go on, because the
application's does not depend on it.
"""

from typing import NamedTuple

import asyncpg

from butlers.db import PlainConnection
from butlers.migrate import quote_identifier

PRIVATE_SCHEMA = "butlers_private"
_TABLE = f"{PRIVATE_SCHEMA}.application_logins"
_CREATE_TABLE = f"""
    create table if not exists {_TABLE} (
        butler text primary key,
        role name not null,
        password text not null,
        created_at timestamptz not null default now()
    )
"""


class ApplicationLogin(NamedTuple):
    """The role that serves the calls of one butler on one database."""

    role: str
    password: str | None


async def create_login_table(connection: PlainConnection, owner: str) -> bool:
    """Create the owner's schema and table unless they exist; return False if the connected role may not."""
    if await connection.fetchval("select to_regclass($1) is not null", _TABLE):
        return True
    try:
        async with connection.transaction():
            role = quote_identifier(owner)
            await connection.execute(f"create schema if not exists {PRIVATE_SCHEMA} authorization {role}")
            await _run_as(connection, owner, _CREATE_TABLE)
    except asyncpg.InsufficientPrivilegeError:
        return False
    return True


async def find_login(connection: PlainConnection, owner: str, butler: str) -> ApplicationLogin | None:
    """Return the stored login of a butler."""
    statement = f"select role::text, password from {_TABLE} where butler = $1"  # noqa: S608 — a constant
    rows = await _run_as(connection, owner, statement, butler)
    return ApplicationLogin(rows[0]["role"], rows[0]["password"]) if rows else None


async def store_login(connection: PlainConnection, owner: str, butler: str, login: ApplicationLogin) -> None:
    """Store the login of a butler."""
    statement = f"insert into {_TABLE} (butler, role, password) values ($1, $2, $3)"  # noqa: S608
    await _run_as(connection, owner, statement, butler, *login)


async def _run_as(
    connection: PlainConnection, owner: str, statement: str, *arguments: object
) -> list[asyncpg.Record]:
    """Run a statement as the owner, inside the caller's transaction."""
    await connection.execute(f"set local role {quote_identifier(owner)}")
    rows = await connection.fetch(statement, *arguments)
    await connection.execute("set local role none")
    return rows
