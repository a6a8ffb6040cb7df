"""Re-embedding of memories whose vector comes from another model or version."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from butlers.caller import Caller
from butlers.db import WRITE_TIMEOUT_SECONDS
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.operations.batching import Progress, callers_by_tenant, no_progress, retry_when_busy
from butlers.modules.memory.operations.idempotency import Answer
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import events, reembedding
from butlers.modules.memory.store.decay_sweep import MIN_ID
from butlers.modules.memory.store.events import Event
from butlers.modules.memory.store.reembedding import StaleMemory

ACTOR = "reembed"
BATCH = 256
"""Texts in one run of the model; few, so that a search at the same time does not wait long."""


async def count_stale(memory: Memory, caller: Caller, *, all_tenants: bool = False) -> int:
    """Return the number of memories whose vector comes from another model or version."""
    callers = await callers_by_tenant(memory, caller, all_tenants=all_tenants)
    return sum([await _count_stale(memory, each) for each in callers])


async def _count_stale(memory: Memory, caller: Caller) -> int:
    version = memory.embedder.version.id
    async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        if not await reembedding.has_stale(tx, caller, version):
            return 0
        return await reembedding.count_stale(tx, caller, version)


async def reembed(
    memory: Memory, caller: Caller, *, all_tenants: bool = False, progress: Progress = no_progress
) -> Answer:
    """Re-embed stale memories in the caller's tenant, or in all of them.

    Each batch is one transaction; after an interruption the next run continues with the remaining memories.
    """
    done = Counter(facts=0, rules=0, episodes=0)
    callers = await callers_by_tenant(memory, caller, all_tenants=all_tenants)
    stale = {each.tenant: await _count_stale(memory, each) for each in callers}
    total = sum(stale.values())
    progress(0, total)
    for each in callers:
        if stale[each.tenant]:
            for kind in MemoryType:
                await _reembed_type(memory, each, kind, done, total, progress)
    version = memory.embedder.version
    return {**done, "model": version.model, "version": version.version}


async def _reembed_type(
    memory: Memory, caller: Caller, kind: MemoryType, done: Counter[str], total: int, progress: Progress
) -> None:
    """Re-embed one tenant's memories of one type; the next batch is embedded while the last is written."""
    after, writing = MIN_ID, asyncio.ensure_future(asyncio.sleep(0, result=0))
    try:
        while batch := await _fetch_batch(memory, caller, kind, after):
            vectors = await memory.embedder.embed_batch([each.searchable for each in batch], tenant=caller.tenant)
            done[f"{kind}s"] += await writing
            progress(done.total(), total)
            writing = asyncio.ensure_future(retry_when_busy(_write_batch, memory, caller, kind, batch, vectors))
            after = batch[-1].id
    finally:
        done[f"{kind}s"] += await writing
        progress(done.total(), total)


async def _fetch_batch(memory: Memory, caller: Caller, kind: MemoryType, after: UUID) -> list[StaleMemory]:
    async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        return await reembedding.fetch_stale(tx, caller, kind, memory.embedder.version.id, after, BATCH)


async def _write_batch(
    memory: Memory, caller: Caller, kind: MemoryType, batch: Sequence[StaleMemory], vectors: Sequence[Sequence[float]]
) -> int:
    version = memory.embedder.version.id
    async with memory.write_transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        written = await reembedding.write_embeddings(tx, caller, kind, version, batch, vectors)
        if written:
            await events.append(
                tx, caller, Event("embeddings_renewed", "embedding_version", version, {kind: written})
            )
    return written
