"""Queries on the memory_events table, the audit trail; events hold no content."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.store.statements import statements

_sql = statements("events")
_RECORDED = ("event_type", "entity_type", "entity_id", "payload", "occurred_at")


@dataclass(frozen=True, slots=True)
class Event:
    """A change of one memory or entity."""

    event_type: str
    entity_type: str
    entity_id: UUID
    payload: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event as it was recorded, with its time."""

    event_type: str
    entity_type: str
    entity_id: UUID
    payload: Mapping[str, Any]
    occurred_at: datetime

    @property
    def record(self) -> tuple[str, UUID]:
        """The type and id of the record it changed."""
        return self.entity_type, self.entity_id

    @property
    def fields(self) -> set[str]:
        """The names of the fields it changed, as far as it tells them."""
        return {*self.payload.get("before", {}), *self.payload.get("words", [])}


@dataclass(frozen=True, slots=True)
class EventKind:
    """The events of one type in one call: their number, and whether all tell the state before and one is an undo."""

    event_type: str
    number: int
    has_before: bool
    is_undo: bool
    entity_type: str = ""
    entity_id: UUID | None = None
    """The record of the first of them."""


@dataclass(frozen=True, slots=True)
class EventPage:
    """Some events of a memory, the number of all, and whether more follow."""

    events: Sequence[Mapping[str, Any]]
    total: int
    has_more: bool


def fact_superseded(fact_id: UUID, confidence: float, payload: Mapping[str, Any]) -> Event:
    """The event of a live fact that was superseded."""
    change = {"confidence": confidence, "validity": "superseded", "before": {"validity": "active"}}
    return Event("fact_superseded", "fact", fact_id, {**payload, **change})


def caller_payload(caller: Caller) -> dict[str, Any]:
    """The butler, session, way in and, for an elevated call, the home tenant of a caller; part of every event."""
    known = {
        "butler": caller.butler,
        "elevated_from": caller.home_tenant,
        "session_id": caller.session_id,
        "via": caller.via,
    }
    return {name: value for name, value in known.items() if value is not None}


def event_origin(caller: Caller, payload: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of an event that tell who caused it, for a statement that writes a memory and its event."""
    return {
        "actor": caller.actor,
        "request_id": caller.request_id,
        "payload": {**caller_payload(caller), **payload},
    }


async def append(tx: Connection, caller: Caller, *events: Event) -> None:
    """Append the events of a change, in its transaction."""
    if not events:
        return
    origin = caller_payload(caller)
    await _sql.append(
        tx,
        tenant_id=caller.tenant,
        event_types=[event.event_type for event in events],
        entity_types=[event.entity_type for event in events],
        entity_ids=[event.entity_id for event in events],
        actor=caller.actor,
        request_id=caller.request_id,
        payloads=[{**origin, **event.payload} for event in events],
    )


async def of_memory(
    tx: Connection, caller: Caller, memory_type: str, memory_id: UUID, *, after: UUID | None, limit: int
) -> EventPage | None:
    """The first events of one memory, or those after one of them, oldest first; None if it has no such event."""
    memory = {"tenant_id": caller.tenant, "entity_type": memory_type, "entity_id": memory_id, "after": after}
    counted = await _sql.count_of_memory(tx, **memory)
    if after is not None and not counted["has_event"]:
        return None
    rows = [dict(row) async for row in _sql.of_memory(tx, **memory, max_rows=limit + 1)]
    return EventPage(rows[:limit], counted["total"], has_more=len(rows) > limit)


async def find(tx: Connection, caller: Caller, event_id: UUID) -> tuple[RecordedEvent, str | None] | None:
    """One event and the id of its call, or None."""
    row = await _sql.find(tx, tenant_id=caller.tenant, id=event_id)
    return (RecordedEvent(**{name: row[name] for name in _RECORDED}), row["request_id"]) if row else None


async def last_request(tx: Connection, caller: Caller, max_rows: int) -> str | None:
    """The caller's latest call that changed something and was not undone, among so many newest events."""
    found: str | None = await _sql.last_request(tx, tenant_id=caller.tenant, actor=caller.actor, max_rows=max_rows)
    return found


async def companions(tx: Connection, caller: Caller, request_id: str, record_id: UUID) -> list[UUID]:
    """The records of a call that are undone together with this one."""
    rows = _sql.companions(tx, tenant_id=caller.tenant, request_id=request_id, record_id=record_id)
    return [row["id"] async for row in rows]


async def records_of_request(
    tx: Connection, caller: Caller, request_id: str, among: Sequence[UUID] | None = None
) -> dict[str, list[UUID]]:
    """The ids of the records that a call changed and that were not given back, by type."""
    rows = _sql.records_of_request(tx, tenant_id=caller.tenant, request_id=request_id, record_ids=among)
    return {row["entity_type"]: row["ids"] async for row in rows}


async def of_records(
    tx: Connection, caller: Caller, request_id: str, record_type: str, ids: Sequence[UUID]
) -> list[RecordedEvent]:
    """The events of one call on some records, latest first."""
    rows = _sql.of_records(
        tx, tenant_id=caller.tenant, request_id=request_id, record_type=record_type, record_ids=list(ids)
    )
    return [RecordedEvent(**row) async for row in rows]


async def former_entities(tx: Connection, caller: Caller, request_id: str) -> set[UUID]:
    """The entities that facts had before a call."""
    rows = _sql.former_entities(tx, tenant_id=caller.tenant, request_id=request_id)
    return {UUID(row["entity_id"]) async for row in rows}


async def of_request(tx: Connection, caller: Caller, request_id: str, limit: int) -> list[RecordedEvent]:
    """The events of one call, latest first."""
    rows = _sql.of_request(tx, tenant_id=caller.tenant, request_id=request_id, max_rows=limit)
    return [RecordedEvent(**row) async for row in rows]


async def kinds_of_request(
    tx: Connection, caller: Caller, request_id: str, among: Sequence[UUID] | None = None
) -> list[EventKind]:
    """The kinds of events of one call, or of those on some records."""
    rows = _sql.kinds_of_request(tx, tenant_id=caller.tenant, request_id=request_id, record_ids=among)
    return [EventKind(**row) async for row in rows]


async def is_undone(tx: Connection, caller: Caller, request_id: str, among: Sequence[UUID] | None = None) -> bool:
    """Whether a call was undone, or what it did to some records."""
    return bool(await _sql.is_undone(tx, tenant_id=caller.tenant, request_id=request_id, record_ids=among))


async def lock_request(tx: Connection, caller: Caller, request_id: str) -> None:
    """Wait until no other transaction undoes this call."""
    await _sql.lock_request(tx, tenant_id=caller.tenant, request_id=request_id)


async def changes_since(
    tx: Connection, caller: Caller, request_id: str, moments: Mapping[tuple[str, UUID], datetime]
) -> list[RecordedEvent]:
    """Later events of other calls that changed these records, each since its moment; undone ones do not count."""
    rows = _sql.changes_since(
        tx,
        tenant_id=caller.tenant,
        request_id=request_id,
        record_types=[record_type for record_type, _ in moments],
        record_ids=[record_id for _, record_id in moments],
        moments=list(moments.values()),
    )
    return [RecordedEvent(**row) async for row in rows]


async def has_recent(tx: Connection, caller: Caller, event_type: str, age: timedelta) -> bool:
    """Whether the caller caused an event of a type within this age."""
    found: bool = await _sql.has_recent(
        tx, tenant_id=caller.tenant, event_type=event_type, actor=caller.actor, seconds=age.total_seconds()
    )
    return found


async def latest(tx: Connection, caller: Caller) -> datetime | None:
    """The time of the newest event."""
    time: datetime | None = await _sql.latest(tx, tenant_id=caller.tenant)
    return time
