"""Storing of episodes, facts and rules."""

from collections.abc import Sequence
from functools import partial
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.model import (
    FACT_CONFIDENCE,
    MemoryType,
    NewEpisode,
    NewFact,
    NewRule,
    Relation,
)
from butlers.modules.memory.operations.change_events import append_changes
from butlers.modules.memory.operations.feedback import refusal_for
from butlers.modules.memory.operations.hints import similar_facts, similar_rules
from butlers.modules.memory.operations.idempotency import Answer, Request, run_once
from butlers.modules.memory.operations.secrets import NOTHING_REDACTED, Redacted, redact_secrets
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import entities, episodes, events, facts, links, memories, rules, states
from butlers.modules.memory.store.embedding_versions import EmbeddedText
from butlers.modules.memory.store.events import Event
from butlers.modules.memory.store.facts import LiveFact
from butlers.modules.memory.store.links import Link


async def store_episode(memory: Memory, caller: Caller, episode: NewEpisode, request: Request) -> Answer:
    """Store an episode; it is kept until it expires."""
    memory.check_butler(caller, episode.butler)
    episode, redacted = await redact_secrets(memory, caller.tenant, episode)
    # Embed before the transaction: it takes milliseconds and would hold a connection.
    embedded = await memory.embed(caller, episode.searchable)

    async def work(tx: Connection) -> Answer:
        return await store_episode_in(tx, memory, caller, episode, embedded, redacted)

    return await run_once(memory.write_transaction(caller, reuse_plans=True), caller, request, work)


async def store_episode_in(
    tx: Connection,
    memory: Memory,
    caller: Caller,
    episode: NewEpisode,
    embedded: EmbeddedText,
    redacted: Redacted = NOTHING_REDACTED,
) -> Answer:
    """Store an episode in an open transaction; the answer and the event tell what was redacted."""
    ttl = memory.config.episode_ttl_days
    episode_id, expires_at = await episodes.insert(tx, caller, episode, embedded, ttl_days=ttl, payload=redacted)
    return {"id": str(episode_id), "expires_at": expires_at.isoformat(), **redacted}


async def store_fact(
    memory: Memory, caller: Caller, fact: NewFact, request: Request, *, supersedes_id: UUID | None = None
) -> Answer:
    """Store a fact: it supersedes the live fact under its key, or confirms it when nothing differs.

    It supersedes the fact `supersedes_id` too, whatever its key. The answer names similar facts under other keys.
    """
    fact, redacted = await redact_secrets(memory, caller.tenant, fact)
    embedded = await memory.embed(caller, fact.searchable)
    # The transaction begins with the lock of the key unless others come before it.
    is_first_lock = request.key is None and fact.entity_id is None and supersedes_id is None
    lock = facts.key_lock(caller, fact.key) if is_first_lock else None

    async def work(tx: Connection) -> Answer:
        return await store_fact_in(
            tx,
            caller,
            fact,
            embedded,
            source_butler=memory.butler,
            supersedes_id=supersedes_id,
            min_similarity=memory.config.hints.threshold,
            is_locked=is_first_lock,
            redacted=redacted,
        )

    return await run_once(memory.write_transaction(caller, reuse_plans=True, lock=lock), caller, request, work)


async def store_fact_in(
    tx: Connection,
    caller: Caller,
    fact: NewFact,
    embedded: EmbeddedText,
    *,
    source_butler: str | None,
    source_episode_id: UUID | None = None,
    confidence: float = FACT_CONFIDENCE,
    supersedes_id: UUID | None = None,
    min_similarity: float | None = None,
    is_locked: bool = False,
    redacted: Redacted = NOTHING_REDACTED,
) -> Answer:
    """Store a fact in an open transaction; a lock admits one writer per key.

    With `min_similarity`, the answer of a new fact names facts that are as similar. `is_locked` says that the caller
    holds the locks of the entity and of the key. The answer and the events tell what was redacted.
    """
    named = None if is_locked and supersedes_id is None else await _lock_keys(tx, caller, fact, supersedes_id)
    insert = partial(
        facts.insert_if_free,
        tx,
        caller,
        fact,
        embedded,
        source_butler=source_butler,
        source_episode_id=source_episode_id,
        confidence=confidence,
        payload=redacted,
    )
    stored = await insert(supersedes_id=named.id if named else None)
    existing = stored.existing
    if existing is not None and existing.equals(fact):
        # A fact learned by consolidation gains no support from being learned again.
        supported = confidence == FACT_CONFIDENCE
        return await _confirm_existing(tx, caller, existing, named, redacted, supported=supported)
    replaced = list({each.id: each for each in (existing, named) if each is not None}.values())
    for each in replaced:
        await facts.supersede(tx, caller, each.id)
    if existing is not None:
        stored = await insert(supersedes_id=existing.id)
    if stored.id is None:
        raise AssertionError("the key was locked and freed")
    await events.append(tx, caller, *await _link_superseded(tx, caller, replaced, stored.id))
    hints = await similar_facts(tx, caller, fact, stored.id, embedded, min_similarity) if stored.has_topic else {}
    return {"id": str(stored.id), **_superseded_ids(replaced), **hints, **redacted}


async def _confirm_existing(
    tx: Connection, caller: Caller, existing: LiveFact, named: LiveFact | None, redacted: Redacted, *, supported: bool
) -> Answer:
    """Confirm the fact that was to be stored again; it supersedes the named one."""
    before = await states.fetch(tx, caller, MemoryType.FACT, [existing.id])
    await memories.confirm(tx, caller, MemoryType.FACT, existing.id, supported=supported)
    payload = {"by": "store", **redacted}
    await append_changes(tx, caller, "fact_confirmed", MemoryType.FACT, before, payload, always=True)
    answer = {"id": str(existing.id), "confirmed_existing": True, **redacted}
    if named is None or named.id == existing.id:
        return answer
    await facts.supersede(tx, caller, named.id)
    await events.append(tx, caller, *await _link_superseded(tx, caller, [named], existing.id))
    return {**answer, **_superseded_ids([named])}


async def _lock_keys(tx: Connection, caller: Caller, fact: NewFact, supersedes_id: UUID | None) -> LiveFact | None:
    """Lock the entity and key of a fact, and the fact that it is to supersede, which has to be live."""
    if fact.entity_id is not None:
        await entities.lock_live(tx, caller, fact.entity_id)
    if supersedes_id is None:
        await facts.lock_key(tx, caller, fact.key)
        return None
    await facts.lock_keys_of_facts(tx, caller, [supersedes_id], more=[fact.key])
    named = await facts.lock_live(tx, caller, supersedes_id)
    if named is None:
        raise await refusal_for(tx, caller, MemoryType.FACT, supersedes_id)
    return named


async def _link_superseded(
    tx: Connection, caller: Caller, replaced: Sequence[LiveFact], fact_id: UUID
) -> list[Event]:
    """Link a fact to those it superseded; return the events of those."""
    for each in replaced:
        link = Link(MemoryType.FACT, fact_id, MemoryType.FACT, each.id, Relation.SUPERSEDES)
        await links.create_link(tx, caller, link)
    superseded_by = {"superseded_by": str(fact_id)}
    return [events.fact_superseded(each.id, each.confidence, superseded_by) for each in replaced]


def _superseded_ids(replaced: Sequence[LiveFact]) -> Answer:
    """The ids of the facts that were superseded, as part of an answer; a second one is named by `supersedes_id`."""
    names = ("superseded_id", "also_superseded_id")
    return {name: str(each.id) for name, each in zip(names, replaced, strict=False)}


async def store_rule(memory: Memory, caller: Caller, rule: NewRule, request: Request) -> Answer:
    """Store a rule as a candidate; the answer names similar rules."""
    rule, redacted = await redact_secrets(memory, caller.tenant, rule)
    embedded = await memory.embed(caller, rule.searchable)

    async def work(tx: Connection) -> Answer:
        return await store_rule_in(tx, memory, caller, rule, embedded, redacted)

    return await run_once(memory.write_transaction(caller, reuse_plans=True), caller, request, work)


async def store_rule_in(
    tx: Connection,
    memory: Memory,
    caller: Caller,
    rule: NewRule,
    embedded: EmbeddedText,
    redacted: Redacted = NOTHING_REDACTED,
) -> Answer:
    """Store a rule in an open transaction; the answer and the event tell what was redacted."""
    rule_id, has_others = await rules.insert(
        tx, caller, rule, embedded, source_butler=memory.butler, payload=redacted
    )
    threshold = memory.config.hints.threshold
    hints = await similar_rules(tx, caller, rule, rule_id, embedded, threshold) if has_others else {}
    return {"id": str(rule_id), **hints, **redacted}
