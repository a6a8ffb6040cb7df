"""Undo of one call: every record it changed gets back the state before it, as its events tell it."""

from collections.abc import Iterable, Mapping, Sequence
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
from butlers.modules.memory.store import edit_history, entities, events, facts, links, states
from butlers.modules.memory.store.events import Event, EventKind, RecordedEvent

MAX_EVENTS = 5_000
"""Events of one call that can be undone together."""
_MAX_PLANNED = 100
"""A page plans the undo of a call with as many events; a larger one takes too long to plan for a look."""
_CREATIONS = frozenset({"fact_created", "rule_created"})
_WITHOUT_STATE = frozenset(
    {f"{each}_{act}" for each in ("fact", "rule", "entity") for act in ("looked_at", "related")}
)
_REASONS = {
    "entity_merge": "a merge of entities is final",
    "episode_requeued": "consolidation may have read the episode by now; forget it to take it out of the queue",
    "episode_consolidated": "it is a consolidation run; retract what came from its episodes instead",
}

RecordKey = tuple[str, UUID]


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
    def becomes_live(self) -> bool:
        """Whether it is a fact that gets a key."""
        return self.record_type == "fact" and self.before.get("validity") == "active"

    def undone_event(self, each: RecordedEvent, request_id: str) -> Event:
        """The event that says that one event is undone, with the values that are set."""
        values = {name: value for name, value in self.change.after.items() if name not in WORD_FIELDS}
        told = {"confidence": self.before["confidence"]} if "confidence" in self.before else {}
        payload = {**told, **values, "undone": request_id}
        return Event(f"{each.event_type}_undone", each.entity_type, each.entity_id, payload)


async def undo(memory: Memory, caller: Caller, request_id: str, request: Request) -> Answer:
    """Undo everything that one call changed, in one transaction; undoing it again changes nothing.

    Raises `NotFound` if the call changed nothing, and `Conflict` if something changed since or can't be undone.
    """

    async def work(tx: Connection) -> Answer:
        await events.lock_request(tx, caller, request_id)
        if await events.is_undone(tx, caller, request_id):
            return {"request_id": request_id, "undone": [], "already": True}
        reversals = await _plan(tx, caller, request_id, lock=True)
        try:
            await _write(tx, caller, reversals)
        except asyncpg.UniqueViolationError as violation:
            raise CannotUndo(_taken(violation)) from None
        undone = [each.undone_event(event, request_id) for each in reversals for event in each.events]
        await events.append(tx, caller, *undone)
        await edit_history.delete_of_request(tx, caller, request_id)
        return {"request_id": request_id, "undone": [_describe(each) for each in reversals]}

    transaction = memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS)
    return await run_once(transaction, caller, request, work)


async def preview_undo(memory: Memory, caller: Caller, request_id: str) -> list[dict[str, Any]] | None:
    """Return what an undo of the call would change, or None if it can't be undone; nothing changes."""
    async with memory.transaction(caller) as tx:
        if await events.is_undone(tx, caller, request_id):
            return None
        try:
            return [_describe(each) for each in await _plan(tx, caller, request_id, lock=False)]
        except (Conflict, NotFound):
            return None


async def can_undo(memory: Memory, caller: Caller, request_id: str) -> bool:
    """Return whether a call can be undone. Of a call with many events only the kinds of events are looked at."""
    async with memory.transaction(caller) as tx:
        kinds = await events.kinds_of_request(tx, caller, request_id)
        is_undone = await events.is_undone(tx, caller, request_id)
    total = sum(each.number for each in kinds)
    if is_undone or not 0 < total <= MAX_EVENTS or any(_refusal(each) for each in kinds):
        return False
    return total > _MAX_PLANNED or await preview_undo(memory, caller, request_id) is not None


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


async def _plan(tx: Connection, caller: Caller, request_id: str, *, lock: bool) -> list[Reversal]:
    """Return the reversals of a call; with `lock`, the records stay locked until the transaction ends."""
    found = await events.of_request(tx, caller, request_id, MAX_EVENTS + 1)
    _check_reversible(found, request_id)
    reversals: dict[RecordKey, Reversal] = {}
    for event in found:
        reversals.setdefault(event.record, Reversal(*event.record)).events.append(event)
    if lock:
        await _lock_keys(tx, caller, reversals.values())
    await _add_states(tx, caller, reversals.values(), lock=lock)
    words = await edit_history.of_request(tx, caller, request_id)
    later = await _changes_since(tx, caller, request_id, reversals)
    for key, each in reversals.items():
        each.before = _state_before(each, words.get(key), later.get(key, ()))
    await _check_keys(tx, caller, list(reversals.values()))
    return list(reversals.values())


def _check_reversible(found: Sequence[RecordedEvent], request_id: str) -> None:
    if not found:
        raise NotFound(f"no call {request_id} changed anything", hint="The audit trail has the ids of the calls.")
    if len(found) > MAX_EVENTS:
        raise CannotUndo(f"it has more than {MAX_EVENTS:,} events")
    for each in found:
        kind = EventKind(each.event_type, 1, has_before="before" in each.payload, is_undo="undone" in each.payload)
        if reason := _refusal(kind):
            raise CannotUndo(reason)


async def _lock_keys(tx: Connection, caller: Caller, reversals: Iterable[Reversal]) -> None:
    """Lock the keys of the facts, those of the entities they came from included, before any row."""
    moved_from = {
        UUID(former)
        for each in reversals
        for event in each.events
        if each.record_type == "fact" and (former := event.payload.get("before", {}).get("entity_id"))
    }
    for entity_id in sorted(moved_from):
        await entities.lock_live(tx, caller, entity_id)
    fact_ids = [each.record_id for each in reversals if each.record_type == "fact"]
    await facts.lock_keys_of_facts(tx, caller, fact_ids, moved_from)


async def _add_states(tx: Connection, caller: Caller, reversals: Iterable[Reversal], *, lock: bool) -> None:
    read = states.lock if lock else states.fetch
    for record_type in ("entity", "fact", "rule", "episode"):
        of_type = {each.record_id: each for each in reversals if each.record_type == record_type}
        found = await read(tx, caller, record_type, of_type) if of_type else {}
        for record_id, each in of_type.items():
            if record_id not in found:
                raise CannotUndo(f"the {record_type} {record_id} was deleted since")
            each.now = found[record_id]


async def _changes_since(
    tx: Connection, caller: Caller, request_id: str, reversals: Mapping[RecordKey, Reversal]
) -> dict[RecordKey, list[RecordedEvent]]:
    moments = {key: max(event.occurred_at for event in each.events) for key, each in reversals.items()}
    later: dict[RecordKey, list[RecordedEvent]] = {}
    for event in await events.changes_since(tx, caller, request_id, moments):
        later.setdefault(event.record, []).append(event)
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
    """Raise `CannotUndo` if another live fact has the key of a fact that becomes live."""
    wanted = {
        each.record_id: UUID(entity_id) if (entity_id := each.before["entity_id"]) else None
        for each in reversals
        if each.becomes_live
    }
    leaving = [each.record_id for each in reversals if each.record_type == "fact" and not each.becomes_live]
    holders = await facts.key_holders(tx, caller, wanted, leaving) if wanted else {}
    for fact_id, holder in holders.items():
        raise CannotUndo(f"the fact {holder} has the key of the fact {fact_id} by now")


async def _write(tx: Connection, caller: Caller, reversals: Sequence[Reversal]) -> None:
    # Facts that become live come last: those that have their keys are out of the way by then.
    for each in sorted(reversals, key=lambda one: (one.becomes_live, one.record_type, one.record_id)):
        if each.change.after:
            await states.write(tx, caller, each.record_type, each.record_id, each.before)
        for event in each.events:
            if event.event_type in {"fact_related", "rule_related"}:
                other = UUID(event.payload["related_to"])
                await links.delete_related(tx, caller, each.record_type, each.record_id, other)
