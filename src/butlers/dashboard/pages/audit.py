"""The audit page: events by request, and the same as a CSV file."""

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any
from uuid import UUID

from starlette.responses import Response, StreamingResponse

from butlers.dashboard.event_sentences import object_name, verb_for
from butlers.dashboard.listing import Facet, ListQuery
from butlers.dashboard.page import Page
from butlers.dashboard.pages.route import PageRoute
from butlers.dashboard.pages.search import FOLDERS
from butlers.modules.memory.operations import undo, viewing_audit
from butlers.modules.memory.operations.paging import ListPage, Record
from butlers.modules.memory.operations.viewing_audit import MAX_EXPORTED, VIA, EventFilter
from butlers.modules.memory.operations.viewing_lists import Counts

_LABELS = {
    "type": "event",
    "actor": "actor",
    "via": "via",
    "memory": "memory",
    "request": "request",
    "since": "since",
    "until": "until",
}
_COLUMNS = ("time", "event", "actor", "via", "sentence", "type", "id", "request", "details")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


@dataclass(frozen=True, slots=True)
class EventLine:
    """An event as a sentence: the actor, what they did, and to what."""

    time: datetime
    event_type: str
    actor: str
    via: str
    verb: str
    object: str
    path: str
    """The page of the memory; empty if it is deleted."""
    memory_id: UUID | None
    undo: str = ""
    """The id of the event, if it may be undone."""


@dataclass(frozen=True, slots=True)
class RequestGroup:
    """The events of one call that follow each other."""

    request_id: str
    lines: Sequence[EventLine]


def event_filter(query: ListQuery) -> EventFilter:
    """Return the filter of the audit page; raises `InvalidInput`."""
    return EventFilter(
        event_type=query.get("type"),
        actor=query.get("actor"),
        memory_id=query.uuid("memory"),
        request_id=query.get("request"),
        since=query.time("since"),
        until=query.time("until", is_end=True),
        via=query.get("via") and query.choice("via", VIA, ""),
    )


async def show_audit(page: Page) -> Response:
    """Show the events that match, newest first."""
    query = ListQuery.read(page, "/audit", **_LABELS)
    found = await viewing_audit.list_events(page.memory, page.caller, event_filter(query), query.start("time"))
    left = {}
    if not found.page.rows:
        others = {name: event_filter(other) for name, other in query.without_each().items()}
        left = await viewing_audit.count_events_without(page.memory, page.caller, others)
    grouped = groupby(found.page.rows, key=lambda row: row["request_id"] or "")
    return await page.render(
        "audit.html",
        groups=[RequestGroup(request_id, [to_line(row) for row in rows]) for request_id, rows in grouped],
        query=query,
        counts=found.counts,
        facets=_facets(query, found.counts),
        active=query.active_filters(left),
        pager=query.pager(found.page),
        csv_url=page.url("/audit.csv", **query.values),
        max_exported=MAX_EXPORTED,
        can_undo=await _can_undo(page, query.get("request")),
    )


async def _can_undo(page: Page, request_id: str | None) -> bool:
    return request_id is not None and await undo.can_undo(page.memory, page.caller, request_id)


async def download_audit(page: Page) -> Response:
    """Return the events that match as CSV."""
    query = ListQuery.read(page, "/audit.csv", **_LABELS)
    batches = viewing_audit.export_events(page.memory, page.caller, event_filter(query))
    # The first batch before the answer begins: an error is then a page.
    first = await anext(batches)
    headers = {"Content-Disposition": 'attachment; filename="audit.csv"'}
    return StreamingResponse(_stream_csv(first, batches), media_type="text/csv", headers=headers)


async def _stream_csv(first: ListPage, others: AsyncIterator[ListPage]) -> AsyncIterator[str]:
    # In a thread: a batch takes some milliseconds, and other calls go on meanwhile.
    yield await asyncio.to_thread(_write_csv, first, _COLUMNS)
    async for batch in others:
        yield await asyncio.to_thread(_write_csv, batch)


def _write_csv(found: ListPage, columns: Sequence[str] = ()) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    if columns:
        writer.writerow(columns)
    writer.writerows([_as_cell(value) for value in _csv_row(row)] for row in found.rows)
    if found.older:
        writer.writerow([f"The file ends after {MAX_EXPORTED} events. Older ones: until={found.older.value}."])
    return text.getvalue()


def to_line(row: Record) -> EventLine:
    """Return an event as a sentence."""
    is_known = row["name"] is not None and row["entity_type"] in FOLDERS
    return EventLine(
        time=row["occurred_at"],
        event_type=row["event_type"],
        actor=row["actor"] or "unknown",
        via=row["via"],
        verb=verb_for(row),
        object=object_name(row),
        path=FOLDERS[row["entity_type"]] + str(row["entity_id"]) if is_known else "",
        memory_id=row["entity_id"],
        undo=str(row["id"]) if undo.may_have_inverse(row["event_type"], row["payload"]) else "",
    )


def _csv_row(row: Record) -> tuple[Any, ...]:
    line = to_line(row)
    sentence = f"{line.actor} {line.verb} {line.object}"
    address = row["entity_type"] or "", line.memory_id or "", row["request_id"] or ""
    return (
        line.time.isoformat(),
        line.event_type,
        line.actor,
        line.via,
        sentence,
        *address,
        json.dumps(row["payload"]),
    )


def _as_cell(value: object) -> str:
    """Return a value as text that a spreadsheet does not take for a formula."""
    text = str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _facets(query: ListQuery, counts: Counts) -> list[Facet]:
    facets = [
        query.facet(name, [each for each in counts.facets.get(name, ()) if each[0]])
        for name in ("type", "actor", "via")
    ]
    return [each for each in facets if each.links]


ROUTES = (PageRoute("/audit", show_audit), PageRoute("/audit.csv", download_audit))
