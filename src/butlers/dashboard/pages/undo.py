"""Page of an undo: what one event or one call changed, before it is given back."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from starlette.responses import Response

from butlers.dashboard.page import Page
from butlers.dashboard.pages.acts import parse_id
from butlers.dashboard.pages.route import PageRoute
from butlers.dashboard.pages.search import FOLDERS
from butlers.errors import InvalidInput
from butlers.modules.memory.operations import undo, viewing_audit
from butlers.modules.memory.operations.undo import UndoTarget

_MAX_SHOWN = 100


async def show_undo(page: Page) -> Response:
    """Show what an undo would change, or why it is refused."""
    event, request = page.query("event"), page.query("request")
    if bool(event) == bool(request):
        raise InvalidInput("name an event or a request", hint="Use the links of the audit page.")
    event_id = parse_id(event) if event else None
    target = await undo.target_of_event(page.memory, page.caller, event_id) if event_id else UndoTarget(request)
    preview = await undo.preview_target(page.memory, page.caller, target)
    shown = preview.changes[:_MAX_SHOWN]
    names = await viewing_audit.names_of(page.memory, page.caller, [UUID(each["id"]) for each in shown])
    return await page.render(
        "undo.html",
        event=event,
        request_id=target.request_id,
        preview=preview,
        rows=[_row(page, each, names) for each in shown],
    )


def _row(page: Page, change: Mapping[str, Any], names: Mapping[UUID, str]) -> dict[str, Any]:
    record_type, record_id = change["memory_type"], change["id"]
    name = names.get(UUID(record_id), f"a {record_type}")
    return {**change, "name": name, "url": page.url(FOLDERS[record_type] + record_id)}


ROUTES = (PageRoute("/undo", show_undo),)
