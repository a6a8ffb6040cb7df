"""Keyset paging: positions in the order of a list, and pages that continue from one in either direction."""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import UUID

from butlers.errors import InvalidInput

PAGE_ROWS = 50
MAX_SCANNED = 10_000
"""Rows that one page looks at: a filter without an index finds its matches further back on the next pages."""
MAX_COUNTED = 2_000
"""Rows that the facets of a page count."""

PositionKind = Literal["time", "number", "name"]
Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the order of a list: the value that the list is sorted by, and the id of the row."""

    value: datetime | float | str
    id: UUID
    read_at: datetime | None = None
    """When a value that changes with time was computed; the next page computes it for the same time."""

    def __str__(self) -> str:
        value = self.value.isoformat() if isinstance(self.value, datetime) else str(self.value)
        return "~".join((value, *([self.read_at.isoformat()] if self.read_at else []), str(self.id)))

    @classmethod
    def parse(cls, text: str, kind: PositionKind) -> "Position":
        """Return the position that a text stands for; raises `ValueError`."""
        value, _, row_id = text.rpartition("~")
        if kind == "time":
            return cls(_parse_time(value), UUID(row_id))
        if kind == "name":
            return cls(value, UUID(row_id))
        number, _, read_at = value.partition("~")
        if not math.isfinite(float(number)):
            raise ValueError(number)
        return cls(float(number), UUID(row_id), _parse_time(read_at))


@dataclass(frozen=True, slots=True)
class Start:
    """Where a page starts: at the beginning, after a position, or before one."""

    position: Position | None = None
    is_backward: bool = False

    @property
    def time(self) -> datetime | None:
        """The time of the position, in lists that are sorted by time."""
        value = self.position.value if self.position else None
        return value if isinstance(value, datetime) else None

    @property
    def key(self) -> float | None:
        """The number of the position, in lists that are sorted by one."""
        value = self.position.value if self.position else None
        return value if isinstance(value, float) else None

    @property
    def name(self) -> str | None:
        """The name of the position, in lists that are sorted by name."""
        value = self.position.value if self.position else None
        return value if isinstance(value, str) else None

    @property
    def id(self) -> UUID | None:
        """The id of the position."""
        return self.position.id if self.position else None


def parse_start(before: str, after: str, kind: PositionKind) -> Start:
    """Return the start of a page from the text of a position, before or after which it is; raises `InvalidInput`."""
    if not (before or after):
        return Start()
    try:
        return Start(Position.parse(before or after, kind), is_backward=not before)
    except ValueError:
        raise InvalidInput("there is no such position in the list", hint="Start at the first page.") from None


def _parse_time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ListPage:
    """Rows of a list in its order, and the positions of its neighbours where there are any."""

    rows: Sequence[Record]
    newer: Position | None = None
    older: Position | None = None
    is_cut: bool = False
    """Whether the page has fewer rows than it could because it looked at `MAX_SCANNED` rows."""


async def fetch_page(
    start: Start,
    fetch: Callable[[Start], Awaitable[Sequence[Record]]],
    position_of: Callable[[Record], Position],
    last_scanned: Callable[[Start], Awaitable[Position | None]] | None = None,
) -> ListPage:
    """Return the page at a start. `fetch` returns up to one row more than a page, in the direction of the start."""
    rows = await fetch(start)
    has_more = len(rows) > PAGE_ROWS
    rows = rows[:PAGE_ROWS]
    cut = await last_scanned(start) if last_scanned and not has_more else None
    if start.is_backward and not has_more and cut is None:
        # The beginning of the list is nearer than a page: show the first page whole.
        return await fetch_page(Start(), fetch, position_of, last_scanned)
    onward = position_of(rows[-1]) if has_more else cut
    if start.is_backward:
        rows = rows[::-1]
        older = position_of(rows[-1]) if rows else start.position
        return ListPage(rows, newer=onward, older=older, is_cut=cut is not None)
    newer = (position_of(rows[0]) if rows else start.position) if start.position else None
    return ListPage(rows, newer=newer, older=onward, is_cut=cut is not None)
