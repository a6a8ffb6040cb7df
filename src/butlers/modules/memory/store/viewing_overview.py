"""Queries of the dashboard's overview and system page. They change nothing."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.store.statements import statements
from butlers.modules.memory.store.viewing import Record

_sql = statements("viewing_overview")


async def has_memories(tx: Connection, caller: Caller) -> bool:
    """Whether the tenant has any memory or entity, in any state."""
    return bool(await _sql.has_memories(tx, tenant_id=caller.tenant))


async def confidence_bands(tx: Connection, caller: Caller, limit: int) -> Record:
    """The newest live facts by confidence, at most so many."""
    return dict(await _sql.confidence_bands(tx, tenant_id=caller.tenant, max_rows=limit))


async def rules_by_maturity(tx: Connection, caller: Caller, limit: int) -> Record:
    """Live rules by maturity, counted among at most so many."""
    return dict(await _sql.rules_by_maturity(tx, tenant_id=caller.tenant, max_rows=limit))


async def backlog(tx: Connection, caller: Caller, limit: int) -> Record:
    """Episodes that consolidation has not read, by age, and dead letters."""
    return dict(await _sql.backlog(tx, tenant_id=caller.tenant, max_rows=limit))


async def vital_fading(tx: Connection, caller: Caller, **filters: Any) -> list[Record]:
    """Live facts of great importance whose confidence is below a threshold at a time."""
    return [dict(row) async for row in _sql.vital_fading(tx, tenant_id=caller.tenant, **filters)]


async def harms(tx: Connection, caller: Caller, rules: Sequence[tuple[MemoryType, UUID]]) -> list[Record]:
    """These rules with their harmful marks, the most harmful first."""
    ids = [rule_id for _, rule_id in rules]
    return [dict(row) async for row in _sql.harms(tx, tenant_id=caller.tenant, ids=ids)]


async def created_by_day(
    tx: Connection, caller: Caller, event_type: str, since: datetime, limit: int
) -> dict[int, int]:
    """The number of events of a type, by days ago."""
    rows = _sql.created_by_day(tx, tenant_id=caller.tenant, event_type=event_type, since=since, max_rows=limit)
    return {row["days_ago"]: row["number"] async for row in rows}


async def tokens_by_day(tx: Connection, caller: Caller, since: datetime, limit: int) -> dict[int, int]:
    """The tokens of consolidation, by days ago."""
    rows = _sql.tokens_by_day(tx, tenant_id=caller.tenant, since=since, max_rows=limit)
    return {row["days_ago"]: row["tokens"] async for row in rows}


async def latest_events(tx: Connection, caller: Caller, since: datetime, limit: int) -> list[Record]:
    """The newest events since a time, with the memory or entity that each is about."""
    return [dict(row) async for row in _sql.latest_events(tx, tenant_id=caller.tenant, since=since, max_rows=limit)]


async def stale_vectors(tx: Connection, caller: Caller, version: UUID, limit: int) -> int:
    """Memories whose vector is missing or of another version, counted up to a maximum."""
    return int(await _sql.stale_vectors(tx, tenant_id=caller.tenant, version=version, max_rows=limit))
