"""Page of a merge: both entities side by side, and what would happen."""

from starlette.responses import Response

from butlers.dashboard.page import Page
from butlers.dashboard.pages.acts import parse_id
from butlers.dashboard.pages.route import PageRoute
from butlers.modules.memory.domain.entities import EntityType
from butlers.modules.memory.operations import entities

_MAX_CHOICES = 200


async def show_merge(page: Page) -> Response:
    """Show what a merge would do; without a target, the entities to choose from."""
    source = parse_id(page.query("source"))
    if not page.query("target"):
        entity = await entities.get(page.memory, page.caller, source)
        kind = EntityType.named(entity["entity_type"])
        found = await entities.list_entities(page.memory, page.caller, kind, merged=False, limit=_MAX_CHOICES)
        choices = [each for each in found if each["id"] != source]
        return await page.render("merge_choice.html", entity=entity, choices=choices)
    target = parse_id(page.query("target"))
    preview = await entities.preview_merge(page.memory, page.caller, source, target)
    return await page.render("merge.html", **preview)


ROUTES = (PageRoute("/entities/merge", show_merge),)
