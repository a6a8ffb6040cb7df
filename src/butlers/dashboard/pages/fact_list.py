"""The list of facts."""

from starlette.responses import Response

from butlers.dashboard.listing import Facet, FacetLink, ListQuery, search_call, search_command
from butlers.dashboard.page import Page
from butlers.dashboard.pages.route import PageRoute
from butlers.modules.memory.domain.model import Permanence
from butlers.modules.memory.operations import viewing_lists
from butlers.modules.memory.operations.paging import MAX_SCANNED
from butlers.modules.memory.operations.viewing_lists import Counts, MemoryFilter

STATES = ("live", "fading", "superseded", "expired", "retracted", "all")
SORTS = {
    "newest": "newest first",
    "fading": "fades soonest",
    "confidence": "lowest confidence first",
    "used": "most used first",
}
LABELS = {
    "subject": "subject",
    "predicate": "predicate",
    "state": "state",
    "scope": "scope",
    "permanence": "permanence",
    "provenance": "from",
    "tag": "tag",
    "entity": "entity",
    "min": "confidence from",
    "below": "confidence below",
    "sort": "sort",
}


def fact_filter(query: ListQuery) -> MemoryFilter:
    """Return the filter of the list of facts; raises `InvalidInput`."""
    return MemoryFilter(
        subject=query.get("subject"),
        predicate=query.get("predicate"),
        scope=query.get("scope"),
        state=query.choice("state", STATES, "live"),
        permanence=query.get("permanence") and query.choice("permanence", tuple(Permanence), ""),
        provenance=query.get("provenance"),
        tag=query.get("tag"),
        entity_id=query.uuid("entity"),
        min_confidence=query.share("min"),
        below_confidence=query.share("below"),
        sort=query.choice("sort", tuple(SORTS), "newest"),
    )


async def show_facts(page: Page) -> Response:
    """Show the facts that match, with facets."""
    query = ListQuery.read(page, "/facts", **LABELS)
    wanted = fact_filter(query)
    found = await viewing_lists.list_facts(page.memory, page.caller, wanted, query.start(wanted.position_kind))
    left = {}
    if not found.page.rows:
        others = {name: fact_filter(other) for name, other in query.without_each().items()}
        left = await viewing_lists.count_without(page.memory, page.caller, others)
    return await page.render(
        "facts.html",
        command=search_command("…", types="fact", scope=query.get("scope")),
        tool_call=search_call("…", ["fact"], scope=query.get("scope")),
        rows=found.page.rows,
        counts=found.counts,
        query=query,
        wanted=wanted,
        sorts=SORTS,
        facets=_facets(query, found.counts),
        active=query.active_filters(left),
        pager=query.pager(found.page),
        bulk=query.bulk("fact", found.counts),
        sort_note=_sort_note(wanted),
    )


def _facets(query: ListQuery, counts: Counts) -> list[Facet]:
    named = ("scope", "permanence", "provenance", "tag")
    facets = [query.facet(name, counts.facets.get(name, ())) for name in named]
    return [state_facet(query, counts), *(each for each in facets if each.links)]


def state_facet(query: ListQuery, counts: Counts) -> Facet:
    """Return the facet of states: live, each state that occurs, and all."""
    active = query.values.get("state", "live")
    numbers = dict(counts.facets.get("state", ()))
    live = numbers.get("active", 0) + numbers.get("fading", 0)
    states = [(name, number) for name, number in numbers.items() if name != "active"]
    choices = [("live", live), *states, ("all", sum(numbers.values()))]
    if active not in {name for name, _ in choices}:
        choices.append((active, 0))
    return Facet("state", [_state_link(query, name, number, active) for name, number in choices])


def _state_link(query: ListQuery, name: str, number: int, active: str) -> FacetLink:
    removes = name == active
    url = query.url(state=None if removes or name == "live" else name)
    return FacetLink(name, url, f"{number:,}", is_active=removes, is_default=name == "live")


def _sort_note(wanted: MemoryFilter) -> str:
    oldest = f"sorted among the {viewing_lists.MAX_OLDEST:,} of each permanence that were confirmed longest ago"
    return {
        "newest": "",
        "used": f"Sorted among the newest {MAX_SCANNED:,} facts.",
        "fading": f"Live facts that fade, {oldest}.",
        "confidence": f"Live facts, {oldest}.",
    }[wanted.sort]


ROUTES = (PageRoute("/facts", show_facts),)
