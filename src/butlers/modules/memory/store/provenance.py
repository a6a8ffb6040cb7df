"""Where memories come from, and everything that came from there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.store.statements import statements

_sql = statements("provenance")
_SHOWN = {MemoryType.FACT: _sql.facts, MemoryType.RULE: _sql.rules, MemoryType.EPISODE: _sql.episodes}
_GO = {
    MemoryType.FACT: _sql.retract_facts,
    MemoryType.RULE: _sql.forget_rules,
    MemoryType.EPISODE: _sql.forget_episodes,
}


@dataclass(frozen=True, slots=True)
class DerivedMemory:
    """A memory that came of episodes, and how many other episodes say it besides."""

    memory_type: MemoryType
    id: UUID
    elsewhere: int


@dataclass(frozen=True, slots=True)
class RetractionChange:
    """One change a retraction made, and whether nothing has happened to the memory since."""

    event_type: str
    memory_type: MemoryType
    id: UUID
    untouched: bool


async def episodes_of_session(tx: Connection, caller: Caller, session_id: UUID) -> list[UUID]:
    """The episodes of a session, those that are gone included."""
    rows = _sql.episodes_of_session(tx, tenant_id=caller.tenant, session_id=str(session_id))
    return [row["id"] async for row in rows]


async def stored_by_session(tx: Connection, caller: Caller, session_id: UUID) -> list[tuple[MemoryType, UUID]]:
    """The facts and rules a session stored itself."""
    rows = _sql.stored_by_session(tx, tenant_id=caller.tenant, session_id=str(session_id))
    return [(MemoryType(row["memory_type"]), row["id"]) async for row in rows]


async def derived_from(tx: Connection, caller: Caller, episode_ids: Sequence[UUID]) -> list[DerivedMemory]:
    """The facts and rules that came of these episodes."""
    rows = _sql.derived_from(tx, tenant_id=caller.tenant, episode_ids=list(episode_ids))
    return [DerivedMemory(MemoryType(row["memory_type"]), row["id"], row["elsewhere"]) async for row in rows]


async def preview(tx: Connection, caller: Caller, kind: MemoryType, ids: Sequence[UUID]) -> list[dict[str, Any]]:
    """These memories, as a preview shows them."""
    rows = _SHOWN[kind](tx, tenant_id=caller.tenant, ids=list(ids))
    return [{"memory_type": kind.value, **row} async for row in rows]


async def retract(tx: Connection, caller: Caller, kind: MemoryType, ids: Sequence[UUID]) -> list[UUID]:
    """Take these memories out of every search, where they are live; those that were."""
    return [row["id"] async for row in _GO[kind](tx, tenant_id=caller.tenant, ids=list(ids))]


async def reactivate_superseded(
    tx: Connection, caller: Caller, fact_ids: Sequence[UUID], gone: Sequence[UUID]
) -> list[UUID]:
    """Let what these facts replaced hold again, unless it is to go as well."""
    rows = _sql.bring_back(tx, tenant_id=caller.tenant, ids=list(fact_ids), gone=list(gone))
    return [row["id"] async for row in rows]


async def retraction_changes(tx: Connection, caller: Caller, retraction_id: UUID) -> list[RetractionChange]:
    """What a retraction changed."""
    rows = _sql.retraction(tx, tenant_id=caller.tenant, retraction_changes=str(retraction_id))
    return [
        RetractionChange(row["event_type"], MemoryType(row["memory_type"]), row["id"], row["untouched"])
        async for row in rows
    ]


async def supersede_again(tx: Connection, caller: Caller, fact_ids: Sequence[UUID], by: UUID) -> list[UUID]:
    """Replace once more what a retraction had let hold again, where it has the key of the fact that comes back."""
    rows = _sql.supersede_again(tx, tenant_id=caller.tenant, ids=list(fact_ids), by=by)
    return [row["id"] async for row in rows]
