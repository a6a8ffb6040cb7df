"""Retraction of one memory, or of all that come from a session or an episode, and its undo."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from butlers.caller import Caller
from butlers.db import WRITE_TIMEOUT_SECONDS, Connection
from butlers.errors import NotFound
from butlers.modules.memory.domain.errors import MemoryNotFound
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.operations.change_events import append_changes
from butlers.modules.memory.operations.idempotency import Answer, Request, run_once
from butlers.modules.memory.operations.management import forget_within
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import facts, foreign_import, memories, provenance, states
from butlers.modules.memory.store.provenance import RetractionChange
from butlers.modules.memory.store.states import States

_REACTIVATED = "fact_restored"
_BY_UNDO = {"by": "undo"}
_BATCH = 500
_MAX_DESCRIBED = 30
"""Memories of each kind that the preview of an import's retraction shows."""
_WITHOUT_KEY = Request("memory_retract_from", {})


@dataclass(frozen=True, slots=True)
class Origin:
    """A session, one episode, or one import."""

    session_id: UUID | None = None
    episode_id: UUID | None = None
    import_id: UUID | None = None


@dataclass(slots=True)
class DerivedMemories:
    """Memories that come from an origin, and how many other episodes support each."""

    ids: dict[MemoryType, list[UUID]] = field(default_factory=lambda: {kind: [] for kind in MemoryType})
    corroborated_by: dict[UUID, int] = field(default_factory=dict)
    is_import: bool = False

    def add(self, kind: MemoryType, ids: Iterable[UUID]) -> None:
        """Add ids that are not there yet."""
        self.ids[kind] = list(dict.fromkeys([*self.ids[kind], *ids]))


async def preview(memory: Memory, caller: Caller, origin: Origin) -> Answer:
    """Return the memories that come from the origin; those with support elsewhere say so. Nothing changes."""
    async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        derived = await _find_derived(tx, caller, origin)
        return {"dry_run": True, **await _describe(tx, caller, derived)}


async def retract(
    memory: Memory,
    caller: Caller,
    origin: Origin,
    request: Request = _WITHOUT_KEY,
    *,
    include_corroborated: bool = False,
) -> Answer:
    """Retract the memories that come from the origin, in one transaction; facts they superseded are active again.

    Memories that other episodes support stay, unless `include_corroborated` is set.
    """

    async def work(tx: Connection) -> Answer:
        derived = await _find_derived(tx, caller, origin)
        description = await _describe(tx, caller, derived)
        kept = set() if include_corroborated else set(derived.corroborated_by)
        ids = {kind: sorted(each for each in found if each not in kept) for kind, found in derived.ids.items()}
        return {"dry_run": False, **await retract_ids(tx, caller, ids), **description}

    return await run_once(memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS), caller, request, work)


async def retract_ids(tx: Connection, caller: Caller, ids: Mapping[MemoryType, Sequence[UUID]]) -> Answer:
    """Retract these memories in a transaction that may do more; return the counts and the id to undo it with."""
    retraction_id = uuid4()
    await facts.lock_keys_of_facts(tx, caller, ids[MemoryType.FACT])
    counts, reactivated = await retract_within(tx, caller, ids, {"retraction": str(retraction_id)})
    return {
        "retraction_id": str(retraction_id),
        "retracted": counts,
        "brought_back": [str(each) for each in reactivated],
    }


async def retract_within(
    tx: Connection, caller: Caller, ids_by_type: Mapping[MemoryType, Sequence[UUID]], payload: Mapping[str, Any]
) -> tuple[dict[str, int], Sequence[UUID]]:
    """Forget memories in a transaction that has locked the keys of their facts.

    Returns the counts by type, and the facts that are active again because those that superseded them are forgotten.
    """
    counts: dict[str, int] = {}
    reactivated: list[UUID] = []
    for kind, ids in ids_by_type.items():
        counts[f"{kind}s"] = 0
        # In batches, so that no other call waits while the states of many are decoded.
        for start in range(0, len(ids), _BATCH):
            batch = ids[start : start + _BATCH]
            before = await states.lock(tx, caller, kind, batch)
            retracted = await memories.forget(tx, caller, kind, batch)
            await append_changes(tx, caller, f"{kind}_forgotten", kind, before, payload)
            counts[f"{kind}s"] += len(retracted)
            if kind is MemoryType.FACT:
                active = await provenance.reactivate_superseded(tx, caller, retracted, ids)
                await _append_validity_changes(tx, caller, _REACTIVATED, "superseded", active, payload)
                reactivated += active
    return counts, reactivated


async def take_back(
    memory: Memory, caller: Caller, memory_type: MemoryType, memory_id: UUID, request: Request
) -> Answer:
    """Forget one memory; the fact that it superseded is active again. Raises what `forget` raises."""

    async def work(tx: Connection) -> Answer:
        if memory_type is not MemoryType.FACT:
            return {**await forget_within(tx, caller, memory_type, memory_id), "brought_back": []}
        await facts.lock_keys_of_facts(tx, caller, [memory_id])
        answer = await forget_within(tx, caller, memory_type, memory_id)
        reactivated = await provenance.reactivate_superseded(tx, caller, [memory_id], [memory_id])
        await _append_validity_changes(tx, caller, _REACTIVATED, "superseded", reactivated, {})
        return {**answer, "brought_back": [str(each) for each in reactivated]}

    return await run_once(memory.transaction(caller), caller, request, work)


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
        unchanged = [each for each in retracted if each.is_unchanged]
        if reactivated:
            restored = {each.id for each in unchanged if await _try_restore(tx, caller, each, reactivated)}
        else:
            restored = await _restore_many(tx, caller, unchanged)
        left_alone = [str(each.id) for each in retracted if each.id not in restored]
    return {"restored": len(restored), "left_alone": left_alone}


async def _restore_many(tx: Connection, caller: Caller, changes: Sequence[RetractionChange]) -> set[UUID]:
    """Restore the memories of a retraction that made no other fact active; return those whose key is free."""
    restored: set[UUID] = set()
    for kind in MemoryType:
        ids = sorted(each.id for each in changes if each.memory_type is kind)
        for start in range(0, len(ids), _BATCH):
            before = await states.lock(tx, caller, kind, ids[start : start + _BATCH])
            live = await memories.restore_many(tx, caller, kind, list(before))
            touched = {each: before[each] for each in live}
            await append_changes(tx, caller, f"{kind}_restored", kind, touched, _BY_UNDO, always=True)
            restored.update(live)
    return restored


async def _try_restore(tx: Connection, caller: Caller, change: RetractionChange, reactivated: Sequence[UUID]) -> bool:
    """Restore a memory in a savepoint; return False when another fact has its key or it no longer exists."""
    try:
        async with tx.transaction():
            superseded, before = await _restore(tx, caller, change, reactivated)
    except (asyncpg.UniqueViolationError, MemoryNotFound):
        return False
    await _append_validity_changes(tx, caller, "fact_superseded", "active", superseded, _BY_UNDO)
    restored = f"{change.memory_type}_restored"
    await append_changes(tx, caller, restored, change.memory_type, before, _BY_UNDO, always=True)
    return True


async def _append_validity_changes(
    tx: Connection, caller: Caller, event_type: str, validity: str, ids: Sequence[UUID], payload: Mapping[str, Any]
) -> None:
    """Append the events of facts that had that validity and changed in nothing else."""
    after = await states.fetch(tx, caller, MemoryType.FACT, ids)
    before = {each: {**state, "validity": validity} for each, state in after.items()}
    await append_changes(tx, caller, event_type, MemoryType.FACT, before, payload)


async def _restore(
    tx: Connection, caller: Caller, change: RetractionChange, reactivated: Sequence[UUID]
) -> tuple[list[UUID], States]:
    """Restore a memory; return the facts it superseded again, and its state before."""
    is_fact = change.memory_type is MemoryType.FACT
    superseded = await provenance.supersede_again(tx, caller, reactivated, change.id) if is_fact else []
    before = await memories.restore(tx, caller, change.memory_type, change.id)
    if before is None:
        raise MemoryNotFound(change.memory_type, change.id)
    return superseded, before


async def _find_derived(tx: Connection, caller: Caller, origin: Origin) -> DerivedMemories:
    derived = DerivedMemories()
    if origin.session_id is not None:
        derived.add(MemoryType.EPISODE, await provenance.episodes_of_session(tx, caller, origin.session_id))
        for kind, memory_id in await provenance.stored_by_session(tx, origin.session_id):
            derived.add(kind, [memory_id])
    if origin.import_id is not None:
        await _add_imported(tx, caller, origin.import_id, derived)
    if origin.episode_id is not None:
        derived.add(MemoryType.EPISODE, [origin.episode_id])
    stored = {each for ids in derived.ids.values() for each in ids}
    for each in await provenance.derived_from(tx, caller, derived.ids[MemoryType.EPISODE]):
        derived.add(each.memory_type, [each.id])
        if each.corroborated_by and each.id not in stored:
            derived.corroborated_by[each.id] = each.corroborated_by
    return derived


async def _add_imported(tx: Connection, caller: Caller, import_id: UUID, derived: DerivedMemories) -> None:
    """Add the memories that an import brought; raises `NotFound` without one."""
    if await foreign_import.get_import(tx, caller, import_id) is None:
        raise NotFound(f"there is no import {import_id}", hint="`butlers memory imports` lists them.")
    for kind, ids in (await foreign_import.imported_ids(tx, caller, import_id)).items():
        if kind in set(MemoryType):
            derived.add(MemoryType(kind), ids)
    derived.is_import = True


async def _describe(tx: Connection, caller: Caller, derived: DerivedMemories) -> dict[str, Any]:
    """Return the memories as a preview shows them; of an import, which may be large, the first and the number."""
    most = _MAX_DESCRIBED if derived.is_import else None
    found = [
        each for kind, ids in derived.ids.items() for each in await provenance.preview(tx, caller, kind, ids[:most])
    ]
    for each in found:
        if each["id"] in derived.corroborated_by:
            each["corroborated_by"] = derived.corroborated_by[each["id"]]
        # As text: the answer is stored with its idempotency key.
        each |= {"id": str(each["id"]), "created_at": each["created_at"].isoformat()}
    return {"found": found} | ({"total": sum(map(len, derived.ids.values()))} if derived.is_import else {})
