"""Remembering: episodes, facts and rules go in."""

from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.model import FACT_CONFIDENCE, MemoryType, NewEpisode, NewFact, NewRule, Relation
from butlers.modules.memory.operations.idempotency import Answer, Request, run_once
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import entities, episodes, events, facts, links, rules
from butlers.modules.memory.store.embedding_versions import EmbeddedText
from butlers.modules.memory.store.events import Event
from butlers.modules.memory.store.links import Link


async def store_episode(memory: Memory, caller: Caller, episode: NewEpisode, request: Request) -> Answer:
    """Keep what happened until it is consolidated or expires."""
    memory.speaks_for(caller, episode.butler)
    # Embed before the transaction: it takes milliseconds and would hold a connection.
    embedded = await memory.embedded(episode.searchable)
    async with memory.writing(caller, reuse_plans=True) as tx:

        async def work() -> Answer:
            ttl = memory.config.episode_ttl_days
            episode_id, expires_at = await episodes.insert(tx, caller, episode, embedded, ttl_days=ttl)
            of_session = {"session_id": str(episode.session_id)} if episode.session_id else {}
            await events.append(tx, caller, Event("episode_created", MemoryType.EPISODE, episode_id, of_session))
            return {"id": str(episode_id), "expires_at": expires_at.isoformat()}

        return await run_once(tx, caller, request, work)


async def store_fact(memory: Memory, caller: Caller, fact: NewFact, request: Request) -> Answer:
    """Know something: a new fact supersedes what its key held, and the same fact again confirms it."""
    embedded = await memory.embedded(fact.searchable)
    async with memory.writing(caller, reuse_plans=True) as tx:

        async def work() -> Answer:
            return await store_fact_in(tx, caller, fact, embedded, source_butler=memory.butler)

        return await run_once(tx, caller, request, work)


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
    """Store a fact within a transaction, one writer of its key at a time."""
    if fact.entity_id is not None:
        await entities.lock_live(tx, caller, fact.entity_id)
    await facts.lock_key(tx, caller, fact.key)
    held = await facts.lock_live_by_key(tx, caller, fact)
    if held is not None and held.equals(fact):
        # What is distilled is not borne out by being distilled once more.
        await facts.confirm(tx, caller, held.id, supported=confidence == FACT_CONFIDENCE)
        await events.append(tx, caller, Event("fact_confirmed", MemoryType.FACT, held.id, {"by": "store"}))
        return {"id": str(held.id), "confirmed_existing": True}
    if held is not None:
        await facts.supersede(tx, caller, held.id)
    fact_id = await facts.insert(
        tx,
        caller,
        fact,
        embedded,
        supersedes_id=held.id if held else None,
        source_butler=source_butler,
        source_episode_id=source_episode_id,
        confidence=confidence,
    )
    created: dict[str, Any] = {"scope": fact.scope, "permanence": fact.permanence.value}
    if held is None:
        await events.append(tx, caller, Event("fact_created", MemoryType.FACT, fact_id, created))
        return {"id": str(fact_id)}
    await links.create_link(tx, caller, Link(MemoryType.FACT, fact_id, MemoryType.FACT, held.id, Relation.SUPERSEDES))
    await events.append(
        tx,
        caller,
        Event("fact_superseded", MemoryType.FACT, held.id, {"superseded_by": str(fact_id)}),
        Event("fact_created", MemoryType.FACT, fact_id, {**created, "supersedes_id": str(held.id)}),
    )
    return {"id": str(fact_id), "superseded_id": str(held.id)}


async def store_rule(memory: Memory, caller: Caller, rule: NewRule, request: Request) -> Answer:
    """Keep what seems to work, as a candidate."""
    embedded = await memory.embedded(rule.searchable)
    async with memory.writing(caller, reuse_plans=True) as tx:

        async def work() -> Answer:
            rule_id = await rules.insert(tx, caller, rule, embedded, source_butler=memory.butler)
            await events.append(tx, caller, Event("rule_created", MemoryType.RULE, rule_id, {"scope": rule.scope}))
            return {"id": str(rule_id)}

        return await run_once(tx, caller, request, work)
