"""Editing of memories by people: fields in place, the entity of a fact, and the content of a fact."""

from dataclasses import asdict
from uuid import UUID

import asyncpg

from butlers.caller import Caller
from butlers.db import Connection
from butlers.errors import Conflict, Fault, InvalidInput
from butlers.modules.memory.domain.errors import EpisodesCannotBeEdited, MemoryNotFound, MemoryNotLive
from butlers.modules.memory.domain.model import Maturity, MemoryEdit, MemoryType, NewFact
from butlers.modules.memory.operations.change_events import append_changes
from butlers.modules.memory.operations.feedback import refusal_for
from butlers.modules.memory.operations.idempotency import Answer, Request, run_once
from butlers.modules.memory.operations.secrets import redact_secrets
from butlers.modules.memory.operations.writing import store_fact_in
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import entities, facts, rules, states
from butlers.modules.memory.store.states import States


async def edit(
    memory: Memory, caller: Caller, memory_type: MemoryType, memory_id: UUID, change: MemoryEdit, request: Request
) -> Answer:
    """Change the importance, permanence or tags of a live fact or rule without superseding it.

    A new permanence leaves today's confidence as it is: the decay continues from here at the new rate.
    """
    _check_fields(memory_type, change)

    async def work(tx: Connection) -> Answer:
        before = await states.lock(tx, caller, memory_type, [memory_id])
        if change.permanence is not None:
            _check_decays(before, memory_id)
        edited = await (facts if memory_type is MemoryType.FACT else rules).edit(tx, caller, memory_id, change)
        if not edited:
            raise await refusal_for(tx, caller, memory_type, memory_id)
        changed = await states.fetch(tx, caller, memory_type, [memory_id])
        fields = [name for name in change.fields if changed[memory_id][name] != before[memory_id][name]]
        await append_changes(tx, caller, f"{memory_type}_edited", memory_type, before, {"fields": fields})
        return {"id": str(memory_id), "memory_type": memory_type.value, "changed": fields}

    return await run_once(memory.transaction(caller), caller, request, work)


def _check_fields(memory_type: MemoryType, change: MemoryEdit) -> None:
    if memory_type is MemoryType.EPISODE:
        raise EpisodesCannotBeEdited
    if memory_type is MemoryType.RULE and change.importance is not None:
        raise InvalidInput("a rule has no importance", hint="Its maturity takes that place: mark it as helpful.")


def _check_decays(before: States, memory_id: UUID) -> None:
    if memory_id in before and before[memory_id].get("maturity") == Maturity.ANTI_PATTERN:
        raise Conflict(f"the rule {memory_id} is a warning and does not decay", hint="Leave its permanence out.")


async def move(memory: Memory, caller: Caller, fact_id: UUID, entity_id: UUID, request: Request) -> Answer:
    """Move a live fact to an entity; its subject stays. Raises `Conflict` when the entity has a fact with its key."""

    async def work(tx: Connection) -> Answer:
        await entities.lock_live(tx, caller, entity_id)
        await facts.lock_keys_of_facts(tx, caller, [fact_id], [entity_id])
        before = await states.lock(tx, caller, MemoryType.FACT, [fact_id])
        try:
            moved = await facts.move(tx, caller, fact_id, entity_id)
        except asyncpg.UniqueViolationError:
            raise Conflict(
                f"the entity {entity_id} has another fact with that predicate",
                hint="Forget one of the two first, or correct the other one.",
            ) from None
        if not moved:
            raise await refusal_for(tx, caller, MemoryType.FACT, fact_id)
        await append_changes(tx, caller, "fact_moved", MemoryType.FACT, before)
        return {"id": str(fact_id), "entity_id": str(entity_id)}

    return await run_once(memory.transaction(caller), caller, request, work)


async def correct(memory: Memory, caller: Caller, fact_id: UUID, content: str, request: Request) -> Answer:
    """Supersede a live fact with new content under the same key; the same content confirms it.

    Raises `Conflict` where the fact is not live.
    """
    async with memory.transaction(caller) as tx:
        target = await facts.get_for_correction(tx, caller, fact_id)
    if target is None:
        raise MemoryNotFound(MemoryType.FACT, fact_id)
    kept = asdict(target)
    del kept["id"]
    fact, redacted = await redact_secrets(memory, caller.tenant, NewFact(**kept, content=content))
    embedded = await memory.embed(caller, fact.searchable)

    async def work(tx: Connection) -> Answer:
        if fact.entity_id is not None:
            await entities.lock_live(tx, caller, fact.entity_id)
        await facts.lock_key(tx, caller, fact.key)
        live = await facts.lock_live_by_key(tx, caller, fact)
        if live is None or live.id != fact_id:
            raise await _refusal_to_correct(tx, caller, fact_id)
        # As it is under the lock: it may have been edited meanwhile.
        latest = {name: getattr(live, name) for name in ("permanence", "importance", "tags")}
        corrected = NewFact(**{**asdict(fact), **latest})
        return await store_fact_in(tx, caller, corrected, embedded, source_butler=memory.butler, redacted=redacted)

    return await run_once(memory.write_transaction(caller), caller, request, work)


async def _refusal_to_correct(tx: Connection, caller: Caller, fact_id: UUID) -> Fault:
    refusal = await refusal_for(tx, caller, MemoryType.FACT, fact_id)
    if isinstance(refusal, MemoryNotLive) and refusal.state == "active":
        return Conflict(f"the fact {fact_id} was moved to another entity meanwhile", hint="Correct it again.")
    return refusal
