"""Page of one episode."""

from starlette.responses import Response

from butlers.dashboard.page import Page
from butlers.dashboard.pages.route import PageRoute
from butlers.dashboard.sentences import summarize
from butlers.modules.memory.operations import viewing_details

_MAX_LINES = 100
_STATES = {
    "pending": "waits for consolidation",
    "consolidated": "consolidated",
    "failed": "failed, and is tried again",
    "dead_letter": "given up after the last attempt",
}


async def show_episode(page: Page) -> Response:
    """Show one episode."""
    details = await viewing_details.episode_details(page.memory, page.caller, page.path_id())
    episode = details.episode
    return await page.render(
        "episode.html",
        episode=episode,
        is_forgotten="forgotten_until" in episode["metadata"],
        consolidation=_STATES[episode["consolidation_status"]],
        max_attempts=page.memory.config.consolidation.max_attempts,
        derived=details.derived,
        lines=summarize(details.events, _MAX_LINES),
    )


ROUTES = (PageRoute("/episodes/{id:uuid}", show_episode),)
