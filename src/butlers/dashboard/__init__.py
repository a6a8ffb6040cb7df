"""Dashboard: server-rendered pages of a butler's memory. Nothing of it is imported before the first request."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from butlers.app import Butler
    from butlers.host.server import Server


class LazyDashboard:
    """ASGI application that loads the pages with the first request for one."""

    def __init__(self, butler: "Butler", server: "Server") -> None:
        self._butler = butler
        self._server = server
        self._application: ASGIApp | None = None

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if self._application is None:
            from butlers.dashboard.application import build_application

            self._application = build_application(self._butler, self._server)
        await self._application(scope, receive, send)
