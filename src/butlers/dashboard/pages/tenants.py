"""Pages of other tenants, for elevated admins: the list, and the reason to enter one."""

from starlette.responses import Response

from butlers.caller import Caller
from butlers.dashboard.forms import form_text
from butlers.dashboard.page import Page
from butlers.dashboard.pages.login import local_path, split_address
from butlers.dashboard.pages.route import PageRoute
from butlers.errors import InvalidInput, NotFound
from butlers.modules.memory.operations import tenant_visits


def require_elevated(caller: Caller) -> None:
    """Raise `NotFound` unless the caller is an elevated admin: nobody else learns that the page exists."""
    if not (caller.is_admin and caller.elevated):
        raise NotFound("there is no such page", hint="Use the links above.")


async def list_tenants(page: Page) -> Response:
    """List the names of all tenants with memories."""
    require_elevated(page.caller)
    names = await tenant_visits.tenant_names(page.memory)
    return await page.render("tenants.html", names=[name for name in names if name != page.caller.tenant])


async def ask_reason(page: Page) -> Response:
    """Ask for the reason to enter this tenant."""
    require_elevated(page.caller)
    return page.render_bare("enter_tenant.html", next=local_path(page.query("next")))


async def enter_tenant(page: Page) -> Response:
    """Record the reason on the tenant's audit trail; the caller may then look for half an hour."""
    require_elevated(page.caller)
    if page.caller.home_tenant is None:
        raise NotFound("there is no such page", hint="Use the links above.")
    form = await page.form()
    reason = form_text(form, "reason")
    if not reason:
        raise InvalidInput("a reason is required", hint="Say in a few words why you enter.")
    await tenant_visits.enter(page.memory, page.caller, reason)
    return page.redirect_to(*split_address(local_path(form_text(form, "next"))))


ROUTES = (
    PageRoute("/tenants", list_tenants),
    PageRoute("/enter", ask_reason, needs_visit=False),
    PageRoute("/enter", enter_tenant, "POST", needs_visit=False),
)
