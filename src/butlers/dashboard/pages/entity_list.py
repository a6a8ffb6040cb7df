"""The list of entities."""

from starlette.responses import Response

from butlers.dashboard.listing import Facet, FacetLink, ListQuery
from butlers.dashboard.page import Page
from butlers.dashboard.pages.route import PageRoute
from butlers.modules.memory.domain.entities import EntityType
from butlers.modules.memory.operations import viewing_lists
from butlers.modules.memory.operations.paging import Start
from butlers.modules.memory.operations.viewing_lists import MAX_LIVE_FACTS, Counts, EntityFilter

LABELS = {"name": "name begins with", "type": "type", "merged": "merged"}


def entity_filter(query: ListQuery) -> EntityFilter:
    """Return the filter of the list of entities; raises `InvalidInput`."""
    return EntityFilter(
        prefix=query.get("name") or "",
        entity_type=query.get("type") and query.choice("type", tuple(EntityType), ""),
        is_merged=query.choice("merged", ("no", "yes"), "no") == "yes",
    )


async def show_entities(page: Page) -> Response:
    """Show the entities that match, by name."""
    query = ListQuery.read(page, "/entities", **LABELS)
    wanted = entity_filter(query)
    found = await viewing_lists.list_entities(page.memory, page.caller, wanted, query.start(wanted.position_kind))
    return await page.render(
        "entities.html",
        rows=found.page.rows,
        max_live_facts=MAX_LIVE_FACTS,
        query=query,
        wanted=wanted,
        facets=_facets(query, found.counts),
        active=query.active_filters(await _left(page, query) if not found.page.rows else None),
        pager=query.pager(found.page),
    )


async def _left(page: Page, query: ListQuery) -> dict[str, int]:
    """Return how many entities there are without each filter, up to a page."""
    others = {name: entity_filter(other) for name, other in query.without_each().items()}
    lists = {
        name: await viewing_lists.list_entities(page.memory, page.caller, other, Start())
        for name, other in others.items()
    }
    return {name: len(found.page.rows) for name, found in lists.items()}


def _facets(query: ListQuery, counts: Counts) -> list[Facet]:
    types = [each for each in counts.facets.get("type", ()) if each[1]]
    merged = dict(counts.facets.get("merged", ())).get("yes", 0)
    is_merged = query.get("merged") == "yes"
    links = [FacetLink("merged away", query.url(merged=None if is_merged else "yes"), f"{merged:,}", is_merged)]
    facets = [query.facet("type", types)] if types or query.get("type") else []
    return [*facets, *([Facet("also", links)] if merged or is_merged else [])]


ROUTES = (PageRoute("/entities", show_entities),)
