"""Undo of one call, or of one event of it: each record gets back the state before, as the events tell it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import asyncpg

from butlers.caller import Caller
from butlers.db import WRITE_TIMEOUT_SECONDS, Connection
from butlers.errors import Conflict, NotFound
from butlers.modules.memory.domain.errors import CannotUndo, ChangedSince
from butlers.modules.memory.domain.record_state import (
    FORGOTTEN_STATE,
    WORD_FIELDS,
    Difference,
    State,
    difference,
    difference_of_payload,
    revert,
)
from butlers.modules.memory.operations.idempotency import Answer, Request, run_once
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import (
    consolidation_runs,
    edit_history,
    entities,
    events,
    facts,
    links,
    rule_inversion,
    states,
)
from butlers.modules.memory.store.embedding_versions import EmbeddedText
from butlers.modules.memory.store.events import Event, EventKind, RecordedEvent

MAX_EVENTS = 10_000
"""Events of one call that can be undone together."""
BATCH = 100
"""Records that are read and written at a time."""
_MAX_DESCRIBED = 100
_MAX_PLANNED = 100
"""A page plans the undo of a call with as many events; a larger one takes too long to plan for a look."""
_CREATIONS = frozenset({"fact_created", "rule_created"})
_WITHOUT_STATE = frozenset(
    {f"{each}_{act}" for each in ("fact", "rule", "entity") for act in ("looked_at", "related")}
    | {"fact_echoed", "rule_echoed", "fact_contradicts"}
)
_REASONS = {
    "entity_merge": "a merge of entities is final",
    "episode_requeued": "consolidation may have read the episode by now; forget it to take it out of the queue",
    "episode_consolidated": "it is a consolidation run; retract what came from its episodes instead",
    "rule_inverted": "it is a sweep; undo the inversion on the page of the rule instead",
    "episode_created": "forget the episode instead",
    "entity_created": "facts may be about it; merge it into another entity, or erase it",
}

_REVERTED = "rule_inversion_reverted"
_RECORD_TYPES = ("entity", "fact", "rule", "episode")
"""In the order in which their rows are locked."""

_MAX_LAST = 10_000
"""Events among which the last act of a caller is looked for."""

Records = Mapping[str, Sequence[UUID]]
"""The ids of records by their type."""
Warnings = Mapping[UUID, tuple[str, EmbeddedText]]
"""The contents of warnings with their vectors, by the id of the rule."""


@dataclass(frozen=True, slots=True)
class UndoTarget:
    """A call, or what it did to some records."""

    request_id: str
    among: Sequence[UUID] | None = None
    """The records; None for all."""


@dataclass(frozen=True, slots=True)
class UndoPreview:
    """What an undo would change, or why it is refused."""

    request_id: str
    changes: Sequence[Mapping[str, Any]] = ()
    number: int = 0
    is_undone: bool = False
    reason: str = ""
    """Why it can't be undone; empty if it can."""


@dataclass(slots=True)
class Reversal:
    """A record that a call changed: its events, its state now and the state before the call."""

    record_type: str
    record_id: UUID
    events: list[RecordedEvent] = field(default_factory=list)
    now: State = field(default_factory=dict)
    before: State = field(default_factory=dict)

    @property
    def is_created(self) -> bool:
        """Whether the call created the record."""
        return any(each.event_type in _CREATIONS for each in self.events)

    @property
    def change(self) -> Difference:
        """What the undo changes."""
        return difference(self.now, self.before)

    @property
    def takes_key(self) -> bool:
        """Whether it is a fact that becomes live, or live under another key."""
        is_live = self.record_type == "fact" and self.before.get("validity") == "active"
        return is_live and not self.change.after.keys().isdisjoint({"validity", "entity_id"})

    def undone_event(self, each: RecordedEvent, request_id: str) -> Event:
        """The event that says that one event is undone, with the values that are set and those before."""
        told = {"confidence": self.before["confidence"]} if "confidence" in self.before else {}
        payload = {**told, **self.change.payload, "undone": request_id}
        return Event(f"{each.event_type}_undone", each.entity_type, each.entity_id, payload)


async def undo(memory: Memory, caller: Caller, request_id: str, request: Request) -> Answer:
    """Undo everything that one call changed, in one transaction; undoing it again changes nothing.

    The answer has the number of records and describes the first of them. Raises `NotFound` if the call changed
    nothing, and `Conflict` if something changed since or can't be undone.
    """
    return await _undo(memory, caller, UndoTarget(request_id), request)


async def undo_event(memory: Memory, caller: Caller, event_id: UUID, request: Request) -> Answer:
    """Undo one event, and those of its call that belong to it; undoing it again changes nothing.

    All changes of the record in that call are undone, and so are those of a fact that it replaced or brought back.
    Raises `NotFound` if there is no such event, and `Conflict` if something changed since or can't be undone.
    """
    target = await target_of_event(memory, caller, event_id)
    return {"event_id": str(event_id), **await _undo(memory, caller, target, request)}


async def target_of_event(memory: Memory, caller: Caller, event_id: UUID) -> UndoTarget:
    """Return what the undo of one event gives back. Raises `NotFound`, and `CannotUndo` for an event of no call."""
    async with memory.transaction(caller) as tx:
        found = await events.find(tx, caller, event_id)
        if found is None:
            raise NotFound(f"there is no event {event_id}", hint="`butlers memory history` lists the ids of events.")
        event, request_id = found
        if request_id is None or event.entity_id is None:
            raise CannotUndo("it belongs to no call, or to no record")
        companions = await events.companions(tx, caller, request_id, event.entity_id)
    return UndoTarget(request_id, sorted({event.entity_id, *companions}))


async def target_of_last_act(memory: Memory, caller: Caller) -> UndoTarget:
    """Return the caller's latest call that changed something and was not undone. Raises `NotFound`."""
    async with memory.transaction(caller) as tx:
        request_id = await events.last_request(tx, caller, _MAX_LAST)
    if request_id is None:
        raise NotFound(f"{caller.actor} has changed nothing that stands", hint="Send the id of an event.")
    return UndoTarget(request_id)


async def _undo(memory: Memory, caller: Caller, target: UndoTarget, request: Request) -> Answer:
    warnings = await _embed_warnings(memory, caller, target)
    request_id = target.request_id

    async def work(tx: Connection) -> Answer:
        await events.lock_request(tx, caller, request_id)
        if await events.is_undone(tx, caller, request_id, target.among):
            return {"request_id": request_id, "undone": [], "number": 0, "already": True}
        records = await _reversible_records(tx, caller, target)
        await _lock(tx, caller, request_id, records)
        described = await _reverse(tx, caller, request_id, records, warnings)
        return {"request_id": request_id, "undone": described, "number": sum(map(len, records.values()))}

    transaction = memory.write_transaction(caller, seconds=WRITE_TIMEOUT_SECONDS)
    return await run_once(transaction, caller, request, work)


async def _reverse(
    tx: Connection, caller: Caller, request_id: str, records: Records, warnings: Warnings
) -> list[dict[str, Any]]:
    """Give every record its state before the call, batch by batch; return what was done with the first of them."""
    described: list[dict[str, Any]] = []
    taking_keys: list[UUID] = []
    try:
        for batch in _batches(records):
            reversals = await _plan(tx, caller, request_id, *batch)
            described += map(_describe, reversals[: _MAX_DESCRIBED - len(described)])
            taking_keys += [each.record_id for each in reversals if each.takes_key]
            await _write(tx, caller, request_id, [each for each in reversals if not each.takes_key], warnings)
        # Facts that take a key come last: those that have it are out of the way by then.
        for batch in _batches({"fact": taking_keys}):
            reversals = await _plan(tx, caller, request_id, *batch)
            await _check_keys(tx, caller, reversals)
            await _write(tx, caller, request_id, reversals, warnings)
    except asyncpg.UniqueViolationError as violation:
        raise CannotUndo(_taken(violation)) from None
    return described


async def _embed_warnings(memory: Memory, caller: Caller, target: UndoTarget) -> Warnings:
    """Return the warnings that rules were before the call reverted their inversion, with their vectors."""
    async with memory.transaction(caller) as tx:
        kinds = await events.kinds_of_request(tx, caller, target.request_id, target.among)
        if not any(each.event_type == _REVERTED for each in kinds):
            return {}
        found = await events.of_request(tx, caller, target.request_id, MAX_EVENTS)
        reverted = [each.entity_id for each in found if each.event_type == _REVERTED]
        contents = await rule_inversion.warnings_of(tx, caller, reverted)
    return {each: (content, await memory.embed(caller, content)) for each, content in contents.items()}


async def preview_undo(memory: Memory, caller: Caller, request_id: str) -> list[dict[str, Any]] | None:
    """Return what an undo of the call would change, or None if it can't be undone; nothing changes."""
    preview = await preview_target(memory, caller, UndoTarget(request_id))
    return None if preview.is_undone or preview.reason else [dict(each) for each in preview.changes]


async def preview_target(memory: Memory, caller: Caller, target: UndoTarget) -> UndoPreview:
    """Return what an undo would change, or why it is refused; nothing changes."""
    request_id = target.request_id
    async with memory.transaction(caller) as tx:
        if await events.is_undone(tx, caller, request_id, target.among):
            return UndoPreview(request_id, is_undone=True)
        try:
            records = await _reversible_records(tx, caller, target)
            reversals = [each for batch in _batches(records) for each in await _plan(tx, caller, request_id, *batch)]
            await _check_keys(tx, caller, reversals)
        except CannotUndo as refusal:
            return UndoPreview(request_id, reason=refusal.reason)
        except (Conflict, NotFound) as fault:
            return UndoPreview(request_id, reason=fault.message)
    return UndoPreview(request_id, [_describe(each) for each in reversals], len(reversals))


async def can_undo(memory: Memory, caller: Caller, request_id: str) -> bool:
    """Return whether a call can be undone. Of a call with many events only the kinds of events are looked at."""
    async with memory.transaction(caller) as tx:
        kinds = await events.kinds_of_request(tx, caller, request_id)
        is_undone = await events.is_undone(tx, caller, request_id)
    total = sum(each.number for each in kinds)
    if is_undone or not 0 < total <= MAX_EVENTS or any(_refusal(each) for each in kinds):
        return False
    return total > _MAX_PLANNED or await preview_undo(memory, caller, request_id) is not None


def may_have_inverse(event_type: str, payload: Mapping[str, Any]) -> bool:
    """Return whether an event of this kind can be undone, if nothing has changed since."""
    has_state = "before" in payload or event_type in _CREATIONS | _WITHOUT_STATE
    return has_state and "undone" not in payload and event_type not in _REASONS


def reason_against(event_type: str) -> str:
    """Return why no call with this event can be undone; empty if it can."""
    return _REASONS.get(event_type, "")


def _refusal(each: EventKind) -> str | None:
    """Return why events of a kind can't be undone; None if they can."""
    if each.event_type in _REASONS:
        return _REASONS[each.event_type]
    if each.is_undo:
        return "it is an undo itself"
    if not each.has_before and each.event_type not in _CREATIONS | _WITHOUT_STATE:
        return f"the event {each.event_type} does not tell the state before it"
    return None


def _describe(reversal: Reversal) -> dict[str, Any]:
    change = reversal.change
    return {
        "memory_type": reversal.record_type,
        "id": str(reversal.record_id),
        "events": [each.event_type for each in reversal.events],
        "changes": {name: {"from": change.before[name], "to": change.after[name]} for name in change.after},
    }


def _taken(violation: asyncpg.UniqueViolationError) -> str:
    is_name = (violation.constraint_name or "").startswith("entities")
    return "another entity has the name by now" if is_name else "another fact has the key by now"


async def _reversible_records(tx: Connection, caller: Caller, target: UndoTarget) -> Records:
    """Return the records that a call changed. Raises `NotFound` without any, and `CannotUndo` for a reason."""
    request_id = target.request_id
    kinds = await events.kinds_of_request(tx, caller, request_id, target.among)
    if not kinds:
        raise NotFound(f"no call {request_id} changed anything", hint="The audit trail has the ids of the calls.")
    if sum(each.number for each in kinds) > MAX_EVENTS:
        raise CannotUndo(f"it has more than {MAX_EVENTS:,} events")
    for each in kinds:
        if reason := _refusal(each):
            raise CannotUndo(reason)
    records = await events.records_of_request(tx, caller, request_id, target.among)
    if not records.keys() <= set(_RECORD_TYPES):
        raise CannotUndo("it changed something that is neither a memory nor an entity")
    return records


def _batches(records: Records) -> Iterator[tuple[str, Sequence[UUID]]]:
    """Yield the records of each type in batches: a large one would hold up other calls while it is decoded."""
    for record_type, ids in records.items():
        for start in range(0, len(ids), BATCH):
            yield record_type, ids[start : start + BATCH]


async def _lock(tx: Connection, caller: Caller, request_id: str, records: Records) -> None:
    """Lock the keys of the facts, those of the entities they came from included, and then the records."""
    moved_from = await events.former_entities(tx, caller, request_id)
    for entity_id in sorted(moved_from):
        await entities.lock_live(tx, caller, entity_id)
    await facts.lock_keys_of_facts(tx, caller, records.get("fact", ()), moved_from)
    for record_type in _RECORD_TYPES:
        if ids := records.get(record_type):
            await states.lock_rows(tx, caller, record_type, ids)


async def _plan(
    tx: Connection, caller: Caller, request_id: str, record_type: str, ids: Sequence[UUID]
) -> list[Reversal]:
    """Return the reversals of some records of one type."""
    found = await states.fetch(tx, caller, record_type, ids)
    for each in ids:
        if each not in found:
            raise CannotUndo(f"the {record_type} {each} was deleted since")
    reversals = {each: Reversal(record_type, each, now=found[each]) for each in ids}
    for event in await events.of_records(tx, caller, request_id, record_type, ids):
        reversals[event.entity_id].events.append(event)
    words = await edit_history.of_records(tx, caller, request_id, record_type, ids)
    later = await _changes_since(tx, caller, request_id, reversals.values())
    for each, reversal in reversals.items():
        reversal.before = _state_before(reversal, words.get(each), later.get(each, ()))
    return list(reversals.values())


async def _changes_since(
    tx: Connection, caller: Caller, request_id: str, reversals: Iterable[Reversal]
) -> dict[UUID, list[RecordedEvent]]:
    moments = {
        (each.record_type, each.record_id): max(event.occurred_at for event in each.events) for each in reversals
    }
    later: dict[UUID, list[RecordedEvent]] = {}
    for event in await events.changes_since(tx, caller, request_id, moments):
        later.setdefault(event.entity_id, []).append(event)
    return later


def _state_before(reversal: Reversal, words: Difference | None, later: Sequence[RecordedEvent]) -> State:
    """Return the state of a record before the call; raises `CannotUndo` if something changed it since."""
    name = f"the {reversal.record_type} {reversal.record_id}"
    fields = {each for event in reversal.events for each in event.fields}
    for event in later:
        if reversal.is_created or fields & event.fields:
            raise CannotUndo(f"{name} was changed since by {event.event_type}")
    if words is None and fields & WORD_FIELDS:
        raise CannotUndo(f"the words of {name} before the edit are deleted")
    if "merged_into" in reversal.now.get("metadata", {}):
        raise CannotUndo(f"{name} was merged into another one since")
    told = [difference_of_payload(each.payload) for each in reversal.events if "before" in each.payload]
    try:
        before = revert(reversal.now, [*told, *([words] if words else [])])
        return _forgotten(reversal.record_type, before) if reversal.is_created else before
    except ChangedSince as changed:
        raise CannotUndo(f"{name} has changed since: {', '.join(changed.fields)}") from None


def _forgotten(record_type: str, state: State) -> State:
    """Return the state of a memory whose creation is undone; it has to be live."""
    forgotten = FORGOTTEN_STATE[record_type]
    is_live = state.get("validity") == "active" or state.get("forgotten") is False
    if not is_live:
        raise ChangedSince(list(forgotten))
    return {**state, **forgotten}


async def _check_keys(tx: Connection, caller: Caller, reversals: Sequence[Reversal]) -> None:
    """Raise `CannotUndo` if another live fact has the key that a fact takes."""
    wanted = {
        each.record_id: UUID(entity_id) if (entity_id := each.before["entity_id"]) else None
        for each in reversals
        if each.takes_key
    }
    leaving = [
        each.record_id for each in reversals if each.record_type == "fact" and each.before.get("validity") != "active"
    ]
    holders = await facts.key_holders(tx, caller, wanted, leaving) if wanted else {}
    for fact_id, holder in holders.items():
        raise CannotUndo(f"the fact {holder} has the key of the fact {fact_id} by now")


async def _write(
    tx: Connection, caller: Caller, request_id: str, reversals: Sequence[Reversal], warnings: Warnings
) -> None:
    """Write the states before the call of records of one type, and the events that say so."""
    if not reversals:
        return
    changed = {each.record_id: each.before for each in reversals if each.change.after}
    if changed:
        await states.write(tx, caller, reversals[0].record_type, changed)
    for each in reversals:
        for event in each.events:
            await _reverse_content(tx, caller, each, event, warnings)
    undone = [each.undone_event(event, request_id) for each in reversals for event in each.events]
    await events.append(tx, caller, *undone)
    words = {each.record_id: each.change.words for each in reversals if each.change.words.after}
    if words:
        await edit_history.remember(tx, caller, reversals[0].record_type, words)


async def _reverse_content(
    tx: Connection, caller: Caller, reversal: Reversal, event: RecordedEvent, warnings: Warnings
) -> None:
    """Give back what is no value of a state: a link to a twin is deleted, a rule has the words of its warning."""
    if event.event_type in {"fact_related", "rule_related"}:
        other = UUID(event.payload["related_to"])
        await links.delete_related(tx, caller, reversal.record_type, reversal.record_id, other)
    if event.event_type.endswith("_confirmation_withdrawn"):
        supporting = event.payload.get("links", [])
        await consolidation_runs.restore_support(tx, caller, reversal.record_type, reversal.record_id, supporting)
    if event.event_type == _REVERTED:
        warning = warnings.get(reversal.record_id)
        if warning is None or not await rule_inversion.warn_again(tx, caller, reversal.record_id, *warning):
            raise CannotUndo(f"the rule {reversal.record_id} has another content by now")
