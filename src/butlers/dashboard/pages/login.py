"""Pages of the login: log in, log out, end a session."""

from urllib.parse import urlsplit
from uuid import UUID

from starlette.responses import Response

from butlers.dashboard import authentication
from butlers.dashboard.forms import form_text
from butlers.dashboard.page import Page
from butlers.dashboard.pages.route import PageRoute
from butlers.errors import InvalidInput, NotFound
from butlers.host import browser_sessions
from butlers.modules.memory.operations import ended_sessions


async def show_login(page: Page) -> Response:
    """Show the form for a key, token or ticket."""
    if page.server.config.auth.mode == "local":
        return page.redirect("/")
    return page.render_bare("login.html", next=local_path(page.query("next")), wrong=False)


async def log_in(page: Page) -> Response:
    """Open a session and return to the page that asked for it."""
    form = await page.form()
    token = await authentication.open_session(page, form_text(form, "credential"))
    target = local_path(form_text(form, "next"))
    if token is None:
        return page.render_bare("login.html", status=401, next=target, wrong=True)
    response = page.redirect_to(*split_address(target))
    authentication.set_cookie(page, response, token)
    return response


async def log_out(page: Page) -> Response:
    """End the session of this browser."""
    session = await authentication.current_session(page)
    if session is not None:
        await browser_sessions.end_session(page.butler.database, session.caller, session.id)
    response = page.redirect("/login")
    authentication.delete_cookie(page, response)
    return response


async def end_session(page: Page) -> Response:
    """End a browser session of the tenant."""
    form = await page.form()
    try:
        session_id = UUID(str(form.get("id", "")))
    except ValueError:
        raise InvalidInput("that is not a session", hint="The system page lists the sessions.") from None
    if not await browser_sessions.end_session(page.butler.database, page.caller, session_id):
        raise NotFound("this session has ended already", hint="The system page lists the open ones.")
    await ended_sessions.record_end(page.memory, page.caller, session_id)
    return page.redirect("/system")


def local_path(path: str) -> str:
    """Return a path of this site, or / for anything else, so that a link can't send a reader elsewhere."""
    parts = urlsplit(path)
    is_local = path.startswith("/") and not path.startswith(("//", "/\\")) and not parts.scheme and not parts.netloc
    return path if is_local and path.isprintable() else "/"


def split_address(address: str) -> tuple[str, list[str]]:
    """Return the path of an address and the parts of its query."""
    path, _, query = address.partition("?")
    return path, query.split("&")


ROUTES = (
    PageRoute("/login", show_login, needs_login=False),
    PageRoute("/login", log_in, "POST", needs_login=False),
    PageRoute("/logout", log_out, "POST", needs_login=False),
    PageRoute("/acts/end-session", end_session, "POST"),
)
