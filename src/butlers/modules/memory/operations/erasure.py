"""Permanent erasure of a memory, an entity with its facts, or a tenant; the events keep only ids."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid5

from butlers.caller import Caller
from butlers.db import WRITE_TIMEOUT_SECONDS, Connection
from butlers.errors import Forbidden
from butlers.modules.memory.domain.errors import EntityNotFound, MemoryNotFound
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.operations.batching import Progress, no_progress, retry_when_busy
from butlers.modules.memory.operations.idempotency import Answer
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import erasure, events, states, vector_indexes
from butlers.modules.memory.store.events import Event

BATCH = 2_000
MAX_MENTIONS = 100
_MAX_PHRASE_CHARACTERS = 200
_NAMESPACE = UUID("6f1d3d0e-3a4b-4c1e-9a6f-5b0f6a1d2c3e")


async def erase_memory(memory: Memory, caller: Caller, kind: MemoryType, memory_id: UUID) -> Answer:
    """Erase a memory; return where else its text still occurs. Raises `MemoryNotFound`."""
    async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        text = await erasure.erase_memory(tx, caller, kind, memory_id)
        if text is None:
            raise MemoryNotFound(kind, memory_id)
        await erasure.erase_traces(tx, caller, kind, [memory_id])
        await events.append(tx, caller, Event(f"{kind}_erased", kind, memory_id))
        mentions = await _find_mentions(tx, caller, [text])
    return {"erased": {f"{kind}s": 1}, **mentions, "vacuumed": await _vacuum(memory)}


async def erase_entity(memory: Memory, caller: Caller, entity_id: UUID) -> Answer:
    """Erase an entity and all facts about it; return where its names still occur. Raises `EntityNotFound`."""
    async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        # Locked first: a fact that is stored about it meanwhile would keep it from being deleted.
        await states.lock(tx, caller, "entity", [entity_id])
        facts = await erasure.erase_facts_of_entity(tx, caller, entity_id)
        erased = await erasure.erase_entity(tx, caller, entity_id)
        if not erased:
            raise EntityNotFound(entity_id)
        await erasure.erase_traces(tx, caller, MemoryType.FACT, facts)
        await erasure.erase_words(tx, caller, "entity", list(erased))
        await events.append(
            tx,
            caller,
            *(Event("fact_erased", MemoryType.FACT, each) for each in facts),
            *(Event("entity_erased", "entity", each) for each in erased),
        )
        mentions = await _find_mentions(tx, caller, [name for names in erased.values() for name in names])
    counts = {"facts": len(facts), "entities": len(erased)}
    return {"erased": counts, **mentions, "vacuumed": await _vacuum(memory)}


async def erase_tenant(memory: Memory, caller: Caller, *, progress: Progress = no_progress) -> Answer:
    """Erase all rows of a tenant in batches; after an interruption the next call erases the rest."""
    async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        counts = await erasure.count_remaining(tx, caller)
    total, done = sum(counts[table] for table in erasure.TABLES), 0
    for table in erasure.TABLES:
        while deleted := await retry_when_busy(_erase_rows, memory, caller, table):
            done += deleted
            progress(done, total)
    async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        erased = {name: count for name, count in counts.items() if count}
        event = Event("tenant_erased", "tenant", uuid5(_NAMESPACE, caller.tenant), erased)
        await events.append(tx, caller, event)
        left = await erasure.count_remaining(tx, caller)
    return {"erased": erased, "left": left, "vacuumed": await _vacuum(memory)}


async def _erase_rows(memory: Memory, caller: Caller, table: str) -> int:
    async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        return await erasure.erase_rows(tx, caller, table, BATCH)


async def _find_mentions(tx: Connection, caller: Caller, phrases: Sequence[str]) -> dict[str, Any]:
    """Return the first memories and sessions that still contain one of the erased phrases."""
    found = {
        mention: None
        for each in dict.fromkeys(phrases)
        if each.strip()
        for mention in await erasure.find_mentions(tx, caller, each[:_MAX_PHRASE_CHARACTERS], MAX_MENTIONS + 1)
    }
    listed = [{"kind": kind, "id": str(memory_id)} for kind, memory_id in list(found)[:MAX_MENTIONS]]
    return {"mentions": listed, "mentions_truncated": len(found) > MAX_MENTIONS}


async def _vacuum(memory: Memory) -> bool:
    """Remove the deleted rows from disk; return False where the connection does not own the tables."""
    try:
        async with memory.database.owner_connection() as owner:
            await vector_indexes.vacuum(owner)
    except Forbidden:
        return False
    return True
