"""Looks of people at memories: recording one, and the distilled memories that nobody looked at."""

from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.errors import EpisodesCannotBeEdited, MemoryNotFound
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.operations.idempotency import Answer, Request, run_once
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import events, looking, memories
from butlers.modules.memory.store.events import Event
from butlers.modules.memory.store.looking import Position

_TYPES = (MemoryType.FACT, MemoryType.RULE)


async def mark_looked_at(
    memory: Memory, caller: Caller, memory_type: MemoryType, memory_id: UUID, request: Request
) -> Answer:
    """Record that a person looked at a fact or rule. It is no confirmation: its confidence stays."""
    if memory_type not in _TYPES:
        raise EpisodesCannotBeEdited

    async def work(tx: Connection) -> Answer:
        if await memories.lifecycle_state(tx, caller, memory_type, memory_id) is None:
            raise MemoryNotFound(memory_type, memory_id)
        await events.append(tx, caller, Event(f"{memory_type}_looked_at", memory_type, memory_id))
        return {"id": str(memory_id), "memory_type": memory_type.value, "looked_at": True}

    return await run_once(memory.transaction(caller), caller, request, work)


async def list_unlooked(
    tx: Connection, caller: Caller, *, limit: int, after: Position | None = None
) -> list[tuple[MemoryType, UUID]]:
    """Return facts and rules that a model distilled, that nothing else supports and that nobody looked at.

    Newest first; `after` continues behind a row by its time and id. It covers the 1,000 newest distilled memories of
    each type.
    """
    found = [(each, place) for each in _TYPES for place in await looking.unlooked(tx, caller, each, after, limit)]
    newest = sorted(found, key=lambda each: each[1], reverse=True)[:limit]
    return [(memory_type, place.id) for memory_type, place in newest]
