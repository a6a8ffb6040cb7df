"""Browser sessions of the dashboard: open, look up, end. Only hashes of their tokens are stored."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib import resources
from typing import Any
from uuid import UUID

import aiosql
import asyncpg

from butlers.caller import Caller
from butlers.db import Database, PlainConnection
from butlers.host import api_keys
from butlers.host.api_keys import hash_secret

LIFETIME = timedelta(days=7)
IDLE_LIMIT = timedelta(hours=12)
TICKET_LIFETIME = timedelta(seconds=60)
TICKET_PREFIX = "ticket_"
_TOUCH_INTERVAL = timedelta(minutes=1)
_IDLE_SECONDS = IDLE_LIMIT.total_seconds()
_queries: Any = aiosql.from_path(str(resources.files(__package__) / "sql" / "browser_sessions.sql"), "asyncpg")


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """An open session and the caller it belongs to."""

    id: UUID
    caller: Caller


async def open_session(database: Database, caller: Caller, key_id: UUID | None, expires_at: datetime | None) -> str:
    """Store a session of a caller and return its token; sessions of the tenant that ended are deleted."""
    latest = datetime.now(UTC) + LIFETIME
    async with database.transaction(caller) as tx:
        await _queries.delete_ended(tx, tenant_id=caller.tenant, idle_seconds=_IDLE_SECONDS)
        return await _insert(tx, caller, key_id, min(latest, expires_at or latest), is_ticket=False)


async def make_ticket(owner: PlainConnection, caller: Caller) -> str:
    """Store a one-time ticket of a caller and return it."""
    expires_at = datetime.now(UTC) + TICKET_LIFETIME
    return TICKET_PREFIX + await _insert(owner, caller, None, expires_at, is_ticket=True)


async def redeem_ticket(database: Database, butler: str, ticket: str) -> str | None:
    """Open the session of a ticket, once, and return its token; None if the ticket is unknown, used or expired."""
    token_hash = hash_secret(ticket.removeprefix(TICKET_PREFIX))
    row = await _find(database, token_hash)
    if row is None or not row["is_ticket"]:
        return None
    caller = _caller_of(row, butler)
    async with database.transaction(caller) as tx:
        if await _queries.redeem_ticket(tx, tenant_id=caller.tenant, token_hash=token_hash) is None:
            return None
        return await _insert(tx, caller, None, datetime.now(UTC) + LIFETIME, is_ticket=False)


async def find_session(database: Database, butler: str, token: str) -> BrowserSession | None:
    """Return the session of a token; None if it ended or the key it was opened with is no longer active."""
    row = await _find(database, hash_secret(token))
    if row is None or row["is_ticket"]:
        return None
    caller = _caller_of(row, butler)
    if row["key_id"] is not None:
        key = await api_keys.find_active_key_by_id(database, row["key_id"])
        if key is None:
            return None
        # The key's rights of now, not those it had at the login.
        caller = replace(caller, actor=key["actor"], roles=frozenset(key["roles"]), elevated=key["elevated"])
    if datetime.now(UTC) - row["last_seen_at"] > _TOUCH_INTERVAL:
        async with database.transaction(caller, durable=False) as tx:
            await _queries.touch_session(tx, tenant_id=caller.tenant, id=row["id"])
    return BrowserSession(row["id"], caller)


async def end_session(database: Database, caller: Caller, session_id: UUID) -> bool:
    """End a session of the caller's tenant; return whether it was open."""
    async with database.transaction(caller) as tx:
        return await _queries.end_session(tx, tenant_id=caller.tenant, id=session_id) is not None


async def list_sessions(database: Database, caller: Caller) -> Sequence[Mapping[str, Any]]:
    """Return the open sessions of the caller's tenant, the last used first."""
    async with database.transaction(caller) as tx:
        rows = _queries.list_sessions(tx, tenant_id=caller.tenant, idle_seconds=_IDLE_SECONDS)
        return [dict(row) async for row in rows]


async def _find(database: Database, token_hash: bytes) -> asyncpg.Record | None:
    return await database.fetch_row(_queries.find_session.sql, token_hash, _IDLE_SECONDS)


async def _insert(
    connection: Any, caller: Caller, key_id: UUID | None, expires_at: datetime, *, is_ticket: bool
) -> str:
    token = secrets.token_urlsafe(32)
    await _queries.insert_session(
        connection,
        tenant=caller.tenant,
        token_hash=hash_secret(token),
        is_ticket=is_ticket,
        actor=caller.actor,
        roles=sorted(caller.roles),
        elevated=caller.elevated,
        key_id=key_id,
        expires_at=expires_at,
    )
    return token


def _caller_of(row: asyncpg.Record, butler: str) -> Caller:
    return Caller(
        tenant=row["tenant_id"],
        butler=butler,
        actor=row["actor"],
        roles=frozenset(row["roles"]),
        elevated=row["elevated"],
    )
