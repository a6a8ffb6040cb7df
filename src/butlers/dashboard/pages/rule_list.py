"""The list of rules."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup
from starlette.responses import Response

from butlers.dashboard import svg
from butlers.dashboard.listing import ListQuery, search_call, search_command
from butlers.dashboard.page import Page
from butlers.dashboard.pages.fact_list import state_facet
from butlers.dashboard.pages.route import PageRoute
from butlers.modules.memory.domain.model import MemoryType, Permanence
from butlers.modules.memory.operations import viewing_lists
from butlers.modules.memory.operations.paging import ListPage
from butlers.modules.memory.operations.viewing_lists import RULE_GROUPS, Counts, MemoryFilter, RuleGroup

STATES = ("live", "fading", "forgotten", "all")
LABELS = {
    "group": "group",
    "state": "state",
    "scope": "scope",
    "permanence": "permanence",
    "provenance": "from",
    "tag": "tag",
}
HEADINGS = {
    "warning": "Warnings",
    "awaiting inversion": "Awaiting inversion",
    "proven": "Proven",
    "established": "Established",
    "candidate": "Candidates",
}


def rule_filter(query: ListQuery) -> MemoryFilter:
    """Return the filter of the list of rules; raises `InvalidInput`."""
    return MemoryFilter(
        memory_type=MemoryType.RULE,
        scope=query.get("scope"),
        state=query.choice("state", STATES, "live"),
        permanence=query.get("permanence") and query.choice("permanence", tuple(Permanence), ""),
        provenance=query.get("provenance"),
        tag=query.get("tag"),
        group=query.get("group") and query.choice("group", RULE_GROUPS, ""),
    )


async def show_rules(page: Page) -> Response:
    """Show the rules by group, or the pages of one group."""
    query = ListQuery.read(page, "/rules", **LABELS)
    groups, counts, shown = await _read(page, query)
    left = {}
    if not groups:
        others = {name: rule_filter(other) for name, other in query.without_each().items()}
        left = await viewing_lists.count_without(page.memory, page.caller, others)
    named = ("scope", "permanence", "provenance", "tag")
    facets = [query.facet(name, counts.facets.get(name, ())) for name in named]
    return await page.render(
        "rules.html",
        command=search_command("…", types="rule", scope=query.get("scope")),
        tool_call=search_call("…", ["rule"], scope=query.get("scope")),
        groups=groups,
        counts=counts,
        headings=HEADINGS,
        draw_marks=draw_marks,
        query=query,
        facets=[state_facet(query, counts), *(each for each in facets if each.links)],
        active=query.active_filters(left),
        pager=query.pager(shown),
        bulk=query.bulk("rule", counts),
    )


def draw_marks(marks: Sequence[Mapping[str, Any]]) -> Markup:
    """Return the latest marks of a rule as a picture."""
    return svg.mark_row([each["outcome"] for each in marks], "The latest marks, oldest first")


async def _read(page: Page, query: ListQuery) -> tuple[list[RuleGroup], Counts, ListPage]:
    wanted = rule_filter(query)
    if wanted.group is None:
        groups, counts = await viewing_lists.group_rules(page.memory, page.caller, wanted)
        return groups, counts, ListPage(())
    found = await viewing_lists.list_rules(page.memory, page.caller, wanted, query.start("time"))
    groups = [RuleGroup(wanted.group, found.page.rows, has_more=False)] if found.page.rows else []
    return groups, found.counts, found.page


ROUTES = (PageRoute("/rules", show_rules),)
