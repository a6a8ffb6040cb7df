"""The list of episodes, day by day."""

from dataclasses import dataclass
from datetime import date
from itertools import groupby
from typing import Any

from starlette.responses import Response

from butlers.dashboard.listing import Facet, FacetLink, ListQuery, search_call, search_command
from butlers.dashboard.page import Page
from butlers.dashboard.pages.route import PageRoute
from butlers.modules.memory.operations import viewing_lists
from butlers.modules.memory.operations.paging import Record
from butlers.modules.memory.operations.viewing_lists import Counts, EpisodeFilter

STATES = ("pending", "consolidated", "failed", "dead_letter")
_GONE = {"no": False, "yes": True, "all": None}
LABELS = {"butler": "butler", "session": "session", "state": "state", "gone": "expired"}
GLYPHS = {"pending": "○", "consolidated": "●", "failed": "▲", "dead_letter": "✕"}


@dataclass(frozen=True, slots=True)
class Day:
    """The episodes of one day, in UTC."""

    date: date
    rows: list[Record]


def episode_filter(query: ListQuery) -> EpisodeFilter:
    """Return the filter of the list of episodes; raises `InvalidInput`."""
    return EpisodeFilter(
        butler=query.get("butler"),
        session_id=query.uuid("session"),
        state=query.get("state") and query.choice("state", STATES, ""),
        is_gone=_GONE[query.choice("gone", tuple(_GONE), "no")],
    )


async def show_episodes(page: Page) -> Response:
    """Show the episodes that match, by day."""
    query = ListQuery.read(page, "/episodes", **LABELS)
    wanted = episode_filter(query)
    found = await viewing_lists.list_episodes(page.memory, page.caller, wanted, query.start("time"))
    left = {}
    if not found.page.rows:
        others = {name: episode_filter(other) for name, other in query.without_each().items()}
        left = await viewing_lists.count_episodes_without(page.memory, page.caller, others)
    return await page.render(
        "episodes.html",
        command=search_command("…", types="episode", scope=query.get("butler")),
        tool_call=search_call("…", ["episode"], scope=query.get("butler")),
        days=[Day(day, list(rows)) for day, rows in groupby(found.page.rows, key=_day)],
        glyphs=GLYPHS,
        counts=found.counts,
        query=query,
        facets=_facets(query, found.counts),
        active=query.active_filters(left),
        pager=query.pager(found.page),
        bulk=query.bulk("episode", found.counts),
    )


def _day(row: Any) -> date:
    day: date = row["created_at"].date()
    return day


def _facets(query: ListQuery, counts: Counts) -> list[Facet]:
    facets = [query.facet(name, counts.facets.get(name, ())) for name in ("state", "butler")]
    return [*(each for each in facets if each.links), _gone_facet(query, dict(counts.facets.get("gone", ())))]


def _gone_facet(query: ListQuery, numbers: dict[str, int]) -> Facet:
    active = query.values.get("gone", "no")
    counts = {**dict.fromkeys(_GONE, 0), **numbers, "all": sum(numbers.values())}
    links = [
        FacetLink(
            name,
            query.url(gone=None if name in {active, "no"} else name),
            f"{counts[name]:,}",
            is_active=name == active,
            is_default=name == "no",
        )
        for name in _GONE
    ]
    return Facet("expired or forgotten", links)


ROUTES = (PageRoute("/episodes", show_episodes),)
