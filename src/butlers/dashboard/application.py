"""HTTP application of the dashboard: routes, security headers, authentication, limits and error pages."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from butlers.app import Butler
from butlers.caller import current_caller
from butlers.dashboard import authentication, forms, rendering, static_files
from butlers.dashboard.admission import Admission
from butlers.dashboard.page import NOBODY, Page
from butlers.dashboard.pages import ROUTES, PageRoute
from butlers.dashboard.pages.live import LiveUpdates
from butlers.dashboard.pages.review import ReviewCounts
from butlers.dashboard.security import CrossOriginGuard, PathPrefix, SecurityHeaders
from butlers.db import as_fault
from butlers.errors import Fault, Forbidden, Overloaded, TimedOut
from butlers.host.limits import RateLimit
from butlers.host.server import Server
from butlers.modules.memory.operations import tenant_visits

log = logging.getLogger("butlers.dashboard")
_STATUS = {
    "not_found": 404,
    "forbidden": 403,
    "invalid_input": 400,
    "conflict": 409,
    "overloaded": 429,
    "timeout": 504,
    "unavailable": 503,
}
_TOO_LARGE = 413


def build_application(butler: Butler, server: Server) -> ASGIApp:
    """Return the dashboard of a butler."""
    limits = server.config.limits
    admission = Admission(tenants=server.rate, networks=RateLimit(limits.calls_per_second, limits.burst))
    dashboard = _Dashboard(butler, server, admission)
    routes: list[BaseRoute] = [Route("/static/{digest}/{name}", static_files.serve)]
    routes += [Route(each.path, dashboard.endpoint(each), methods=[each.method]) for each in ROUTES]
    application = Starlette(
        routes=routes,
        middleware=[
            Middleware(SecurityHeaders),
            Middleware(PathPrefix, server.config.dashboard.base_path),
            Middleware(CrossOriginGuard),
        ],
        exception_handlers={HTTPException: dashboard.http_error},
    )
    application.state.login_failures = authentication.LoginFailures()
    application.state.review_counts = ReviewCounts()
    application.state.live_updates = LiveUpdates(server.stopping)
    return application


@dataclass(frozen=True, slots=True)
class _Dashboard:
    """Turns the handlers of pages into endpoints."""

    butler: Butler
    server: Server
    admission: Admission

    def endpoint(self, route: PageRoute) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a page: it authenticates, limits, times and logs the request."""

        async def serve(request: Request) -> Response:
            started = time.perf_counter()
            page = replace(self._page(request), max_form_bytes=route.max_form_bytes)
            try:
                if route.needs_login:
                    page = await self.admission.admit(page)
                else:
                    self.admission.admit_anonymous(page)
                response = await self._serve(page, route)
            except Exception as error:  # noqa: BLE001 — the reader gets a page, the log gets the rest
                response = await self._error_page(page, error)
            _log_request(route, page, response, time.perf_counter() - started)
            return response

        return serve

    async def http_error(self, request: Request, error: Exception) -> Response:
        """Return the page for a path or method that does not exist."""
        status = error.status_code if isinstance(error, HTTPException) else 500
        page = self._page(request)
        try:
            page = await self.admission.admit(page)
        except Overloaded as overloaded:
            return await self._error_page(page, overloaded)
        except Fault:
            pass
        text = rendering.render_error(page, status, "There is no such page.", "Use the links above.")
        return HTMLResponse(text, status_code=status)

    def _page(self, request: Request) -> Page:
        """Return the request as an anonymous page: a caller of the configured tenant without rights."""
        caller = replace(self.butler.caller(actor=NOBODY), via="dashboard", request_id=str(uuid4()))
        return Page(request, self.butler, self.server, caller, request.scope.get("prefix", ""))

    async def _serve(self, page: Page, route: PageRoute) -> Response:
        caller = page.caller
        if not route.needs_login:
            return await self._handle(page, route)
        if caller.actor == NOBODY:
            return _login_first(page, route)
        if route.method == "POST" and caller.is_reader:
            raise Forbidden("your key may only read", hint="Log in with a key that has no role reader.")
        if caller.home_tenant and (question := await _question_before_visit(page, route)):
            return question
        return await self._handle(page, route)

    async def _handle(self, page: Page, route: PageRoute) -> Response:
        seconds = self.server.config.limits.call_timeout_seconds
        token = current_caller.set(page.caller)
        try:
            async with asyncio.timeout(seconds):
                return await route.handler(page)
        except TimeoutError:
            raise TimedOut(f"the page took longer than {seconds:g} s") from None
        finally:
            current_caller.reset(token)

    async def _error_page(self, page: Page, error: Exception) -> Response:
        fault = as_fault(error)
        if fault is None:
            log.error("internal", extra={"request_id": page.caller.request_id}, exc_info=error)
            message, hint = "An unexpected error occurred.", f"The log has it as {page.caller.request_id}."
            return HTMLResponse(rendering.render_error(page, 500, message, hint), status_code=500)
        status = _TOO_LARGE if isinstance(fault, forms.FormTooLarge) else _STATUS.get(fault.code, 500)
        headers = {"Retry-After": "2"} if status in {429, 503} else {}
        if headers and page.request.method == "GET":
            # The browser asks again by itself, also without a script.
            headers["Refresh"] = "5"
        message = fault.message[:1].upper() + fault.message[1:] + "."
        text = rendering.render_error(page, status, message, fault.hint or "")
        return HTMLResponse(text, status_code=status, headers=headers)


def _login_first(page: Page, route: PageRoute) -> Response:
    """Send the reader to the login; a form that was sent without one is refused."""
    if route.method == "POST":
        return HTMLResponse(rendering.render_error(page, 401, "Log in first.", ""), status_code=401)
    return page.redirect("/login", next=page.current_address)


async def _question_before_visit(page: Page, route: PageRoute) -> Response | None:
    """Return the page that asks for the reason of a visit, or for a second confirmation of an act; else None."""
    if not route.needs_visit:
        return None
    if not await tenant_visits.is_visiting(page.memory, page.caller):
        return page.redirect("/enter", next=page.current_address if route.method == "GET" else None)
    if route.method == "POST":
        form = await page.form()
        if form.get("confirmed") != "1":
            return page.render_bare("confirm_act.html", fields=form.multi_items())
    return None


def _log_request(route: PageRoute, page: Page, response: Response, seconds: float) -> None:
    """Log the path's pattern and never the query: it has search words and prompts in it."""
    fields: dict[str, Any] = {
        "path": route.path,
        "method": route.method,
        "status": response.status_code,
        "ms": round(seconds * 1000, 1),
        "request_id": page.caller.request_id,
    }
    log.info("page", extra=fields)
