"""Storing of several memories in one transaction, with one batch of embeddings."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.errors import Fault
from butlers.modules.memory.domain.model import MemoryType, NewEpisode, NewFact, NewRule
from butlers.modules.memory.operations.idempotency import Answer, Request, run_once
from butlers.modules.memory.operations.secrets import Redacted, redact_secrets
from butlers.modules.memory.operations.writing import store_episode_in, store_fact_in, store_rule_in
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import entities, facts
from butlers.modules.memory.store.embedding_versions import EmbeddedText

MAX_ITEMS = 100


@dataclass(frozen=True, slots=True)
class BatchItem:
    """A memory to store, and the fact that it supersedes whatever its key."""

    memory: NewEpisode | NewFact | NewRule
    supersedes_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class _PreparedItem(BatchItem):
    """An item without its secrets."""

    redacted: Redacted = field(default_factory=dict)


@contextmanager
def naming_item(number: int) -> Iterator[None]:
    """Add the number of the item to the message of a fault."""
    try:
        yield
    except Fault as fault:
        fault.message = f"items.{number}: {fault.message}"
        raise


async def store_batch(memory: Memory, caller: Caller, items: Sequence[BatchItem], request: Request) -> Answer:
    """Store all items as if one after the other, or none if one of them is refused."""
    prepared = []
    for number, item in enumerate(items):
        with naming_item(number):
            prepared.append(await _prepare(memory, caller, item))
    texts = [each.memory.searchable for each in prepared]
    version = memory.embedder.version.id
    vectors = await memory.embedder.embed_batch(texts, tenant=caller.tenant)

    async def work(tx: Connection) -> Answer:
        await _lock_keys(tx, caller, prepared)
        results = []
        for number, (each, vector) in enumerate(zip(prepared, vectors, strict=True)):
            with naming_item(number):
                results.append(await _store(tx, memory, caller, each, EmbeddedText(vector, version)))
        return {"stored": len(results), "results": results}

    return await run_once(memory.write_transaction(caller, reuse_plans=True), caller, request, work)


async def _prepare(memory: Memory, caller: Caller, item: BatchItem) -> _PreparedItem:
    if isinstance(item.memory, NewEpisode):
        memory.check_butler(caller, item.memory.butler)
    new, redacted = await redact_secrets(memory, caller.tenant, item.memory)
    return _PreparedItem(new, item.supersedes_id, redacted)


async def _lock_keys(tx: Connection, caller: Caller, items: Sequence[_PreparedItem]) -> None:
    """Lock the entities and keys of all facts, in one order for all writers, so that two batches never deadlock."""
    new_facts = [(number, item.memory) for number, item in enumerate(items) if isinstance(item.memory, NewFact)]
    first_items = {fact.entity_id: number for number, fact in reversed(new_facts) if fact.entity_id is not None}
    for entity_id in sorted(first_items):
        with naming_item(first_items[entity_id]):
            await entities.lock_live(tx, caller, entity_id)
    replaced = [item.supersedes_id for item in items if item.supersedes_id is not None]
    await facts.lock_keys_of_facts(tx, caller, replaced, more=[fact.key for _, fact in new_facts])


async def _store(
    tx: Connection, memory: Memory, caller: Caller, item: _PreparedItem, embedded: EmbeddedText
) -> Answer:
    new, redacted = item.memory, item.redacted
    if isinstance(new, NewEpisode):
        stored = await store_episode_in(tx, memory, caller, new, embedded, redacted)
        return {"memory_type": MemoryType.EPISODE, **stored}
    if isinstance(new, NewRule):
        stored = await store_rule_in(tx, memory, caller, new, embedded, redacted)
        return {"memory_type": MemoryType.RULE, **stored}
    stored = await store_fact_in(
        tx,
        caller,
        new,
        embedded,
        source_butler=memory.butler,
        supersedes_id=item.supersedes_id,
        min_similarity=memory.config.hints.threshold,
        is_locked=True,
        redacted=redacted,
    )
    return {"memory_type": MemoryType.FACT, **stored}
