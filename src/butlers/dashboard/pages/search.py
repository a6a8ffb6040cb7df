"""The search page: memories of the three types in one list, with the parts of their scores."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from markupsafe import Markup
from starlette.responses import Response

from butlers.contract import current_notes
from butlers.dashboard import svg
from butlers.dashboard.listing import Facet, ListQuery, search_call, search_command
from butlers.dashboard.page import Page
from butlers.dashboard.pages.route import PageRoute
from butlers.modules.memory.domain.fusion import RRF_K
from butlers.modules.memory.domain.model import EVERY_SCOPE, MemoryType, SearchMode
from butlers.modules.memory.operations import reading, viewing_lists
from butlers.modules.memory.operations.reading import SearchResult

MAX_RESULTS = 50
FOLDERS = {"fact": "/facts/", "rule": "/rules/", "episode": "/episodes/", "entity": "/entities/"}
_ID_BEGINNING = re.compile(r"[0-9a-f]{8}", re.IGNORECASE)
_LABELS = {
    "q": "words",
    "type": "type",
    "scope": "scope",
    "mode": "mode",
    "state": "state",
    "permanence": "permanence",
    "provenance": "from",
    "tag": "tag",
}


@dataclass(frozen=True, slots=True)
class Result:
    """A memory that the search found."""

    record: SearchResult
    path: str
    bar: Markup
    """The parts of its score."""
    found_by: str
    """What the score comes from."""
    values: dict[str, list[str]] = field(default_factory=dict)
    """Its values of each facet."""


async def show_search(page: Page) -> Response:
    """Show what a search finds; an id, or its first eight digits, leads to the memory."""
    query = ListQuery.read(page, "/search", **_LABELS)
    words = query.get("q") or ""
    named = await _find_by_id(page, words)
    if len(named) == 1:
        return page.redirect(FOLDERS[named[0]["memory_type"]] + str(named[0]["id"]))
    scope = query.get("scope") or EVERY_SCOPE
    types = [query.values["type"]] if "type" in query.values else None
    notes: list[str] = []
    current_notes.set(notes)
    found = await _search(page, query, words) if words and not named else []
    shown = [each for each in found if _matches(each, query)]
    return await page.render(
        "search.html",
        command=search_command(words or "…", types=query.get("type"), scope=scope, mode=query.get("mode")),
        tool_call=search_call(words or "…", types, scope=scope, mode=query.get("mode")),
        words=words,
        named=[{**row, "path": FOLDERS[row["memory_type"]] + str(row["id"])} for row in named],
        results=shown,
        is_full=len(found) == MAX_RESULTS,
        notes=notes,
        query=query,
        modes=tuple(SearchMode),
        mode=_mode(page, query),
        facets=_facets(query, found),
        active=[each for each in query.active_filters(_left(query, found)) if each.label != "words"],
        bulk=query.bulk(query.get("type") or ""),
        max_results=MAX_RESULTS,
    )


def _mode(page: Page, query: ListQuery) -> SearchMode:
    return SearchMode(query.choice("mode", tuple(SearchMode), page.memory.config.retrieval.default_mode))


async def _find_by_id(page: Page, words: str) -> Sequence[Any]:
    """Return the memories and entities whose id is the text or begins with it."""
    try:
        first = last = UUID(words)
    except ValueError:
        if not _ID_BEGINNING.fullmatch(words):
            return []
        first, last = UUID(words + "0" * 24), UUID(words + "f" * 24)
    return await viewing_lists.find_by_id(page.memory, page.caller, first, last)


async def _search(page: Page, query: ListQuery, words: str) -> list[Result]:
    mode = _mode(page, query)
    memory_type = query.get("type") and query.choice("type", tuple(MemoryType), "")
    rows = await reading.search(
        page.memory,
        page.caller,
        words,
        types=[MemoryType(memory_type)] if memory_type else list(MemoryType),
        scope=query.get("scope") or EVERY_SCOPE,
        mode=mode,
        limit=MAX_RESULTS,
        min_confidence=page.memory.config.retrieval.min_confidence,
    )
    return [_result(row, mode) for row in rows]


def _result(row: SearchResult, mode: SearchMode) -> Result:
    parts = score_parts(row, mode)
    bar = svg.parts(parts, f"Score {row['score']:.3f}")
    found_by = " · ".join(label for label, share in parts if share > 0)
    return Result(row, FOLDERS[row["memory_type"]] + str(row["id"]), bar, found_by, _facet_values(row))


def score_parts(row: SearchResult, mode: SearchMode) -> list[tuple[str, float]]:
    """Return the parts of a score as shares of the highest score that the mode gives."""
    if row["rrf_score"] is not None:
        highest = 2 / (RRF_K + 1)
        shares = [(name, _rank_share(row[rank]) / highest) for name, rank in _RANKS]
    elif mode is SearchMode.BLENDED and row["coverage"] is not None:
        shares = [("meaning", max(row["similarity"] or 0.0, 0.0) / 2), ("words", row["coverage"] / 2)]
    elif mode is SearchMode.SEMANTIC:
        shares = [("meaning", max(row["score"], 0.0))]
    else:
        all_words = 1.0 if row["score"] >= 1 else 0.0
        shares = [("all the words", all_words / 2), ("words", (row["score"] - all_words) / 2)]
    return shares


_RANKS = (("meaning", "semantic_rank"), ("words", "keyword_rank"))


def _rank_share(rank: int | None) -> float:
    return 1 / (RRF_K + rank) if rank else 0.0


def _facet_values(row: SearchResult) -> dict[str, list[str]]:
    metadata = row["metadata"] or {}
    is_episode = row["memory_type"] == MemoryType.EPISODE
    return {
        "type": [row["memory_type"]],
        "scope": [row["butler"] if is_episode else row["scope"]],
        "state": ["fading" if metadata.get("status") == "fading" else "active"],
        "permanence": [row["permanence"]] if row["permanence"] else [],
        "provenance": [] if is_episode else [metadata.get("provenance", "direct")],
        "tag": list(row["tags"] or ()),
    }


_FILTERED = ("state", "permanence", "provenance", "tag")
"""Filters of the page; type and scope are arguments of the search."""


def _matches(result: Result, query: ListQuery) -> bool:
    return all(query.get(name) in (None, *result.values[name]) for name in _FILTERED)


def _left(query: ListQuery, found: Sequence[Result]) -> dict[str, int]:
    """Return how many results there are without each of the page's own filters."""
    others = query.without_each()
    return {name: sum(_matches(each, others[name]) for each in found) for name in _FILTERED if name in others}


def _facets(query: ListQuery, found: Sequence[Result]) -> list[Facet]:
    shown = [each for each in found if _matches(each, query)]
    facets = [
        query.facet(name, Counter(value for each in shown for value in each.values[name]).most_common())
        for name in ("type", "scope", *_FILTERED)
    ]
    return [each for each in facets if each.links]


ROUTES = (PageRoute("/search", show_search),)
