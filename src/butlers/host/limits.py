"""How much one tenant may ask for, and how much one request may carry."""

import contextlib
import time
from collections import OrderedDict

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from butlers.errors import Overloaded

_TENANTS_KEPT = 10_000


class RateLimit:
    """A bucket of calls for each tenant, filled at a steady rate; a flood from one leaves the others alone."""

    def __init__(self, calls_per_second: float, burst: int) -> None:
        self._rate = calls_per_second
        self._burst = float(burst)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, tenant: str, now: float | None = None) -> None:
        """Take one call from the tenant's bucket, or raise `Overloaded`."""
        now = time.monotonic() if now is None else now
        left, since = self._buckets.pop(tenant, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._rate)
        allowed = left >= 1
        self._buckets[tenant] = (left - 1 if allowed else left, now)
        if len(self._buckets) > _TENANTS_KEPT:
            self._buckets.popitem(last=False)
        if not allowed:
            raise Overloaded(f"more than {self._rate:g} calls a second")


class BodyLimit:
    """Refuses a request body over the limit, announced or not, before anything reads it whole."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "0")
        if not announced.isdigit() or int(announced) > self._max:
            await self._refuse(scope, receive, send)
            return
        body = _CountedBody(receive, send, self._max)
        # Whatever the application makes of a body cut off half-way, the answer is ours.
        with contextlib.suppress(_TooLargeError):
            await self._app(scope, body.receive, body.send)
        if body.too_large:
            await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = PlainTextResponse(f"a request may carry at most {self._max} bytes", status_code=413)
        await answer(scope, receive, send)


class _TooLargeError(Exception):
    pass


class _CountedBody:
    """One request whose bytes are counted as they come; past the limit the application is no longer heard."""

    def __init__(self, receive: Receive, send: Send, limit: int) -> None:
        self._receive = receive
        self._send = send
        self._left = limit

    @property
    def too_large(self) -> bool:
        return self._left < 0

    async def receive(self) -> Message:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self.too_large:
            raise _TooLargeError
        return message

    async def send(self, message: Message) -> None:
        if not self.too_large:
            await self._send(message)
