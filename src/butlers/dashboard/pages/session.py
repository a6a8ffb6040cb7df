"""Page of one session: what it knew, did and left behind."""

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from butlers.dashboard.page import Page
from butlers.dashboard.pages.route import PageRoute
from butlers.modules.memory.operations import viewing_sessions
from butlers.modules.memory.operations.viewing_sessions import SessionDetails

OUTCOMES = {
    "told": "told",
    "no_room": "no room was left",
    "too_long": "too long for any section",
    "beyond_best": "others ranked higher",
}


async def show_session(page: Page) -> Response:
    """Show one session, the butler's own or one of a connected agent."""
    details = await viewing_sessions.session_details(page.memory, page.caller, page.path_id())
    return await page.render(
        "session.html",
        session=details,
        record=details.record,
        agent=next((each["agent"] for each in details.receipts if each["agent"]), None),
        receipts=[_receipt(details, each) for each in details.receipts],
        tools=sorted((details.record or {}).get("tools", {}).items()),
        receipt_days=page.memory.config.receipt_days,
        outcomes=OUTCOMES,
    )


def _receipt(details: SessionDetails, receipt: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a receipt whose lines have their memory, or None for one that is gone."""
    lines = [{**line, "memory": details.memories.get(line["memory_id"])} for line in receipt["lines"]]
    return {
        **receipt,
        "told_lines": [line for line in lines if line["outcome"] == "told"],
        "other_lines": [line for line in lines if line["outcome"] != "told"],
    }


ROUTES = (PageRoute("/sessions/{id:uuid}", show_session),)
