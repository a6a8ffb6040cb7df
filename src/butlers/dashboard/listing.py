"""Parts of list pages: the filters of a URL, facets with counts, links to neighbours, and the bulk form."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from urllib.parse import parse_qsl
from uuid import UUID

from butlers.dashboard.page import Page
from butlers.errors import InvalidInput
from butlers.modules.memory.domain.model import sanitize_text
from butlers.modules.memory.operations.paging import MAX_SCANNED, ListPage, PositionKind, Start, parse_start
from butlers.modules.memory.operations.viewing_lists import Counts
from butlers.visible_text import escape_control_characters

MAX_FACET_LINKS = 12


@dataclass(frozen=True, slots=True)
class FacetLink:
    """A value of a facet: choosing it filters by it, choosing the active one removes the filter."""

    label: str
    url: str
    count: str = ""
    is_active: bool = False
    is_default: bool = False
    """Whether the value holds without a filter, so that there is none to remove."""


@dataclass(frozen=True, slots=True)
class Facet:
    """The values of one filter."""

    label: str
    links: Sequence[FacetLink]


@dataclass(frozen=True, slots=True)
class ActiveFilter:
    """A filter in use, the link without it, and how many would be left then."""

    label: str
    value: str
    url: str
    left: str = ""


@dataclass(frozen=True, slots=True)
class Pager:
    """Links to the first page, the newer and the older rows."""

    first: str = ""
    newer: str = ""
    older: str = ""
    scanned: str = ""
    """How many rows the page looked at, if it may have missed matches further back."""


@dataclass(frozen=True, slots=True)
class BulkForm:
    """The form that acts on the selected rows, or on all that match."""

    memory_type: str
    filter: str
    """The query of the list, for an act on all that match."""
    back: str
    total: str = ""
    """How many match; empty where all can't be selected."""


@dataclass(frozen=True, slots=True)
class ListQuery:
    """The filters in the URL of a list page."""

    page: Page
    path: str
    values: Mapping[str, str]
    """The filters that are set."""
    labels: Mapping[str, str]
    """The name of each filter as the page shows it, in order."""

    @classmethod
    def read(cls, page: Page, path: str, **labels: str) -> "ListQuery":
        """Read the filters of these names from the URL."""
        values = {name: text for name in labels if (text := sanitize_text(page.query(name)).strip())}
        return cls(page, path, values, labels)

    @classmethod
    def parse(cls, page: Page, path: str, text: str, **labels: str) -> "ListQuery":
        """Read the filters of these names from the query that a bulk form sends."""
        given = dict(parse_qsl(text))
        values = {name: value for name in labels if (value := sanitize_text(given.get(name, "")).strip())}
        return cls(page, path, values, labels)

    def get(self, name: str) -> str | None:
        """Return the value of a filter, or None."""
        return self.values.get(name)

    def choice(self, name: str, allowed: Sequence[str], default: str) -> str:
        """Return the value of a filter; raises `InvalidInput` if it is none of those allowed."""
        value = self.values.get(name, default)
        if value not in allowed:
            raise InvalidInput(f"there is no {name} {value!r}", hint=f"Use one of: {', '.join(allowed)}.")
        return value

    def uuid(self, name: str) -> UUID | None:
        """Return the id in a filter, or None; raises `InvalidInput`."""
        try:
            return UUID(self.values[name]) if name in self.values else None
        except ValueError:
            raise InvalidInput(f"{name} is no id", hint="Ids come from the lists.") from None

    def share(self, name: str) -> float | None:
        """Return the number from 0 to 1 in a filter, or None; raises `InvalidInput`."""
        if name not in self.values:
            return None
        try:
            number = float(self.values[name])
        except ValueError:
            number = -1.0
        if not 0 <= number <= 1:
            raise InvalidInput(f"{name} is no number from 0 to 1", hint="Write it like 0.5.")
        return number

    def time(self, name: str, *, is_end: bool = False) -> datetime | None:
        """Return the time in a filter, or None; a date is its first moment, as an end the first of the next day."""
        text = self.values.get(name)
        if text is None:
            return None
        try:
            if len(text) == len("2026-10-01"):
                day = date.fromisoformat(text) + timedelta(days=int(is_end))
                return datetime(day.year, day.month, day.day, tzinfo=UTC)
            time = datetime.fromisoformat(text)
        except (ValueError, OverflowError):
            raise InvalidInput(f"{name} is no date", hint="Write it like 2026-10-01.") from None
        return time if time.tzinfo else time.replace(tzinfo=UTC)

    def start(self, kind: PositionKind) -> Start:
        """Return where the page starts."""
        return parse_start(sanitize_text(self.page.query("before")), sanitize_text(self.page.query("after")), kind)

    def url(self, **changes: str | None) -> str:
        """Return the link to the first page of the list with some filters changed."""
        return self.page.url(self.path, **{**self.values, **changes})

    def facet(self, name: str, counts: Sequence[tuple[str, int]]) -> Facet:
        """Return the facet of a filter with the counts of its values; the active value comes first."""
        active = self.values.get(name)
        others = [each for each in counts if each[0] != active][:MAX_FACET_LINKS]
        links = [FacetLink(_label(active), self.url(**{name: None}), is_active=True)] if active else []
        links += [FacetLink(_label(value), self.url(**{name: value}), f"{number:,}") for value, number in others]
        return Facet(self.labels[name], links)

    def active_filters(self, left: Mapping[str, int] | None = None) -> list[ActiveFilter]:
        """Return the filters in use, with how many rows each one leaves out if that is known."""
        return [
            ActiveFilter(
                self.labels[name],
                value,
                self.url(**{name: None}),
                count_text(left[name]) if left and name in left else "",
            )
            for name, value in self.values.items()
            if name != "sort"
        ]

    def without_each(self) -> dict[str, "ListQuery"]:
        """Return, for each filter in use, the query without it."""
        return {
            name: ListQuery(self.page, self.path, {k: v for k, v in self.values.items() if k != name}, self.labels)
            for name in self.values
            if name != "sort"
        }

    def pager(self, shown: ListPage) -> Pager:
        """Return the links to the neighbours of a page."""
        newer = self.page.url(self.path, **self.values, after=str(shown.newer)) if shown.newer else ""
        older = self.page.url(self.path, **self.values, before=str(shown.older)) if shown.older else ""
        return Pager(self.url() if newer else "", newer, older, f"{MAX_SCANNED:,}" if shown.is_cut else "")

    def bulk(self, memory_type: str, counts: Counts | None = None) -> BulkForm:
        """Return the form that acts on rows of this list."""
        query = self.page.request.url.query
        total = count_text(counts.total, is_capped=counts.is_capped) if counts else ""
        back = self.path + (f"?{query}" if query else "")
        return BulkForm(memory_type, self.url().partition("?")[2], back, total)


def _label(value: str) -> str:
    return value.replace("dead_letter", "dead letter")


def search_command(words: str, **options: str | None) -> str:
    """Return the command for a search."""
    given = [f"--{name} {shlex.quote(value)}" for name, value in options.items() if value]
    return escape_control_characters(" ".join(["butlers memory search DIR", shlex.quote(words), *given]))


def search_call(words: str, types: Sequence[str] | None = None, **options: str | None) -> str:
    """Return the tool call for a search."""
    arguments = {"query": words, **({"types": list(types)} if types else {})}
    given = {name: value for name, value in options.items() if value}
    return json.dumps({"tool": "memory_search", "arguments": {**arguments, **given}})


def count_text(number: int, *, is_capped: bool = False) -> str:
    """Return a count as the page shows it; one that reached its limit ends with +."""
    return f"{number:,}+" if is_capped or number >= MAX_SCANNED else f"{number:,}"
