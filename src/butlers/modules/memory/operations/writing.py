"""Storing of episodes, facts and rules."""

from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.model import (
    FACT_CONFIDENCE,
    RULE_CONFIDENCE,
    MemoryType,
    NewEpisode,
    NewFact,
    NewRule,
    Relation,
)
from butlers.modules.memory.operations.change_events import append_changes
from butlers.modules.memory.operations.idempotency import Answer, Request, run_once
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import entities, episodes, events, facts, links, memories, rules, states
from butlers.modules.memory.store.embedding_versions import EmbeddedText
from butlers.modules.memory.store.events import Event
from butlers.modules.memory.store.links import Link


async def store_episode(memory: Memory, caller: Caller, episode: NewEpisode, request: Request) -> Answer:
    """Store an episode; it is kept until it expires."""
    memory.check_butler(caller, episode.butler)
    # Embed before the transaction: it takes milliseconds and would hold a connection.
    embedded = await memory.embed(caller, episode.searchable)

    async def work(tx: Connection) -> Answer:
        ttl = memory.config.episode_ttl_days
        episode_id, expires_at = await episodes.insert(tx, caller, episode, embedded, ttl_days=ttl)
        payload = {"session_id": str(episode.session_id)} if episode.session_id else {}
        await events.append(tx, caller, Event("episode_created", MemoryType.EPISODE, episode_id, payload))
        return {"id": str(episode_id), "expires_at": expires_at.isoformat()}

    return await run_once(memory.write_transaction(caller, reuse_plans=True), caller, request, work)


async def store_fact(memory: Memory, caller: Caller, fact: NewFact, request: Request) -> Answer:
    """Store a fact: it supersedes the live fact under its key, or confirms it when nothing differs."""
    embedded = await memory.embed(caller, fact.searchable)

    async def work(tx: Connection) -> Answer:
        return await store_fact_in(tx, caller, fact, embedded, source_butler=memory.butler)

    return await run_once(memory.write_transaction(caller, reuse_plans=True), caller, request, work)


async def store_fact_in(
    tx: Connection,
    caller: Caller,
    fact: NewFact,
    embedded: EmbeddedText,
    *,
    source_butler: str | None,
    source_episode_id: UUID | None = None,
    confidence: float = FACT_CONFIDENCE,
) -> Answer:
    """Store a fact in an open transaction; a lock admits one writer per key."""
    if fact.entity_id is not None:
        await entities.lock_live(tx, caller, fact.entity_id)
    await facts.lock_key(tx, caller, fact.key)
    existing = await facts.lock_live_by_key(tx, caller, fact)
    if existing is not None and existing.equals(fact):
        # A fact learned by consolidation gains no support from being learned again.
        before = await states.fetch(tx, caller, MemoryType.FACT, [existing.id])
        await memories.confirm(tx, caller, MemoryType.FACT, existing.id, supported=confidence == FACT_CONFIDENCE)
        await append_changes(tx, caller, "fact_confirmed", MemoryType.FACT, before, {"by": "store"}, always=True)
        return {"id": str(existing.id), "confirmed_existing": True}
    if existing is not None:
        await facts.supersede(tx, caller, existing.id)
    fact_id = await facts.insert(
        tx,
        caller,
        fact,
        embedded,
        supersedes_id=existing.id if existing else None,
        source_butler=source_butler,
        source_episode_id=source_episode_id,
        confidence=confidence,
    )
    payload: dict[str, Any] = {"scope": fact.scope, "permanence": fact.permanence.value, "confidence": confidence}
    if existing is None:
        await events.append(tx, caller, Event("fact_created", MemoryType.FACT, fact_id, payload))
        return {"id": str(fact_id)}
    link = Link(MemoryType.FACT, fact_id, MemoryType.FACT, existing.id, Relation.SUPERSEDES)
    await links.create_link(tx, caller, link)
    superseded = events.fact_superseded(existing.id, existing.confidence, {"superseded_by": str(fact_id)})
    created = Event("fact_created", MemoryType.FACT, fact_id, {**payload, "supersedes_id": str(existing.id)})
    await events.append(tx, caller, superseded, created)
    return {"id": str(fact_id), "superseded_id": str(existing.id)}


async def store_rule(memory: Memory, caller: Caller, rule: NewRule, request: Request) -> Answer:
    """Store a rule as a candidate."""
    embedded = await memory.embed(caller, rule.searchable)

    async def work(tx: Connection) -> Answer:
        rule_id = await rules.insert(tx, caller, rule, embedded, source_butler=memory.butler)
        payload = {"scope": rule.scope, "confidence": RULE_CONFIDENCE}
        await events.append(tx, caller, Event("rule_created", MemoryType.RULE, rule_id, payload))
        return {"id": str(rule_id)}

    return await run_once(memory.write_transaction(caller, reuse_plans=True), caller, request, work)
