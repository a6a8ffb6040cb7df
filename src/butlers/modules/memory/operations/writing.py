"""Storing of episodes, facts and rules."""

from collections.abc import Sequence
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
        ttl = memory.config.episode_ttl_days
        episode_id, expires_at = await episodes.insert(tx, caller, episode, embedded, ttl_days=ttl)
        payload = {"session_id": str(episode.session_id)} if episode.session_id else {}
        created = Event("episode_created", MemoryType.EPISODE, episode_id, {**payload, **redacted})
        await events.append(tx, caller, created)
        return {"id": str(episode_id), "expires_at": expires_at.isoformat(), **redacted}

    return await run_once(memory.write_transaction(caller, reuse_plans=True), caller, request, work)


async def store_fact(
    memory: Memory, caller: Caller, fact: NewFact, request: Request, *, supersedes_id: UUID | None = None
) -> Answer:
    """Store a fact: it supersedes the live fact under its key, or confirms it when nothing differs.

    It supersedes the fact `supersedes_id` too, whatever its key. The answer names similar facts under other keys.
    """
    fact, redacted = await redact_secrets(memory, caller.tenant, fact)
    embedded = await memory.embed(caller, fact.searchable)

    async def work(tx: Connection) -> Answer:
        return await store_fact_in(
            tx,
            caller,
            fact,
            embedded,
            source_butler=memory.butler,
            supersedes_id=supersedes_id,
            min_similarity=memory.config.hints.threshold,
            redacted=redacted,
        )

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
    supersedes_id: UUID | None = None,
    min_similarity: float | None = None,
    redacted: Redacted = NOTHING_REDACTED,
) -> Answer:
    """Store a fact in an open transaction; a lock admits one writer per key.

    With `min_similarity`, the answer of a new fact names facts that are as similar. The answer and the events tell
    what was redacted.
    """
    if fact.entity_id is not None:
        await entities.lock_live(tx, caller, fact.entity_id)
    named = await _lock_keys(tx, caller, fact, supersedes_id)
    existing = await facts.lock_live_by_key(tx, caller, fact)
    payload: dict[str, Any]
    if existing is not None and existing.equals(fact):
        # A fact learned by consolidation gains no support from being learned again.
        before = await states.fetch(tx, caller, MemoryType.FACT, [existing.id])
        await memories.confirm(tx, caller, MemoryType.FACT, existing.id, supported=confidence == FACT_CONFIDENCE)
        payload = {"by": "store", **redacted}
        await append_changes(tx, caller, "fact_confirmed", MemoryType.FACT, before, payload, always=True)
        answer = {"id": str(existing.id), "confirmed_existing": True, **redacted}
        if named is None or named.id == existing.id:
            return answer
        await facts.supersede(tx, caller, named.id)
        await events.append(tx, caller, *await _link_superseded(tx, caller, [named], existing.id))
        return {**answer, **_superseded_ids([named])}
    replaced = list({each.id: each for each in (existing, named) if each is not None}.values())
    for each in replaced:
        await facts.supersede(tx, caller, each.id)
    fact_id, has_topic = await facts.insert(
        tx,
        caller,
        fact,
        embedded,
        supersedes_id=replaced[0].id if replaced else None,
        source_butler=source_butler,
        source_episode_id=source_episode_id,
        confidence=confidence,
    )
    payload = {"scope": fact.scope, "permanence": fact.permanence.value, "confidence": confidence, **redacted}
    if replaced:
        payload["supersedes_id"] = str(replaced[0].id)
    created = Event("fact_created", MemoryType.FACT, fact_id, payload)
    await events.append(tx, caller, *await _link_superseded(tx, caller, replaced, fact_id), created)
    hints = await similar_facts(tx, caller, fact, fact_id, embedded, min_similarity) if has_topic else {}
    return {"id": str(fact_id), **_superseded_ids(replaced), **hints, **redacted}


async def _lock_keys(tx: Connection, caller: Caller, fact: NewFact, supersedes_id: UUID | None) -> LiveFact | None:
    """Lock the key of a fact and the fact that it is to supersede, which has to be live."""
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
        rule_id, has_others = await rules.insert(tx, caller, rule, embedded, source_butler=memory.butler)
        payload = {"scope": rule.scope, "confidence": RULE_CONFIDENCE, **redacted}
        await events.append(tx, caller, Event("rule_created", MemoryType.RULE, rule_id, payload))
        threshold = memory.config.hints.threshold
        hints = await similar_rules(tx, caller, rule, rule_id, embedded, threshold) if has_others else {}
        return {"id": str(rule_id), **hints, **redacted}

    return await run_once(memory.write_transaction(caller, reuse_plans=True), caller, request, work)
