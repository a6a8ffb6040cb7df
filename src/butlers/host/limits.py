"""Rate limit and share of active requests per tenant, and limits on the size and the structure of a request body."""

import contextlib
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass

from mcp_types import ErrorData, JSONRPCError
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from butlers.errors import Overloaded

MAX_JSON_VALUES = 10_000
OVERLOADED_ERROR_CODE = -32029
_BYTES_PER_CALL = 16_384
_MAX_PASSED_ON_BYTES = 65_536
_MAX_BUCKETS = 10_000


@dataclass(frozen=True, slots=True)
class Admission:
    """Decision of the rate limit about an HTTP request; `fault` is set if it is refused."""

    fault: Overloaded | None


# Unset for a message that did not come over HTTP.
current_admission: ContextVar[Admission | None] = ContextVar("current_admission", default=None)


class RateLimit:
    """A token bucket for each tenant."""

    def __init__(self, calls_per_second: float, burst: int) -> None:
        self._rate = calls_per_second
        self._burst = float(burst)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def admit(self, tenant: str) -> None:
        """Take one message, unless its HTTP request was taken already. Raise `Overloaded` if it is refused."""
        admission = current_admission.get()
        if admission is None:
            self.take(tenant)
        elif admission.fault is not None:
            raise admission.fault

    async def prepare(self, tenant: str, *, calls: int = 1) -> None:
        """Get ready to take calls: a bucket of this process alone has nothing to do."""

    def take(self, tenant: str, now: float | None = None, *, calls: int = 1) -> None:
        """Take calls from the tenant's bucket, or raise `Overloaded` if there is not one left.

        Several calls may leave less than none, so that a request of any size can pass a small bucket.
        """
        now = time.monotonic() if now is None else now
        tokens, updated_at = self._buckets.pop(tenant, (self._burst, now))
        tokens = min(self._burst, tokens + (now - updated_at) * self._rate)
        allowed = tokens >= 1
        self._buckets[tenant] = (tokens - calls if allowed else tokens, now)
        if len(self._buckets) > _MAX_BUCKETS:
            self._buckets.popitem(last=False)
        if not allowed:
            raise Overloaded(f"more than {self._rate:g} calls a second")

    def give_back(self, tenant: str, *, calls: int = 1) -> None:
        """Return calls that were taken from a bucket and belong to another one."""
        if tenant in self._buckets:
            tokens, updated_at = self._buckets[tenant]
            self._buckets[tenant] = (min(self._burst, tokens + calls), updated_at)


class ActiveRequests:
    """The active requests of each tenant. None gets more than three quarters of the connections."""

    def __init__(self, max_connections: int) -> None:
        self._max = max(1, max_connections * 3 // 4)
        self._active: Counter[str] = Counter()

    @contextlib.contextmanager
    def count(self, tenant: str) -> Iterator[Overloaded | None]:
        """Count a request of the tenant until the block ends; yield a fault if it is over the tenant's share."""
        self._active[tenant] += 1
        try:
            over = self._active[tenant] > self._max
            yield Overloaded(f"more than {self._max} requests at once") if over else None
        finally:
            self._active[tenant] -= 1
            if not self._active[tenant]:
                del self._active[tenant]


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


class MessageLimit:
    """ASGI middleware for authenticated requests: takes each from the tenant's rate and share, and bounds its JSON.

    Both are taken before the body is read. A small request over one of them is passed on and refused where its method
    is known, so that a tool call fails as a tool call does.
    """

    def __init__(
        self, app: ASGIApp, tenant: Callable[[], str | None], rate: RateLimit, active: ActiveRequests
    ) -> None:
        self._app = app
        self._tenant = tenant
        self._rate = rate
        self._active = active

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tenant = self._tenant() if scope["type"] == "http" else None
        if tenant is None:
            await self._app(scope, receive, send)
            return
        with self._active.count(tenant) as fault:
            await self._serve(tenant, fault, scope, receive, send)

    async def _serve(self, tenant: str, fault: Overloaded | None, scope: Scope, receive: Receive, send: Send) -> None:
        announced = int(Headers(scope=scope).get("content-length", "0"))
        await self._rate.prepare(tenant, calls=_count_calls(announced))
        admission = Admission(fault) if fault else self._admit(tenant, announced)
        if admission.fault is not None and not 0 < announced <= _MAX_PASSED_ON_BYTES:
            await _too_many_requests(admission.fault)(scope, receive, send)
            return
        body = await _read_body(receive)
        if not announced and len(body) > _BYTES_PER_CALL:
            await self._rate.prepare(tenant, calls=_count_calls(len(body)))
            self._admit(tenant, len(body))
        if count_json_values(body) > MAX_JSON_VALUES:
            refusal = PlainTextResponse(f"a request may carry at most {MAX_JSON_VALUES} JSON values", 413)
            await refusal(scope, receive, send)
            return
        token = current_admission.set(admission)
        try:
            await self._app(scope, _replay(body, receive), send)
        finally:
            current_admission.reset(token)

    def _admit(self, tenant: str, size: int) -> Admission:
        try:
            self._rate.take(tenant, calls=_count_calls(size))
        except Overloaded as fault:
            return Admission(fault)
        return Admission(None)


def _count_calls(size: int) -> int:
    return 1 + size // _BYTES_PER_CALL


def _too_many_requests(fault: Overloaded) -> Response:
    error = JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=OVERLOADED_ERROR_CODE, message=str(fault)))
    page = error.model_dump_json(exclude_unset=True)
    return Response(page, status_code=429, headers={"Retry-After": "1"}, media_type="application/json")


async def _read_body(receive: Receive) -> bytes:
    """Return the whole body, or what came of it until the client disconnected."""
    parts: list[bytes] = []
    more = True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that starts with the body that was read."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_replayed() -> Message:
        return messages.pop() if messages else await receive()

    return receive_replayed


def count_json_values(body: bytes) -> int:
    """Return about how many values a JSON text has, at most a few more than `MAX_JSON_VALUES`.

    Parsing takes time by the value, not by the byte: 3.8 MB of text take 1 ms, 3.8 MB of small objects a second.
    """
    if b"\\" in body:
        # Without escaped backslashes and quotes, every quote left is the start or the end of a string.
        body = body.replace(rb"\\", b"").replace(rb"\"", b"")
    parts = body.split(b'"', 2 * MAX_JSON_VALUES)
    if len(parts) > 2 * MAX_JSON_VALUES:
        return MAX_JSON_VALUES + 1
    structure = b"".join(parts[::2])
    return sum(structure.count(character) for character in (b",", b"[", b"{"))
