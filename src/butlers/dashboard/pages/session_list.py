"""The list of sessions, and their tokens by day, butler and purpose."""

from starlette.responses import Response

from butlers.dashboard import svg
from butlers.dashboard.listing import Facet, FacetLink, ListQuery
from butlers.dashboard.page import Page
from butlers.dashboard.pages.route import PageRoute
from butlers.modules.memory.operations import viewing_sessions

_KINDS = {"own": "the butler's own", "agent": "of connected agents", "internal": "of consolidation"}
_MAX_PURPOSES = 12


async def show_sessions(page: Page) -> Response:
    """Show the sessions that match, newest first, and what all of them cost."""
    query = ListQuery.read(page, "/sessions", kind="kind", butler="butler")
    kind = query.choice("kind", tuple(_KINDS), "") if query.get("kind") else None
    found = await viewing_sessions.list_sessions(
        page.memory,
        page.caller,
        query.start("time"),
        kind=kind,  # type: ignore[arg-type]
        butler=query.get("butler"),
    )
    used = await viewing_sessions.get_token_use(page.memory, page.caller)
    limit = page.memory.config.consolidation.daily_token_limit
    return await page.render(
        "sessions.html",
        rows=found.rows,
        kinds=_KINDS,
        query=query,
        facets=[_kind_facet(query), query.facet("butler", list(used.by_butler.items())[:_MAX_PURPOSES])],
        active=query.active_filters(),
        pager=query.pager(found),
        used=used,
        purposes=list(used.by_purpose.items())[:_MAX_PURPOSES],
        limit=limit,
        learned_today=used.last_day.get("consolidation", 0),
        spark=svg.spark(used.by_day, "Tokens by day"),
        days=list(zip(range(len(used.by_day)), used.by_day[::-1], strict=True)),
    )


def _kind_facet(query: ListQuery) -> Facet:
    active = query.get("kind")
    links = [
        FacetLink(label, query.url(kind=None if name == active else name), is_active=name == active)
        for name, label in _KINDS.items()
    ]
    return Facet("sessions", links)


ROUTES = (PageRoute("/sessions", show_sessions),)
