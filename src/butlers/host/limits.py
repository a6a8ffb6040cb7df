"""Rate limit per tenant and size limit per request body."""

import contextlib
import time
from collections import OrderedDict

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from butlers.errors import Overloaded

_MAX_BUCKETS = 10_000


class RateLimit:
    """A token bucket for each tenant."""

    def __init__(self, calls_per_second: float, burst: int) -> None:
        self._rate = calls_per_second
        self._burst = float(burst)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, tenant: str, now: float | None = None) -> None:
        """Take one call from the tenant's bucket, or raise `Overloaded`."""
        now = time.monotonic() if now is None else now
        tokens, updated_at = self._buckets.pop(tenant, (self._burst, now))
        tokens = min(self._burst, tokens + (now - updated_at) * self._rate)
        allowed = tokens >= 1
        self._buckets[tenant] = (tokens - 1 if allowed else tokens, now)
        if len(self._buckets) > _MAX_BUCKETS:
            self._buckets.popitem(last=False)
        if not allowed:
            raise Overloaded(f"more than {self._rate:g} calls a second")


class BodyLimit:
    """ASGI middleware that answers 413 to a body over the limit, with or without a Content-Length header."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        content_length = Headers(scope=scope).get("content-length", "0")
        if not content_length.isdigit() or int(content_length) > self._max:
            await self._refuse(scope, receive, send)
            return
        remaining = self._max

        async def receive_counted() -> Message:
            nonlocal remaining
            message = await receive()
            remaining -= len(message.get("body", b""))
            if remaining < 0:
                raise _TooLargeError
            return message

        async def send_unless_too_large(message: Message) -> None:
            if remaining >= 0:
                await send(message)

        # The response to a body over the limit is sent here, not by the application.
        with contextlib.suppress(_TooLargeError):
            await self._app(scope, receive_counted, send_unless_too_large)
        if remaining < 0:
            await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = PlainTextResponse(f"a request may carry at most {self._max} bytes", status_code=413)
        await response(scope, receive, send)


class _TooLargeError(Exception):
    pass
