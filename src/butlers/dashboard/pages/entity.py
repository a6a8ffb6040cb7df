"""Page of one entity."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup
from starlette.responses import Response

from butlers.dashboard import svg_graph
from butlers.dashboard.page import Page
from butlers.dashboard.pages.route import PageRoute
from butlers.dashboard.rendering import one_line
from butlers.dashboard.sentences import summarize
from butlers.dashboard.svg_graph import MAX_NODES, Node
from butlers.modules.memory.operations import viewing_details
from butlers.modules.memory.operations.viewing_details import EntityDetails

_MAX_LINES = 30
_OWN_METADATA = {"merged_into", "former_name"}


async def show_entity(page: Page) -> Response:
    """Show one entity."""
    details = await viewing_details.entity_details(page.memory, page.caller, page.path_id())
    entity = details.entity
    return await page.render(
        "entity.html",
        entity=entity,
        name=entity["metadata"].get("former_name") or entity["canonical_name"],
        metadata=[(key, str(value)) for key, value in entity["metadata"].items() if key not in _OWN_METADATA],
        facts=details.facts,
        has_more_facts=details.has_more_facts,
        predicates=group_by_predicate(details.facts),
        rows=[
            (each["predicate"], one_line(each["content"], 80), len(each["episode_ids"]))
            for each in details.facts[:MAX_NODES]
        ],
        graph=draw_graph(page, details) if details.facts else None,
        namesakes=details.namesakes,
        lines=summarize(details.changes, _MAX_LINES),
    )


def group_by_predicate(facts: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """Return the facts by predicate, in the order of the predicates."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for fact in sorted(facts, key=lambda each: each["predicate"].casefold()):
        groups.setdefault(fact["predicate"], []).append(fact)
    return list(groups.items())


def draw_graph(page: Page, details: EntityDetails) -> Markup:
    """Return the entity with its facts around it and their episodes outside."""
    nodes = [
        Node(
            f"{fact['predicate']}: {fact['content']}",
            page.url(f"/facts/{fact['id']}"),
            [Node("an episode", page.url(f"/episodes/{each}")) for each in fact["episode_ids"]],
        )
        for fact in details.facts
    ]
    room = MAX_NODES - 1
    left_out = len(nodes) - room + 1 if len(nodes) > room else 0
    number = f"{left_out}+" if details.has_more_facts else f"{left_out}"
    more = Node(f"and {number} more", page.url("/facts", entity=details.entity["id"])) if left_out else None
    return svg_graph.ego(details.entity["canonical_name"], nodes, more)


ROUTES = (PageRoute("/entities/{id:uuid}", show_entity),)
