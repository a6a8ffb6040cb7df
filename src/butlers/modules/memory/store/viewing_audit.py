"""Queries of the audit page on the memory_events table."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.store.statements import statements

_sql = statements("viewing_audit")
_MAX_NAME_CHARACTERS = 200

Record = Mapping[str, Any]


async def events(tx: Connection, caller: Caller, **conditions: Any) -> list[Record]:
    """Events that match, in the direction of a page."""
    return [dict(row) async for row in _sql.events(tx, tenant_id=caller.tenant, **conditions)]


async def last_scanned_event(tx: Connection, caller: Caller, **conditions: Any) -> Record | None:
    """The last event that `events` looks at, if it stops there."""
    row: Record | None = await _sql.last_scanned_event(tx, tenant_id=caller.tenant, **conditions)
    return row


async def event_facets(tx: Connection, caller: Caller, **conditions: Any) -> list[Record]:
    """The number of matches among the newest events, in all and by facet."""
    return [dict(row) async for row in _sql.event_facets(tx, tenant_id=caller.tenant, **conditions)]


async def names(tx: Connection, caller: Caller, ids: Sequence[UUID]) -> dict[UUID, str]:
    """The present names of these memories and entities; a deleted one is missing."""
    rows = _sql.names(tx, tenant_id=caller.tenant, ids=list(ids), max_characters=_MAX_NAME_CHARACTERS)
    return {row["id"]: row["name"] async for row in rows}
