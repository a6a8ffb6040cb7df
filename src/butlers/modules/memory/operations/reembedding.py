"""Another model, or another version of it: every memory gets a new vector, while searches compare like with like."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from uuid import UUID

from butlers.caller import Caller
from butlers.db import WRITE_TIMEOUT_SECONDS
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.operations.idempotency import Answer
from butlers.modules.memory.operations.retry import retry_when_busy
from butlers.modules.memory.operations.tenants import callers_by_tenant
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import events, reembedding
from butlers.modules.memory.store.decay_sweep import MIN_ID
from butlers.modules.memory.store.events import Event
from butlers.modules.memory.store.reembedding import StaleMemory

ACTOR = "reembed"
BATCH = 256
MODEL_BATCH = 8
"""Texts in one run of the model: few, so that a search that comes meanwhile waits for a moment only."""

Tell = Callable[[int, int], None]


@dataclass(slots=True)
class ReembeddingReport:
    """How many memories were embedded anew."""

    facts: int = 0
    rules: int = 0
    episodes: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.facts + self.rules + self.episodes


async def count_stale(memory: Memory, caller: Caller, *, everywhere: bool = False) -> int:
    """How many memories have a vector that the model in use did not make."""
    return sum(
        [await _count_stale(memory, each) for each in await callers_by_tenant(memory, caller, everywhere=everywhere)]
    )


async def _count_stale(memory: Memory, caller: Caller) -> int:
    version = memory.embedder.version.id
    async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        if not await reembedding.has_stale(tx, caller, version):
            return 0
        return await reembedding.count_stale(tx, caller, version)


async def reembed(
    memory: Memory, caller: Caller, *, everywhere: bool = False, tell: Tell = lambda _, __: None
) -> Answer:
    """Embed anew what the model in use did not embed, in the caller's tenant or all of them.

    Each batch is a transaction of its own: ended half-way, it goes on where it was.
    """
    renewed = ReembeddingReport()
    callers = await callers_by_tenant(memory, caller, everywhere=everywhere)
    waiting = {each.tenant: await _count_stale(memory, each) for each in callers}
    total = sum(waiting.values())
    tell(0, total)
    for each in callers:
        if waiting[each.tenant]:
            for kind in MemoryType:
                await _reembed_type(memory, each, kind, renewed, lambda: tell(renewed.total, total))
    version = memory.embedder.version
    return {**asdict(renewed), "model": version.model, "version": version.version}


async def _reembed_type(
    memory: Memory, caller: Caller, kind: MemoryType, renewed: ReembeddingReport, tell: Callable[[], None]
) -> None:
    """One kind of a tenant's memories: while one batch is written, the next is embedded."""
    after, writing = MIN_ID, asyncio.ensure_future(_nothing())
    try:
        while batch := await _fetch_batch(memory, caller, kind, after):
            vectors = await _embed(memory, [each.searchable for each in batch])
            _add_count(renewed, kind, await writing)
            tell()
            writing = asyncio.ensure_future(retry_when_busy(_write_batch, memory, caller, kind, batch, vectors))
            after = batch[-1].id
    finally:
        _add_count(renewed, kind, await writing)
        tell()


async def _nothing() -> int:
    return 0


def _add_count(renewed: ReembeddingReport, kind: MemoryType, written: int) -> None:
    name = f"{kind}s"
    setattr(renewed, name, getattr(renewed, name) + written)


async def _fetch_batch(memory: Memory, caller: Caller, kind: MemoryType, after: UUID) -> list[StaleMemory]:
    async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        return await reembedding.fetch_stale(tx, caller, kind, memory.embedder.version.id, after, BATCH)


async def _embed(memory: Memory, texts: Sequence[str]) -> list[list[float]]:
    """Each text's vector, in their order; texts of like length go through the model together."""
    order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
    vectors: dict[int, list[float]] = {}
    for start in range(0, len(order), MODEL_BATCH):
        places = order[start : start + MODEL_BATCH]
        made = await memory.embedder.embed_batch([texts[place] for place in places])
        vectors.update(zip(places, made, strict=True))
    return [vectors[place] for place in range(len(texts))]


async def _write_batch(
    memory: Memory, caller: Caller, kind: MemoryType, batch: Sequence[StaleMemory], vectors: Sequence[Sequence[float]]
) -> int:
    version = memory.embedder.version.id
    async with memory.writing(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        written = await reembedding.write_embeddings(tx, caller, kind, version, batch, vectors)
        if written:
            await events.append(
                tx, caller, Event("embeddings_renewed", "embedding_version", version, {kind: written})
            )
    return written
