"""ASGI middleware against DNS rebinding: checks the Host and Origin headers on every route."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class HostAndOriginGuard:
    """Answers 421 to an unknown Host header and 403 to a foreign Origin header."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str], origins: Sequence[str]) -> None:
        self._app = app
        self._hosts = LOOPBACK | {host.lower() for host in hosts}
        self._origins = frozenset(origin.rstrip("/").lower() for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refusal := self._refusal(Headers(scope=scope), scope)):
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refusal(self, headers: Headers, scope: Scope) -> PlainTextResponse | None:
        host = headers.get("host", "").lower()
        if _hostname(host) not in self._hosts:
            return PlainTextResponse("unknown host: add it to butler.http.allowed_hosts", status_code=421)
        origin = headers.get("origin", "").lower()
        if origin and origin not in self._origins and origin != f"{scope.get('scheme', 'http')}://{host}":
            return PlainTextResponse("unknown origin: add it to butler.http.allowed_origins", status_code=403)
        return None


def _hostname(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
