"""Queries of the dashboard on sessions and their tokens. They change nothing."""

from datetime import datetime
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.store.statements import statements
from butlers.modules.memory.store.viewing import Record

_sql = statements("viewing_sessions")


async def sessions(tx: Connection, caller: Caller, **conditions: Any) -> list[Record]:
    """Sessions that match, in the direction of a page."""
    return [dict(row) async for row in _sql.sessions(tx, tenant_id=caller.tenant, **conditions)]


async def session(tx: Connection, caller: Caller, session_id: UUID, max_characters: int) -> Record | None:
    """A session of the butler's runtime."""
    row = await _sql.session(tx, tenant_id=caller.tenant, id=session_id, max_characters=max_characters)
    return dict(row) if row else None


async def episodes_of(
    tx: Connection, caller: Caller, session_id: UUID, max_characters: int, limit: int
) -> list[Record]:
    """The episodes of a session, oldest first."""
    rows = _sql.episodes_of(
        tx, tenant_id=caller.tenant, session_id=session_id, max_characters=max_characters, max_rows=limit
    )
    return [dict(row) async for row in rows]


async def token_use(tx: Connection, caller: Caller, since: datetime, limit: int) -> list[Record]:
    """Tokens by day, butler and purpose since a time."""
    return [dict(row) async for row in _sql.token_use(tx, tenant_id=caller.tenant, since=since, max_rows=limit)]
