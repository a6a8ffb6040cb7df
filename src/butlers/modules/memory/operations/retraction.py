"""Retraction of all memories that come from a session or an episode, and its undo."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from butlers.caller import Caller
from butlers.db import WRITE_TIMEOUT_SECONDS, Connection
from butlers.errors import NotFound
from butlers.modules.memory.domain.errors import MemoryNotFound
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.operations.idempotency import Answer
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import events, facts, memories, provenance
from butlers.modules.memory.store.events import Event
from butlers.modules.memory.store.provenance import RetractionChange

_REACTIVATED = "fact_restored"
_BY_UNDO = {"by": "undo"}


@dataclass(frozen=True, slots=True)
class Origin:
    """A session, or one episode."""

    session_id: UUID | None = None
    episode_id: UUID | None = None


@dataclass(slots=True)
class DerivedMemories:
    """Memories that come from an origin, and how many other episodes support each."""

    ids: dict[MemoryType, list[UUID]] = field(default_factory=lambda: {kind: [] for kind in MemoryType})
    corroborated_by: dict[UUID, int] = field(default_factory=dict)

    def add(self, kind: MemoryType, ids: Iterable[UUID]) -> None:
        """Add ids that are not there yet."""
        self.ids[kind] = list(dict.fromkeys([*self.ids[kind], *ids]))


async def preview(memory: Memory, caller: Caller, origin: Origin) -> Answer:
    """Return the memories that come from the origin; those with support elsewhere say so. Nothing changes."""
    async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        derived = await _find_derived(tx, caller, origin)
        return {"dry_run": True, **await _describe(tx, caller, derived)}


async def retract(memory: Memory, caller: Caller, origin: Origin, *, include_corroborated: bool = False) -> Answer:
    """Retract the memories that come from the origin, in one transaction; facts they superseded are active again.

    Memories that other episodes support stay, unless `include_corroborated` is set.
    """
    retraction_id = uuid4()
    payload = {"retraction": str(retraction_id)}
    async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        derived = await _find_derived(tx, caller, origin)
        description = await _describe(tx, caller, derived)
        kept = set() if include_corroborated else set(derived.corroborated_by)
        counts: dict[str, int] = {}
        reactivated: Sequence[UUID] = ()
        await facts.lock_keys_of_facts(tx, caller, derived.ids[MemoryType.FACT])
        for kind, found in derived.ids.items():
            ids = sorted(each for each in found if each not in kept)
            retracted = await memories.forget(tx, caller, kind, ids)
            await events.append(tx, caller, *(Event(f"{kind}_forgotten", kind, each, payload) for each in retracted))
            if kind is MemoryType.FACT:
                reactivated = await provenance.reactivate_superseded(tx, caller, retracted, ids)
                await events.append(tx, caller, *(Event(_REACTIVATED, kind, each, payload) for each in reactivated))
            counts[f"{kind}s"] = len(retracted)
    return {
        "dry_run": False,
        "retraction_id": str(retraction_id),
        "retracted": counts,
        "brought_back": [str(each) for each in reactivated],
        **description,
    }


async def undo_retraction(memory: Memory, caller: Caller, retraction_id: UUID) -> Answer:
    """Restore the memories of a retraction; those changed since are left alone and listed. Raises `NotFound`."""
    async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        changes = await provenance.retraction_changes(tx, caller, retraction_id)
        if not changes:
            raise NotFound(f"there is no retraction {retraction_id}", hint="Its id is in the answer of retract-from.")
        reactivated = [each.id for each in changes if each.event_type == _REACTIVATED and each.is_unchanged]
        retracted = [each for each in changes if each.event_type != _REACTIVATED]
        fact_ids = [each.id for each in retracted if each.memory_type is MemoryType.FACT]
        await facts.lock_keys_of_facts(tx, caller, fact_ids)
        restored = [
            each for each in retracted if each.is_unchanged and await _try_restore(tx, caller, each, reactivated)
        ]
        left_alone = [str(each.id) for each in retracted if each not in restored]
    return {"restored": len(restored), "left_alone": left_alone}


async def _try_restore(tx: Connection, caller: Caller, change: RetractionChange, reactivated: Sequence[UUID]) -> bool:
    """Restore a memory in a savepoint; return False when another fact has its key or it no longer exists."""
    try:
        async with tx.transaction():
            superseded = await _restore(tx, caller, change, reactivated)
    except (asyncpg.UniqueViolationError, MemoryNotFound):
        return False
    recorded = [Event("fact_superseded", MemoryType.FACT, each, _BY_UNDO) for each in superseded]
    restored = Event(f"{change.memory_type}_restored", change.memory_type, change.id, _BY_UNDO)
    await events.append(tx, caller, *recorded, restored)
    return True


async def _restore(
    tx: Connection, caller: Caller, change: RetractionChange, reactivated: Sequence[UUID]
) -> list[UUID]:
    """Restore a memory and return the facts it superseded again."""
    is_fact = change.memory_type is MemoryType.FACT
    superseded = await provenance.supersede_again(tx, caller, reactivated, change.id) if is_fact else []
    if not await memories.restore(tx, caller, change.memory_type, change.id):
        raise MemoryNotFound(change.memory_type, change.id)
    return superseded


async def _find_derived(tx: Connection, caller: Caller, origin: Origin) -> DerivedMemories:
    derived = DerivedMemories()
    if origin.session_id is not None:
        derived.add(MemoryType.EPISODE, await provenance.episodes_of_session(tx, caller, origin.session_id))
        for kind, memory_id in await provenance.stored_by_session(tx, caller, origin.session_id):
            derived.add(kind, [memory_id])
    if origin.episode_id is not None:
        derived.add(MemoryType.EPISODE, [origin.episode_id])
    stored = {each for ids in derived.ids.values() for each in ids}
    for each in await provenance.derived_from(tx, caller, derived.ids[MemoryType.EPISODE]):
        derived.add(each.memory_type, [each.id])
        if each.corroborated_by and each.id not in stored:
            derived.corroborated_by[each.id] = each.corroborated_by
    return derived


async def _describe(tx: Connection, caller: Caller, derived: DerivedMemories) -> dict[str, Any]:
    found = [each for kind, ids in derived.ids.items() for each in await provenance.preview(tx, caller, kind, ids)]
    for each in found:
        if each["id"] in derived.corroborated_by:
            each["corroborated_by"] = derived.corroborated_by[each["id"]]
    return {"found": found}
