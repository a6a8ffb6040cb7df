"""Gone for good: a memory, an entity with all that is known of it, or a tenant. The trail keeps ids and says so."""

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID, uuid5

from butlers.caller import Caller
from butlers.db import WRITE_TIMEOUT_SECONDS, Connection
from butlers.errors import Forbidden
from butlers.modules.memory.domain.errors import EntityNotFound, MemoryNotFound
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.operations.idempotency import Answer
from butlers.modules.memory.operations.retry import retry_when_busy
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import erasure, events, vector_indexes
from butlers.modules.memory.store.events import Event

BATCH = 2_000
MOST_MENTIONS = 100
_LONGEST_WORDS = 200
_NAMESPACE = UUID("6f1d3d0e-3a4b-4c1e-9a6f-5b0f6a1d2c3e")

Tell = Callable[[int, int], None]


async def erase_memory(running: Memory, caller: Caller, kind: MemoryType, memory_id: UUID) -> Answer:
    """Delete one memory for good; says where else its words still stand."""
    async with running.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        said = await erasure.erase_memory(tx, caller, kind, memory_id)
        if said is None:
            raise MemoryNotFound(kind, memory_id)
        await erasure.erase_traces(tx, caller, kind, [memory_id])
        await events.append(tx, caller, Event(f"{kind}_erased", kind, memory_id))
        mentions = await _find_mentions(tx, caller, [said])
    return {"erased": {f"{kind}s": 1}, "still_said": mentions, "vacuumed": await _vacuum(running)}


async def erase_entity(running: Memory, caller: Caller, entity_id: UUID) -> Answer:
    """Delete an entity and every fact about it, whatever its state; says where its names still stand."""
    async with running.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        facts = await erasure.erase_facts_of_entity(tx, caller, entity_id)
        gone = await erasure.erase_entity(tx, caller, entity_id)
        if not gone:
            raise EntityNotFound(entity_id)
        await erasure.erase_traces(tx, caller, MemoryType.FACT, facts)
        await erasure.erase_stored_answers(tx, caller, [each.id for each in gone])
        await events.append(
            tx,
            caller,
            *(Event("fact_erased", MemoryType.FACT, each) for each in facts),
            *(Event("entity_erased", "entity", each.id) for each in gone),
        )
        mentions = await _find_mentions(tx, caller, [name for each in gone for name in each.names])
    erased = {"facts": len(facts), "entities": len(gone)}
    return {"erased": erased, "still_said": mentions, "vacuumed": await _vacuum(running)}


async def erase_tenant(running: Memory, caller: Caller, *, tell: Tell = lambda _, __: None) -> Answer:
    """Delete everything a tenant has, in batches: ended half-way it goes on when it is asked for again."""
    async with running.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        there = await erasure.count_remaining(tx, caller)
    total, done = sum(there[table] for table in erasure.TABLES), 0
    for table in erasure.TABLES:
        while gone := await retry_when_busy(_erase_rows, running, caller, table):
            done += gone
            tell(done, total)
    async with running.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        erased = {name: count for name, count in there.items() if count}
        told = Event("tenant_erased", "tenant", uuid5(_NAMESPACE, caller.tenant), erased)
        await events.append(tx, caller, told)
        left = await erasure.count_remaining(tx, caller)
    return {"erased": erased, "left": left, "vacuumed": await _vacuum(running)}


async def _erase_rows(running: Memory, caller: Caller, table: str) -> int:
    async with running.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        return await erasure.erase_rows(tx, caller, table, BATCH)


async def _find_mentions(tx: Connection, caller: Caller, words: Sequence[str]) -> list[dict[str, Any]]:
    """Where what was erased is still said, in other memories and in the records of sessions."""
    found = {
        place: None
        for each in dict.fromkeys(words)
        if each.strip()
        for place in await erasure.find_mentions(tx, caller, each[:_LONGEST_WORDS], MOST_MENTIONS)
    }
    return [{"kind": kind, "id": str(memory_id)} for kind, memory_id in list(found)[:MOST_MENTIONS]]


async def _vacuum(running: Memory) -> bool:
    """Let the server overwrite what it still holds of deleted rows; only the tables' owner may ask it to."""
    try:
        async with running.database.owner_connection() as owner:
            await vector_indexes.vacuum(owner)
    except Forbidden:
        return False
    return True
