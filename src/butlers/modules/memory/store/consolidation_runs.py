"""Queries on consolidation runs: what each read, created and confirmed, and the links it made."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.store.statements import statements

_sql = statements("consolidation_runs")
MAX_CHARACTERS = 2_000

Record = Mapping[str, Any]


async def list_runs(
    tx: Connection, caller: Caller, *, from_time: datetime | None, from_id: UUID | None, is_backward: bool, limit: int
) -> list[Record]:
    """Runs, newest first, after or before a position."""
    rows = _sql.list(
        tx,
        tenant_id=caller.tenant,
        from_time=from_time,
        from_id=from_id,
        is_backward=is_backward,
        max_rows=limit,
    )
    return [dict(row) async for row in rows]


async def get(tx: Connection, caller: Caller, run_id: UUID) -> Record | None:
    """One run, or None."""
    row = await _sql.get(tx, tenant_id=caller.tenant, id=run_id)
    return dict(row) if row else None


async def changes(tx: Connection, caller: Caller, run_id: UUID) -> list[Record]:
    """The memories that a run created or confirmed, long contents cut."""
    rows = _sql.changes(tx, tenant_id=caller.tenant, run_id=str(run_id), max_characters=MAX_CHARACTERS)
    return [dict(row) async for row in rows]


async def episodes(tx: Connection, caller: Caller, run_id: UUID) -> list[Record]:
    """The episodes that a run read, long contents cut."""
    rows = _sql.episodes(tx, tenant_id=caller.tenant, run_id=str(run_id), max_characters=MAX_CHARACTERS)
    return [dict(row) async for row in rows]


async def evidence(
    tx: Connection, caller: Caller, episode_ids: Sequence[UUID], memory_ids: Sequence[UUID]
) -> dict[UUID, list[UUID]]:
    """The episodes among these that each of the memories comes from or is supported by."""
    found: dict[UUID, list[UUID]] = {}
    rows = _sql.evidence(tx, tenant_id=caller.tenant, episode_ids=list(episode_ids), memory_ids=list(memory_ids))
    async for row in rows:
        found.setdefault(row["memory_id"], []).append(row["episode_id"])
    return found


async def withdrawn(tx: Connection, caller: Caller, run_id: UUID, memory_ids: Sequence[UUID]) -> set[UUID]:
    """The memories whose confirmation by the run was taken back."""
    rows = _sql.withdrawn(tx, tenant_id=caller.tenant, run_id=str(run_id), memory_ids=list(memory_ids))
    return {row["id"] async for row in rows}


async def delete_support(
    tx: Connection,
    caller: Caller,
    memory_type: str,
    memory_id: UUID,
    episode_ids: Sequence[UUID],
    created_at: datetime,
) -> list[dict[str, str]]:
    """Delete the links of that time from episodes to a memory they support; returns them."""
    rows = _sql.delete_support(
        tx,
        tenant_id=caller.tenant,
        memory_type=memory_type,
        memory_id=memory_id,
        episode_ids=list(episode_ids),
        created_at=created_at,
    )
    return [{"episode_id": str(row["episode_id"]), "created_at": row["created_at"].isoformat()} async for row in rows]


async def restore_support(
    tx: Connection, caller: Caller, memory_type: str, memory_id: UUID, links: Sequence[Mapping[str, str]]
) -> None:
    """Make deleted links again, with their times."""
    await _sql.restore_support(
        tx, tenant_id=caller.tenant, memory_type=memory_type, memory_id=memory_id, links=list(links)
    )
