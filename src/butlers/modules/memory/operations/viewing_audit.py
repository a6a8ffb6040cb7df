"""The audit trail for people: events by filter with the present names of their memories. Reading changes nothing."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.operations.paging import (
    MAX_COUNTED,
    MAX_SCANNED,
    PAGE_ROWS,
    ListPage,
    Position,
    Start,
    fetch_page,
)
from butlers.modules.memory.operations.viewing_lists import Counts, MemoryList, place, to_counts
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import viewing_audit as queries

MAX_EXPORTED = 10_000
_EXPORTED_AT_ONCE = 500
VIA = ("tool", "dashboard", "consolidation", "job")

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EventFilter:
    """The events that the audit page shows."""

    event_type: str | None = None
    actor: str | None = None
    memory_id: UUID | None = None
    request_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    via: str | None = None

    def scan_conditions(self) -> dict[str, Any]:
        """Return the conditions for which there is an index."""
        return {
            "event_type": self.event_type,
            "entity_ids": [self.memory_id] if self.memory_id else None,
            "request_id": self.request_id,
            "since": self.since,
            "until": self.until,
        }

    def conditions(self) -> dict[str, Any]:
        """Return all conditions."""
        return self.scan_conditions() | {"actor": self.actor, "via": self.via}


async def list_events(memory: Memory, caller: Caller, wanted: EventFilter, start: Start) -> MemoryList:
    """Return a page of events, newest first, each with the name of its memory or None."""
    async with memory.transaction(caller) as tx:

        async def last_scanned(at: Start) -> Position | None:
            row = await queries.last_scanned_event(
                tx, caller, **wanted.scan_conditions(), **place(at), max_scanned=MAX_SCANNED
            )
            return Position(row["occurred_at"], row["id"]) if row else None

        page = await fetch_page(
            start,
            lambda at: _events(tx, caller, wanted, at, MAX_SCANNED, PAGE_ROWS + 1),
            lambda row: Position(row["occurred_at"], row["id"]),
            last_scanned,
        )
        named = replace(page, rows=await _with_names(tx, caller, page.rows))
        counts = await _count(tx, caller, wanted)
    return MemoryList(named, counts)


async def count_events_without(memory: Memory, caller: Caller, filters: Mapping[str, EventFilter]) -> dict[str, int]:
    """Return how many events match each of these filters."""
    async with memory.transaction(caller) as tx:
        return {name: (await _count(tx, caller, wanted)).total for name, wanted in filters.items()}


async def export_events(memory: Memory, caller: Caller, wanted: EventFilter) -> AsyncIterator[ListPage]:
    """Yield the newest events that match, up to `MAX_EXPORTED`, in batches; the last has `older` if there are more.

    A filter without an index may need to look at every event: a file is complete, or says that it is not.
    """
    start, left = Start(), MAX_EXPORTED
    while True:
        async with memory.transaction(caller) as tx:
            size = min(_EXPORTED_AT_ONCE, left)
            rows = await _events(tx, caller, wanted, start, 2**31, size + 1)
            shown = rows[:size]
            named = await _with_names(tx, caller, shown)
        left -= len(shown)
        last = Position(shown[-1]["occurred_at"], shown[-1]["id"]) if len(rows) > len(shown) else None
        yield ListPage(named, older=last if left == 0 else None)
        if last is None or left == 0:
            return
        start = Start(last)


async def _events(
    tx: Connection, caller: Caller, wanted: EventFilter, start: Start, max_scanned: int, max_rows: int
) -> list[Record]:
    limits = {"max_scanned": max_scanned, "max_rows": max_rows}
    return await queries.events(tx, caller, **wanted.conditions(), **place(start), **limits)


async def names_of(memory: Memory, caller: Caller, ids: Sequence[UUID]) -> dict[UUID, str]:
    """Return the present names of memories and entities; a deleted one has none."""
    async with memory.transaction(caller) as tx:
        return await queries.names(tx, caller, list(ids))


async def _with_names(tx: Connection, caller: Caller, rows: Sequence[Record]) -> list[Record]:
    names = await queries.names(tx, caller, list({row["entity_id"] for row in rows if row["entity_id"]}))
    return [{**row, "name": names.get(row["entity_id"])} for row in rows]


async def _count(tx: Connection, caller: Caller, wanted: EventFilter) -> Counts:
    return to_counts(await queries.event_facets(tx, caller, **wanted.conditions(), max_counted=MAX_COUNTED))
