"""Twins: near-duplicate facts, rules and entities, found on demand, and the decision that both hold."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.errors import InvalidInput
from butlers.modules.memory.domain.errors import MemoryNotFound
from butlers.modules.memory.domain.model import GLOBAL, MAX_LISTED_CHARACTERS, MemoryType, Relation
from butlers.modules.memory.domain.similar_pairs import Comparable, nearest_pairs
from butlers.modules.memory.operations.idempotency import Answer, Request, run_once
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import entities, events, links, memories, twins
from butlers.modules.memory.store.events import Event
from butlers.modules.memory.store.links import Link
from butlers.modules.memory.store.twins import Pair

MIN_SIMILARITY = 0.8
"""Paraphrases of one fact or rule are above it (0.80 to 0.90 with the built-in model), two colors below (0.77)."""
MAX_COMPARED, MAX_PAIRS = 3_000, 50
_MAX_NEAR_PAIRS = 2_000
_NEWEST_ENTITIES = 200


@dataclass(frozen=True, slots=True)
class Twins:
    """Two records that may be one."""

    record_type: str
    similarity: float
    first: Mapping[str, Any]
    second: Mapping[str, Any]


async def find_twins(memory: Memory, caller: Caller) -> list[Twins]:
    """Return near-duplicates of the tenant, the most similar first; nothing is merged, and nothing changes.

    Compared are the 3,000 newest live facts, each with those about its entity or subject, the 3,000 newest live rules
    and the names of the 200 newest entities. Pairs that somebody linked are left out, but not facts of
    which one contradicts the other.
    """
    version = memory.embedder.version.id
    async with memory.transaction(caller) as tx:
        newest_facts = await twins.newest_facts(tx, caller, version, MAX_COMPARED)
        newest_rules = await twins.newest_rules(tx, caller, version, MAX_COMPARED)
    # Outside a transaction and off the event loop: the largest product takes some tenths of a second.
    near_facts, near_rules = await asyncio.to_thread(_near_facts_and_rules, newest_facts, newest_rules)
    async with memory.transaction(caller) as tx:
        contradicting = await twins.contradicting_facts(tx, caller, MAX_PAIRS)
        facts = _without_repeats([*contradicting, *await twins.unlinked(tx, caller, "fact", near_facts)])[:MAX_PAIRS]
        rules = (await twins.unlinked(tx, caller, "rule", near_rules))[:MAX_PAIRS]
        same_name = await twins.entity_pairs(tx, caller, _NEWEST_ENTITIES, MAX_PAIRS)
        ids = [each for pair in (*facts, *rules) for each in (pair.id, pair.other_id)]
        rows = await memories.fetch_many(tx, caller, ids, MAX_LISTED_CHARACTERS)
        found = [
            *_pairs("fact", facts, rows),
            *_pairs("rule", rules, rows),
            *_pairs("entity", same_name, await _entities(tx, caller, same_name)),
        ]
    return sorted(found, key=lambda each: -each.similarity)[:MAX_PAIRS]


def _comparable_fact(row: Mapping[str, Any]) -> Comparable:
    """A fact is compared with those of its entity, and with those of its subject unless they have another entity."""
    entity_id = row["entity_id"]
    groups = [("subject", row["subject"])] + ([("entity", entity_id)] if entity_id else [])
    return Comparable(row["embedding"], groups, entity_id)


def _comparable_rule(row: Mapping[str, Any]) -> Comparable:
    """A rule is compared with those of its scope and the global ones."""
    return Comparable(row["embedding"], ("rules",), None if row["scope"] == GLOBAL else row["scope"])


def _near_facts_and_rules(
    facts: Sequence[Mapping[str, Any]], rules: Sequence[Mapping[str, Any]]
) -> tuple[list[Pair], list[Pair]]:
    return _near_pairs(facts, _comparable_fact), _near_pairs(rules, _comparable_rule)


def _near_pairs(
    rows: Sequence[Mapping[str, Any]], to_comparable: Callable[[Mapping[str, Any]], Comparable]
) -> list[Pair]:
    near = nearest_pairs([to_comparable(row) for row in rows], MIN_SIMILARITY, _MAX_NEAR_PAIRS)
    return [Pair(rows[first]["id"], rows[second]["id"], similarity) for first, second, similarity in near]


def _without_repeats(pairs: Sequence[Pair]) -> list[Pair]:
    return list({frozenset((each.id, each.other_id)): each for each in reversed(pairs)}.values())[::-1]


async def _entities(tx: Connection, caller: Caller, pairs: list[Pair]) -> dict[UUID, Mapping[str, Any]]:
    ids = {each for pair in pairs for each in (pair.id, pair.other_id)}
    return {each: await entities.get(tx, caller, each) for each in sorted(ids)}


def _pairs(record_type: str, pairs: list[Pair], rows: Mapping[UUID, Mapping[str, Any]]) -> list[Twins]:
    return [
        Twins(record_type, each.similarity, rows[each.id], rows[each.other_id])
        for each in pairs
        if each.id in rows and each.other_id in rows
    ]


async def keep_both(
    memory: Memory, caller: Caller, record_type: str, record_id: UUID, other_id: UUID, request: Request
) -> Answer:
    """Record that both of two facts, rules or entities hold, so that they are not shown as twins again."""
    if record_type not in {"fact", "rule", "entity"} or record_id == other_id:
        raise InvalidInput("two facts, two rules or two entities can hold together", hint="Send two different ids.")
    newer, older = max(record_id, other_id), min(record_id, other_id)

    async def work(tx: Connection) -> Answer:
        answer = {"id": str(newer), "other_id": str(older), "memory_type": record_type}
        if record_type == "entity":
            await entities.lock(tx, caller, newer, older)
        elif not await _link(tx, caller, MemoryType(record_type), newer, older):
            return {**answer, "already": True}
        pairs = ((newer, older), (older, newer))
        related = (Event(f"{record_type}_related", record_type, a, {"related_to": str(b)}) for a, b in pairs)
        await events.append(tx, caller, *related)
        return answer

    return await run_once(memory.transaction(caller), caller, request, work)


async def _link(tx: Connection, caller: Caller, memory_type: MemoryType, memory_id: UUID, other_id: UUID) -> bool:
    """Link two memories; return False if they are linked already."""
    for each in (memory_id, other_id):
        if await memories.lifecycle_state(tx, caller, memory_type, each) is None:
            raise MemoryNotFound(memory_type, each)
    if await links.settle_contradiction(tx, caller, memory_type, memory_id, other_id):
        return True
    if await links.is_linked(tx, caller, memory_type, memory_id, other_id):
        return False
    await links.create_link(tx, caller, Link(memory_type, memory_id, memory_type, other_id, Relation.RELATED_TO))
    return True
