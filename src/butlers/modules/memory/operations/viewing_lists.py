"""Lists of facts, rules, episodes and entities for people: filters, facets and pages. They change nothing."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain import decay
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.operations.paging import (
    MAX_COUNTED,
    MAX_SCANNED,
    PAGE_ROWS,
    ListPage,
    Position,
    PositionKind,
    Start,
    fetch_page,
)
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import viewing_lists as queries

MAX_OLDEST = 1_000
"""Facts of each permanence that the orders by confidence and by fading look at: those confirmed longest ago."""
MAX_LIVE_FACTS = 1_000
_LIVE = ("active", "fading")
GROUP_ROWS = 20
RULE_GROUPS = ("warning", "awaiting inversion", "proven", "established", "candidate")

Record = Mapping[str, Any]
Facets = Mapping[str, Sequence[tuple[str, int]]]


@dataclass(frozen=True, slots=True)
class MemoryFilter:
    """The facts or rules that a list shows, and in which order."""

    memory_type: MemoryType = MemoryType.FACT
    subject: str | None = None
    predicate: str | None = None
    scope: str | None = None
    state: str = "live"
    """live, all, or one state."""
    permanence: str | None = None
    provenance: str | None = None
    tag: str | None = None
    entity_id: UUID | None = None
    min_confidence: float | None = None
    below_confidence: float | None = None
    group: str | None = None
    """A group of rules."""
    sort: str = "newest"

    @property
    def position_kind(self) -> PositionKind:
        """How a position in the list is written."""
        return "time" if self.sort == "newest" else "number"

    def scan_conditions(self) -> dict[str, Any]:
        """Return the conditions for which there is an index."""
        maturity = {"warning": "anti_pattern", None: None, "awaiting inversion": None}.get(self.group, self.group)
        awaits = None if self.group in {None, "warning"} else self.group == "awaiting inversion"
        return {
            "memory_type": self.memory_type,
            "subject": self.subject,
            "entity_id": self.entity_id,
            "maturity": maturity,
            "awaits_inversion": awaits,
        }

    def conditions(self) -> dict[str, Any]:
        """Return all conditions."""
        return self.scan_conditions() | {
            "states": {"all": None, "live": list(_LIVE)}.get(self.state, [self.state]),
            "scope": self.scope,
            "permanence": self.permanence,
            "predicate": self.predicate,
            "provenance": self.provenance,
            "tag": self.tag,
            "min_confidence": self.min_confidence,
            "below_confidence": self.below_confidence,
        }


@dataclass(frozen=True, slots=True)
class Counts:
    """How many rows match among the newest ones, in all and by facet."""

    facets: Facets
    total: int
    is_capped: bool
    """Whether there are more rows than were counted."""
    limit: int = MAX_COUNTED


@dataclass(frozen=True, slots=True)
class MemoryList:
    """A page of facts or rules, with counts."""

    page: ListPage
    counts: Counts


@dataclass(frozen=True, slots=True)
class RuleGroup:
    """The first rules of a group, and whether there are more."""

    name: str
    rows: Sequence[Record]
    has_more: bool


async def list_facts(memory: Memory, caller: Caller, wanted: MemoryFilter, start: Start) -> MemoryList:
    """Return a page of facts, each with the time at which it fades."""
    fading_below = memory.config.confidence.fading_below
    async with memory.transaction(caller) as tx:
        page = await _page_of_ids(memory, tx, caller, wanted, start)
        rows = await queries.facts(tx, caller, [row["id"] for row in page.rows])
        counts = await _count(tx, caller, wanted)
    return MemoryList(replace(page, rows=[_with_fading(row, fading_below) for row in rows]), counts)


async def list_rules(memory: Memory, caller: Caller, wanted: MemoryFilter, start: Start) -> MemoryList:
    """Return a page of rules with their latest marks."""
    async with memory.transaction(caller) as tx:
        page = await _page_of_ids(memory, tx, caller, wanted, start)
        rows = await _rules_with_marks(tx, caller, [row["id"] for row in page.rows])
        counts = await _count(tx, caller, wanted)
    return MemoryList(replace(page, rows=rows), counts)


async def group_rules(memory: Memory, caller: Caller, wanted: MemoryFilter) -> tuple[list[RuleGroup], Counts]:
    """Return the newest rules of each group that has any."""
    async with memory.transaction(caller) as tx:
        found: dict[str, list[UUID]] = {}
        for name in RULE_GROUPS:
            rows = await _matching(memory, tx, caller, replace(wanted, group=name), Start(), GROUP_ROWS + 1)
            found[name] = [row["id"] for row in rows]
        ids = [each for group in found.values() for each in group[:GROUP_ROWS]]
        rules = {row["id"]: row for row in await _rules_with_marks(tx, caller, ids)}
        counts = await _count(tx, caller, wanted)
    groups = [
        RuleGroup(name, [rules[each] for each in group[:GROUP_ROWS] if each in rules], len(group) > GROUP_ROWS)
        for name, group in found.items()
        if group
    ]
    return groups, counts


async def count_without(memory: Memory, caller: Caller, filters: Mapping[str, MemoryFilter]) -> dict[str, int]:
    """Return how many match each of these filters."""
    async with memory.transaction(caller) as tx:
        return {name: (await _count(tx, caller, wanted)).total for name, wanted in filters.items()}


async def matching_ids(memory: Memory, caller: Caller, wanted: MemoryFilter, max_rows: int) -> list[UUID]:
    """Return the ids of the facts or rules that a list shows on all its pages, up to a number; newest first."""
    newest = replace(wanted, sort="newest")

    async def fetch(tx: Connection, start: Start, rows: int) -> Sequence[Record]:
        return await _matching(memory, tx, caller, newest, start, rows)

    async def last(tx: Connection, start: Start) -> Record | None:
        return await queries.last_scanned(
            tx, caller, **wanted.scan_conditions(), **place(start), max_scanned=MAX_SCANNED
        )

    return await _ids_of_all_pages(memory, caller, fetch, last, max_rows)


async def _ids_of_all_pages(
    memory: Memory,
    caller: Caller,
    fetch: Callable[[Connection, Start, int], Awaitable[Sequence[Record]]],
    last_scanned: Callable[[Connection, Start], Awaitable[Record | None]],
    max_rows: int,
) -> list[UUID]:
    """Return the ids that a list has, up to a number. Each transaction looks at `MAX_SCANNED` rows."""
    ids: list[UUID] = []
    start: Start | None = Start()
    while start is not None and len(ids) < max_rows:
        async with memory.transaction(caller) as tx:
            ids += [row["id"] for row in await fetch(tx, start, max_rows - len(ids))]
            last = await last_scanned(tx, start)
        start = Start(Position(last["created_at"], last["id"])) if last else None
    return ids


async def find_by_id(memory: Memory, caller: Caller, first_id: UUID, last_id: UUID) -> list[Record]:
    """Return the memories and entities with an id in a range, up to a page."""
    async with memory.transaction(caller) as tx:
        return await queries.find_by_id(tx, caller, first_id, last_id, PAGE_ROWS)


async def _page_of_ids(
    memory: Memory, tx: Connection, caller: Caller, wanted: MemoryFilter, start: Start
) -> ListPage:
    read_at = _read_at(start)

    async def last_scanned(at: Start) -> Position | None:
        row = await queries.last_scanned(tx, caller, **wanted.scan_conditions(), **place(at), max_scanned=MAX_SCANNED)
        return Position(row["created_at"], row["id"]) if row else None

    def position_of(row: Record) -> Position:
        if wanted.sort == "newest":
            return Position(row["created_at"], row["id"])
        return Position(row["key"], row["id"], read_at)

    return await fetch_page(
        start,
        lambda at: _matching(memory, tx, caller, wanted, at, PAGE_ROWS + 1, read_at),
        position_of,
        last_scanned if wanted.sort == "newest" else None,
    )


async def _matching(
    memory: Memory,
    tx: Connection,
    caller: Caller,
    wanted: MemoryFilter,
    start: Start,
    max_rows: int,
    read_at: datetime | None = None,
) -> list[Record]:
    return await queries.matching(
        tx,
        caller,
        **wanted.conditions(),
        **place(start),
        sort=wanted.sort,
        at=read_at or _read_at(start),
        from_key=start.key,
        fading_below=memory.config.confidence.fading_below,
        max_scanned=MAX_SCANNED,
        max_oldest=MAX_OLDEST,
        max_rows=max_rows,
    )


def _read_at(start: Start) -> datetime:
    return (start.position.read_at if start.position else None) or datetime.now(UTC)


def place(start: Start) -> dict[str, Any]:
    """Return the start of a page as conditions of a query."""
    return {"from_time": start.time, "from_id": start.id, "is_backward": start.is_backward}


async def _count(tx: Connection, caller: Caller, wanted: MemoryFilter) -> Counts:
    return to_counts(await queries.facets(tx, caller, **wanted.conditions(), max_counted=MAX_COUNTED))


async def _rules_with_marks(tx: Connection, caller: Caller, ids: Sequence[UUID]) -> list[Record]:
    marks = await queries.rule_marks(tx, caller, ids)
    return [{**row, "marks": marks[row["id"]]} for row in await queries.rules(tx, caller, ids)]


def _with_fading(row: Record, threshold: float) -> Record:
    fades_at = decay.fades_at(row["stored_confidence"], row["decay_rate"], row["last_confirmed_at"], threshold)
    return {**row, "fades_at": fades_at}


def to_counts(rows: Iterable[Record]) -> Counts:
    """Return the rows of a facet query as counts."""
    facets: dict[str, list[tuple[str, int]]] = {}
    for row in rows:
        facets.setdefault(row["facet"], []).append((row["value"], row["number"]))
    total = facets.pop("total", [("", 0)])[0][1]
    counted = facets.pop("counted", [("", 0)])[0][1]
    return Counts(facets, total, is_capped=counted >= MAX_COUNTED)


@dataclass(frozen=True, slots=True)
class EpisodeFilter:
    """The episodes that a list shows."""

    butler: str | None = None
    session_id: UUID | None = None
    state: str | None = None
    """A consolidation status."""
    is_gone: bool | None = False
    """Expired or forgotten episodes, those that are not, or None for both."""

    def scan_conditions(self) -> dict[str, Any]:
        """Return the conditions for which there is an index."""
        return {"butler": self.butler, "session_id": self.session_id}

    def conditions(self) -> dict[str, Any]:
        """Return all conditions."""
        statuses = [self.state] if self.state else None
        return self.scan_conditions() | {"statuses": statuses, "is_gone": self.is_gone}


async def list_episodes(memory: Memory, caller: Caller, wanted: EpisodeFilter, start: Start) -> MemoryList:
    """Return a page of episodes, newest first."""
    async with memory.transaction(caller) as tx:

        async def fetch(at: Start) -> Sequence[Record]:
            limits = {"max_scanned": MAX_SCANNED, "max_rows": PAGE_ROWS + 1}
            return await queries.episodes(tx, caller, **wanted.conditions(), **place(at), **limits)

        async def last_scanned(at: Start) -> Position | None:
            row = await queries.last_scanned_episode(
                tx, caller, **wanted.scan_conditions(), **place(at), max_scanned=MAX_SCANNED
            )
            return Position(row["created_at"], row["id"]) if row else None

        page = await fetch_page(start, fetch, lambda row: Position(row["created_at"], row["id"]), last_scanned)
        counts = await queries.episode_facets(tx, caller, **wanted.conditions(), max_counted=MAX_COUNTED)
    return MemoryList(page, to_counts(counts))


async def matching_episode_ids(memory: Memory, caller: Caller, wanted: EpisodeFilter, max_rows: int) -> list[UUID]:
    """Return the ids of the episodes that a list shows on all its pages, up to a number; newest first."""

    async def fetch(tx: Connection, start: Start, rows: int) -> Sequence[Record]:
        limits = {"max_scanned": MAX_SCANNED, "max_rows": rows}
        return await queries.episodes(tx, caller, **wanted.conditions(), **place(start), **limits)

    async def last(tx: Connection, start: Start) -> Record | None:
        return await queries.last_scanned_episode(
            tx, caller, **wanted.scan_conditions(), **place(start), max_scanned=MAX_SCANNED
        )

    return await _ids_of_all_pages(memory, caller, fetch, last, max_rows)


async def count_episodes_without(
    memory: Memory, caller: Caller, filters: Mapping[str, EpisodeFilter]
) -> dict[str, int]:
    """Return how many episodes match each of these filters."""
    async with memory.transaction(caller) as tx:
        return {
            name: to_counts(
                await queries.episode_facets(tx, caller, **wanted.conditions(), max_counted=MAX_COUNTED)
            ).total
            for name, wanted in filters.items()
        }


@dataclass(frozen=True, slots=True)
class EntityFilter:
    """The entities that a list shows: the live ones by name, or the merged ones, the latest first."""

    prefix: str = ""
    entity_type: str | None = None
    is_merged: bool = False

    @property
    def position_kind(self) -> PositionKind:
        """How a position in the list is written."""
        return "time" if self.is_merged else "name"


async def list_entities(memory: Memory, caller: Caller, wanted: EntityFilter, start: Start) -> MemoryList:
    """Return a page of entities; a count of facts over `MAX_LIVE_FACTS` means more than that."""
    async with memory.transaction(caller) as tx:

        async def fetch(at: Start) -> Sequence[Record]:
            if wanted.is_merged:
                return await queries.merged_entities(
                    tx, caller, entity_type=wanted.entity_type, **place(at), max_rows=PAGE_ROWS + 1
                )
            rows = await queries.entities_by_name(
                tx,
                caller,
                prefix=wanted.prefix,
                entity_type=wanted.entity_type,
                from_name=at.name,
                from_id=at.id,
                is_backward=at.is_backward,
                max_counted=MAX_LIVE_FACTS + 1,
                max_rows=PAGE_ROWS + 1,
            )
            return rows[::-1] if at.is_backward else rows

        page = await fetch_page(
            start, fetch, lambda row: Position(row["updated_at" if wanted.is_merged else "position"], row["id"])
        )
        facets = to_counts(await queries.entity_facets(tx, caller, MAX_COUNTED)).facets
    return MemoryList(page, Counts(facets, len(page.rows), is_capped=False))
