"""ASGI middleware of the dashboard: security headers, cross-origin posts, path prefix and tenant prefix."""

import re
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: a browser would then send `Origin: null` with our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
_TENANT_PATH = re.compile(r"/t/([^/]+)(/.*)?$", re.DOTALL)


class SecurityHeaders:
    """Adds the security headers to every response, error pages included; pages are not cached."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._app(scope, receive, send_with_headers)


class PathPrefix:
    """Takes the prefixes off a path: that of a proxy, and `/t/<tenant>`. Links start with them again."""

    def __init__(self, app: ASGIApp, base_path: str) -> None:
        self._app = app
        self._base_path = base_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = scope["path"]
            if self._base_path and (path == self._base_path or path.startswith(self._base_path + "/")):
                path = path[len(self._base_path) :] or "/"
            tenant, prefix = None, self._base_path
            if match := _TENANT_PATH.match(path):
                tenant, path = match[1], match[2] or "/"
                prefix += f"/t/{quote(tenant)}"
            changes = {"path": path, "raw_path": path.encode(), "root_path": "", "prefix": prefix, "tenant": tenant}
            scope = {**scope, **changes}
        await self._app(scope, receive, send)


class CrossOriginGuard:
    """Answers 403 to a post that does not prove its origin: `Origin` or `Sec-Fetch-Site` must be our own.

    The host's guard refuses a foreign `Origin` before this one; here a missing one is refused as well.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in {"GET", "HEAD"}:
            headers = Headers(scope=scope)
            if not headers.get("origin") and headers.get("sec-fetch-site") != "same-origin":
                refusal = PlainTextResponse("a form must be sent from its own page", status_code=403)
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)
