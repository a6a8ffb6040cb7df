"""Queries on memories that wait for a person's judgement."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.store.statements import statements

_sql = statements("review")
MAX_OLDEST = 1_000
"""Memories of each permanence that are looked at for fading."""


async def fading(
    tx: Connection, caller: Caller, fading_below: float, days: int, limit: int
) -> list[tuple[MemoryType, UUID]]:
    """Live facts and rules that fade within so many days, the most important first."""
    rows = _sql.fading(
        tx, tenant_id=caller.tenant, fading_below=fading_below, days=days, max_oldest=MAX_OLDEST, max_rows=limit
    )
    return [(MemoryType(row["memory_type"]), row["id"]) async for row in rows]


async def harmful(tx: Connection, caller: Caller, limit: int) -> list[tuple[MemoryType, UUID]]:
    """Rules that did harm, or await inversion, since somebody looked at them."""
    return [(MemoryType.RULE, row["id"]) async for row in _sql.harmful(tx, tenant_id=caller.tenant, max_rows=limit)]


async def dead_letters(tx: Connection, caller: Caller, limit: int) -> list[tuple[MemoryType, UUID]]:
    """Episodes that consolidation gave up on, the oldest first."""
    rows = _sql.dead_letters(tx, tenant_id=caller.tenant, max_rows=limit)
    return [(MemoryType.EPISODE, row["id"]) async for row in rows]


async def next_to_fade(tx: Connection, caller: Caller, fading_below: float) -> Mapping[str, Any] | None:
    """The live fact that fades next, and when."""
    row = await _sql.next_to_fade(
        tx, tenant_id=caller.tenant, fading_below=max(fading_below, 1e-9), max_oldest=MAX_OLDEST
    )
    return dict(row) if row else None
