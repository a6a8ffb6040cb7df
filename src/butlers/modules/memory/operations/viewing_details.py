"""Reading of one fact, rule, episode or entity with everything that belongs to it. Nothing changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.decay import ConfidenceChange
from butlers.modules.memory.domain.errors import EntityNotFound, MemoryNotFound
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.operations.viewing import Record
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import receipts, viewing_details
from butlers.modules.memory.store.receipts import ToldCount

MAX_CHARACTERS = 20_000
"""Characters of a content that a page shows."""
MAX_EVENTS, MAX_EVIDENCE, MAX_VERSIONS, MAX_MARKS, MAX_DERIVED, MAX_FACTS, MAX_NAMES = 200, 20, 7, 100, 100, 100, 10
MAX_TOLD = 5
_SEARCHED_CHARACTERS = 4_000
_LISTED_CHARACTERS = 400
_CONFIRMING = {
    "created": "stored",
    "confirmed": "confirmed",
    "restored": "restored",
    "edited": "edited",
    "inverted": "became a warning",
    "inversion_reverted": "became a rule again",
}


@dataclass(frozen=True, slots=True)
class MemoryTrail:
    """The events of a memory, newest first, the episodes behind it, the run that learned it, and who was told it."""

    events: Sequence[Record]
    evidence: Sequence[Record]
    run: Record | None
    told: ToldCount
    last_told: Sequence[Record]

    @property
    def confidence_changes(self) -> list[ConfidenceChange]:
        """The events that set the confidence."""
        return [change for event in self.events if (change := _confidence_change(event))]


def _confidence_change(event: Record) -> ConfidenceChange | None:
    reason, payload = _CONFIRMING.get(event["event_type"].partition("_")[2]), event["payload"]
    before = payload.get("before")
    rate_before = _as_number(before.get("decay_rate")) if isinstance(before, Mapping) else None
    if reason is None or (reason == "edited" and rate_before is None):
        return None
    confidence = _as_number(payload.get("confidence"))
    return ConfidenceChange(
        event["occurred_at"], None if confidence is None else min(confidence, 1.0), rate_before, reason
    )


def _as_number(value: object) -> float | None:
    """Return a value of an event as a number; None if it is none: an imported event may hold anything."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return max(float(value), 0.0) if is_number and isfinite(value) else None  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class FactDetails:
    """A fact, its trail, and its versions: those it superseded, latest first, and those that superseded it."""

    fact: Record
    trail: MemoryTrail
    superseded: Sequence[Record]
    superseded_in_merges: Sequence[Record]
    superseding: Sequence[Record]


@dataclass(frozen=True, slots=True)
class RuleDetails:
    """A rule, its trail, and its latest marks, oldest first."""

    rule: Record
    trail: MemoryTrail
    marks: Sequence[Record]


@dataclass(frozen=True, slots=True)
class EpisodeDetails:
    """An episode, its events, and the facts and rules that come from it or are supported by it."""

    episode: Record
    events: Sequence[Record]
    derived: Sequence[Record]


@dataclass(frozen=True, slots=True)
class EntityDetails:
    """An entity, its live facts, the latest changes, and other entities with one of its names."""

    entity: Record
    facts: Sequence[Record]
    has_more_facts: bool
    changes: Sequence[Record]
    namesakes: Sequence[Record]


async def fact_details(memory: Memory, caller: Caller, fact_id: UUID) -> FactDetails:
    """Return a fact in any state. Raises `MemoryNotFound`."""
    async with memory.transaction(caller) as tx:
        fact = await _memory(tx, caller, MemoryType.FACT, fact_id)
        superseded, merged = await viewing_details.superseded(tx, caller, fact_id, MAX_CHARACTERS, MAX_VERSIONS)
        superseding = await viewing_details.superseding(tx, caller, fact_id, MAX_CHARACTERS, MAX_VERSIONS)
        return FactDetails(fact, await _trail(tx, caller, MemoryType.FACT, fact_id), superseded, merged, superseding)


async def rule_details(memory: Memory, caller: Caller, rule_id: UUID) -> RuleDetails:
    """Return a rule in any state. Raises `MemoryNotFound`."""
    async with memory.transaction(caller) as tx:
        rule = await _memory(tx, caller, MemoryType.RULE, rule_id)
        marks = await viewing_details.marks(tx, caller, rule_id, MAX_MARKS)
        return RuleDetails(rule, await _trail(tx, caller, MemoryType.RULE, rule_id), marks[::-1])


async def episode_details(memory: Memory, caller: Caller, episode_id: UUID) -> EpisodeDetails:
    """Return an episode in any state. Raises `MemoryNotFound`."""
    async with memory.transaction(caller) as tx:
        episode = await _memory(tx, caller, MemoryType.EPISODE, episode_id)
        events = await viewing_details.events(tx, caller, MemoryType.EPISODE, episode_id, MAX_EVENTS)
        derived = await viewing_details.derived(tx, caller, episode_id, _LISTED_CHARACTERS, MAX_DERIVED)
    return EpisodeDetails(episode, events, derived)


async def entity_details(memory: Memory, caller: Caller, entity_id: UUID) -> EntityDetails:
    """Return an entity, merged or not. Raises `EntityNotFound`."""
    async with memory.transaction(caller) as tx:
        entity = await viewing_details.entity(tx, caller, entity_id)
        if entity is None:
            raise EntityNotFound(entity_id)
        facts = await viewing_details.facts_of_entity(tx, caller, entity_id, _LISTED_CHARACTERS, MAX_FACTS + 1)
        changes = await viewing_details.changes_of_entity(tx, caller, entity_id, MAX_FACTS, 50)
        names = [entity["canonical_name"], *entity["aliases"]][:MAX_NAMES]
        namesakes = await viewing_details.namesakes(tx, caller, entity_id, names, MAX_NAMES)
    return EntityDetails(entity, facts[:MAX_FACTS], len(facts) > MAX_FACTS, changes, namesakes)


async def _memory(tx: Connection, caller: Caller, memory_type: MemoryType, memory_id: UUID) -> Record:
    record = await viewing_details.memory(tx, caller, memory_type, memory_id, MAX_CHARACTERS)
    if record is None:
        raise MemoryNotFound(memory_type, memory_id)
    return record


async def _trail(tx: Connection, caller: Caller, memory_type: MemoryType, memory_id: UUID) -> MemoryTrail:
    events = await viewing_details.events(tx, caller, memory_type, memory_id, MAX_EVENTS)
    evidence = await viewing_details.evidence(tx, caller, memory_type, memory_id, _SEARCHED_CHARACTERS, MAX_EVIDENCE)
    learned = next((each for each in events if each["event_type"] == f"{memory_type}_created"), None)
    run_id = _as_uuid(learned["request_id"]) if learned else None
    run = await viewing_details.run(tx, caller, run_id) if run_id else None
    told = (await receipts.count_told(tx, caller, [memory_id])).get(memory_id, ToldCount())
    last_told = await receipts.told_sessions(tx, caller, memory_id, MAX_TOLD) if told.sessions else []
    return MemoryTrail(events, evidence, run, told, last_told)


def _as_uuid(text: str | None) -> UUID | None:
    """Return a request id as the id of a consolidation run; None if it can't be one."""
    try:
        return UUID(text or "")
    except ValueError:
        return None
