"""Queries on the origin of memories, and on everything derived from a session or an episode."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.model import MAX_LISTED_CHARACTERS, MemoryType
from butlers.modules.memory.store.statements import statements

_sql = statements("provenance")


@dataclass(frozen=True, slots=True)
class DerivedMemory:
    """A memory derived from episodes, and the number of other episodes that corroborate it."""

    memory_type: MemoryType
    id: UUID
    corroborated_by: int


@dataclass(frozen=True, slots=True)
class RetractionChange:
    """One change of a retraction, and whether nothing has changed the memory since."""

    event_type: str
    memory_type: MemoryType
    id: UUID
    is_unchanged: bool


async def episodes_of_session(tx: Connection, caller: Caller, session_id: UUID) -> list[UUID]:
    """The episodes of a session, deleted ones included."""
    rows = _sql.episodes_of_session(tx, tenant_id=caller.tenant, session_id=str(session_id))
    return [row["id"] async for row in rows]


async def stored_by_session(tx: Connection, session_id: UUID) -> list[tuple[MemoryType, UUID]]:
    """The facts and rules that a session stored itself."""
    rows = _sql.stored_by_session(tx, session_id=str(session_id))
    return [(MemoryType(row["memory_type"]), row["id"]) async for row in rows]


async def derived_from(tx: Connection, caller: Caller, episode_ids: Sequence[UUID]) -> list[DerivedMemory]:
    """The facts and rules derived from these episodes."""
    rows = _sql.derived_from(tx, tenant_id=caller.tenant, episode_ids=list(episode_ids))
    return [DerivedMemory(MemoryType(row["memory_type"]), row["id"], row["corroborated_by"]) async for row in rows]


async def preview(
    tx: Connection, caller: Caller, memory_type: MemoryType, ids: Sequence[UUID]
) -> list[dict[str, Any]]:
    """These memories, as a preview shows them, long contents cut; a field without a value is left out."""
    rows = _sql.preview(
        tx, tenant_id=caller.tenant, memory_type=memory_type, ids=list(ids), max_characters=MAX_LISTED_CHARACTERS
    )
    return [
        {"memory_type": memory_type.value, **{name: value for name, value in row.items() if value is not None}}
        async for row in rows
    ]


async def reactivate_superseded(
    tx: Connection, caller: Caller, fact_ids: Sequence[UUID], retracted: Sequence[UUID]
) -> list[UUID]:
    """Make active again what these facts superseded, unless it is retracted as well; returns the ids."""
    rows = _sql.reactivate_superseded(tx, tenant_id=caller.tenant, ids=list(fact_ids), retracted=list(retracted))
    return [row["id"] async for row in rows]


async def retraction_changes(tx: Connection, caller: Caller, retraction_id: UUID) -> list[RetractionChange]:
    """The changes of a retraction."""
    rows = _sql.retraction_changes(tx, tenant_id=caller.tenant, retraction=str(retraction_id))
    return [
        RetractionChange(row["event_type"], MemoryType(row["memory_type"]), row["id"], row["is_unchanged"])
        async for row in rows
    ]


async def supersede_again(tx: Connection, caller: Caller, fact_ids: Sequence[UUID], by: UUID) -> list[UUID]:
    """Supersede reactivated facts again, where they have the key of the fact that is restored; returns the ids."""
    rows = _sql.supersede_again(tx, tenant_id=caller.tenant, ids=list(fact_ids), by=by)
    return [row["id"] async for row in rows]
