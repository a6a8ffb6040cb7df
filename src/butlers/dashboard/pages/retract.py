"""Page of a retraction: everything that comes from a session or an episode, before it is taken back."""

from starlette.responses import Response

from butlers.dashboard.page import Page
from butlers.dashboard.pages.acts import read_origin
from butlers.dashboard.pages.route import PageRoute
from butlers.modules.memory.operations import retraction
from butlers.modules.memory.operations.undo import MAX_EVENTS

_MAX_SHOWN = 500


async def show_retraction(page: Page) -> Response:
    """Show what a retraction would take back, and what stays because others say it."""
    session, episode = page.query("session"), page.query("episode")
    preview = await retraction.preview(page.memory, page.caller, read_origin(session, episode))
    found = preview["found"]
    return await page.render(
        "retract.html",
        session=session,
        episode=episode,
        found=found[:_MAX_SHOWN],
        total=len(found),
        # Each memory is an event, and so is each fact that comes back.
        can_undo=2 * len(found) <= MAX_EVENTS,
        has_corroborated=any("corroborated_by" in each for each in found),
    )


ROUTES = (PageRoute("/retract", show_retraction),)
