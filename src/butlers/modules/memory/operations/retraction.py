"""Everything that came from a session or an episode: listed, taken back together, and brought back if need be."""

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

_STATES = {
    MemoryType.FACT: "fact_forgotten",
    MemoryType.RULE: "rule_forgotten",
    MemoryType.EPISODE: "episode_forgotten",
}
_BROUGHT_BACK = "fact_restored"
_BY = {"by": "undo"}


@dataclass(frozen=True, slots=True)
class Origin:
    """A session, or one episode."""

    session_id: UUID | None = None
    episode_id: UUID | None = None


@dataclass(slots=True)
class DerivedMemories:
    """What came from an origin, by kind; and what others say as well."""

    ids: dict[MemoryType, list[UUID]] = field(default_factory=lambda: {kind: [] for kind in MemoryType})
    said_elsewhere: dict[UUID, int] = field(default_factory=dict)

    def add(self, kind: MemoryType, ids: Iterable[UUID]) -> None:
        """Count these in, each once."""
        self.ids[kind] = list(dict.fromkeys([*self.ids[kind], *ids]))


async def preview(memory: Memory, caller: Caller, origin: Origin) -> Answer:
    """Everything that came from there, and what others say as well and would stay."""
    async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        harvest = await _find_derived(tx, caller, origin)
        return {"dry_run": True, **await _describe(tx, caller, harvest)}


async def retract(memory: Memory, caller: Caller, origin: Origin, *, also_elsewhere: bool = False) -> Answer:
    """Take everything back that came from there, in one transaction; what it had replaced holds again.

    What other episodes say as well stays, unless that is to go too.
    """
    retraction_id = uuid4()
    mark = {"retraction": str(retraction_id)}
    async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        harvest = await _find_derived(tx, caller, origin)
        told = await _describe(tx, caller, harvest)
        kept = set() if also_elsewhere else set(harvest.said_elsewhere)
        counts: dict[str, int] = {}
        brought_back: Sequence[UUID] = ()
        await facts.lock_keys_of_facts(tx, caller, harvest.ids[MemoryType.FACT])
        for kind, found in harvest.ids.items():
            wanted = sorted(each for each in found if each not in kept)
            gone = await memories.forget(tx, caller, kind, wanted)
            await events.append(tx, caller, *(Event(_STATES[kind], kind, each, mark) for each in gone))
            if kind is MemoryType.FACT:
                brought_back = await provenance.reactivate_superseded(tx, caller, gone, wanted)
                restored = (Event(_BROUGHT_BACK, kind, each, mark) for each in brought_back)
                await events.append(tx, caller, *restored)
            counts[f"{kind}s"] = len(gone)
    return {
        "dry_run": False,
        "retraction_id": str(retraction_id),
        "retracted": counts,
        "brought_back": [str(each) for each in brought_back],
        **told,
    }


async def undo_retraction(memory: Memory, caller: Caller, retraction_id: UUID) -> Answer:
    """Bring back what a retraction took; what has changed since then is left alone and named."""
    async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        changes = await provenance.retraction_changes(tx, caller, retraction_id)
        if not changes:
            raise NotFound(f"no retraction {retraction_id}", hint="retract-from says its id when it has retracted.")
        again = [each.id for each in changes if each.event_type == _BROUGHT_BACK and each.is_unchanged]
        taken = [each for each in changes if each.event_type != _BROUGHT_BACK]
        await facts.lock_keys_of_facts(tx, caller, [each.id for each in taken if each.memory_type is MemoryType.FACT])
        restored = [each for each in taken if each.is_unchanged and await _restore(tx, caller, each, again)]
        left = [str(each.id) for each in taken if each not in restored]
    return {"restored": len(restored), "left_alone": left}


async def _restore(tx: Connection, caller: Caller, taken: RetractionChange, again: Sequence[UUID]) -> bool:
    """Whether a memory came back, in place of what held instead of it; all of that or nothing."""
    try:
        async with tx.transaction():
            replaced = await _put_back(tx, caller, taken, again)
    except (asyncpg.UniqueViolationError, MemoryNotFound):
        return False
    told = (Event("fact_superseded", MemoryType.FACT, each, _BY) for each in replaced)
    await events.append(tx, caller, *told, Event(f"{taken.memory_type}_restored", taken.memory_type, taken.id, _BY))
    return True


async def _put_back(tx: Connection, caller: Caller, taken: RetractionChange, again: Sequence[UUID]) -> list[UUID]:
    """What a memory replaced by coming back."""
    is_fact = taken.memory_type is MemoryType.FACT
    replaced = await provenance.supersede_again(tx, caller, again, taken.id) if is_fact else []
    if not await memories.restore(tx, caller, taken.memory_type, taken.id):
        raise MemoryNotFound(taken.memory_type, taken.id)
    return replaced


async def _find_derived(tx: Connection, caller: Caller, origin: Origin) -> DerivedMemories:
    harvest = DerivedMemories()
    if origin.session_id is not None:
        harvest.add(MemoryType.EPISODE, await provenance.episodes_of_session(tx, caller, origin.session_id))
        for kind, memory_id in await provenance.stored_by_session(tx, caller, origin.session_id):
            harvest.add(kind, [memory_id])
    if origin.episode_id is not None:
        harvest.add(MemoryType.EPISODE, [origin.episode_id])
    stored = {each for ids in harvest.ids.values() for each in ids}
    for derived in await provenance.derived_from(tx, caller, harvest.ids[MemoryType.EPISODE]):
        harvest.add(derived.memory_type, [derived.id])
        if derived.corroborated_by and derived.id not in stored:
            harvest.said_elsewhere[derived.id] = derived.corroborated_by
    return harvest


async def _describe(tx: Connection, caller: Caller, harvest: DerivedMemories) -> dict[str, Any]:
    found = [each for kind, ids in harvest.ids.items() for each in await provenance.preview(tx, caller, kind, ids)]
    for each in found:
        if each["id"] in harvest.said_elsewhere:
            each["said_elsewhere"] = harvest.said_elsewhere[each["id"]]
    return {"found": found}
