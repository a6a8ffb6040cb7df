"""Queries on distilled memories that nobody looked at."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.store.statements import statements

_sql = statements("looking")
_UNLOOKED = {MemoryType.FACT: _sql.unlooked_facts, MemoryType.RULE: _sql.unlooked_rules}
MAX_SCANNED = 1_000


class Position(NamedTuple):
    """A position in a list by creation, newest first."""

    created_at: datetime
    id: UUID


async def unlooked(
    tx: Connection, caller: Caller, memory_type: MemoryType, after: Position | None, limit: int
) -> list[Position]:
    """Distilled live memories of a type without support that nobody looked at, newest first."""
    rows = _UNLOOKED[memory_type](
        tx,
        tenant_id=caller.tenant,
        max_scanned=MAX_SCANNED,
        before_created_at=after.created_at if after else None,
        before_id=after.id if after else None,
        max_rows=limit,
    )
    return [Position(row["created_at"], row["id"]) async for row in rows]
