"""Page of a merge: both entities side by side, and what would happen."""

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from butlers.dashboard.page import Page
from butlers.dashboard.pages.acts import parse_id
from butlers.dashboard.pages.route import PageRoute
from butlers.modules.memory.operations import entities, viewing_lists
from butlers.modules.memory.operations.paging import Start
from butlers.modules.memory.operations.viewing_lists import EntityFilter


async def show_merge(page: Page) -> Response:
    """Show what a merge would do; without a target, the entities to choose from, and without both all entities."""
    if not page.query("source"):
        return page.redirect("/entities")
    source = parse_id(page.query("source"))
    if not page.query("target"):
        return await _show_choices(page, await entities.get(page.memory, page.caller, source))
    target = parse_id(page.query("target"))
    preview = await entities.preview_merge(page.memory, page.caller, source, target)
    return await page.render("merge.html", **preview)


async def _show_choices(page: Page, entity: Mapping[str, Any]) -> Response:
    """Show the entities of the same type whose name begins with a text, by name."""
    name = page.query("name")
    wanted = EntityFilter(prefix=name, entity_type=entity["entity_type"])
    found = (await viewing_lists.list_entities(page.memory, page.caller, wanted, Start())).page
    choices = [each for each in found.rows if each["id"] != entity["id"]]
    return await page.render(
        "merge_choice.html", entity=entity, choices=choices, name=name, has_more=found.older is not None
    )


ROUTES = (PageRoute("/entities/merge", show_merge),)
