"""HTTP connections: time limits for a client's part of a request, and a limit on their number."""

import asyncio
import logging
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

import h11
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from butlers.config import ButlerConfig

log = logging.getLogger("butlers.http")

HEALTH_PATH = "/health"
HEALTH_CONNECTIONS = 16
MAX_CHUNKS = 4096
MAX_HEADERS = 100
_MIN_CONNECTIONS = 16
# Files, listeners, the reserves for /health, and connections that are accepted before others are closed.
_RESERVED_DESCRIPTORS = 128
_CONNECTIONS_PER_SESSION = 8
_DESCRIPTORS_PER_SESSION = _CONNECTIONS_PER_SESSION + 8
_MAX_HEAD_BYTES = 16_384
_WARNING_SECONDS = 60.0
_CLOSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits on the connections of one HTTP server."""

    max_connections: int
    head_seconds: float
    body_seconds: float
    keep_alive_seconds: int


def limits_from_config(config: ButlerConfig) -> ConnectionLimits:
    """Return the configured limits, with no more connections than the process has file descriptors for."""
    limits, sessions = config.limits, config.sessions.max_concurrent
    reserved = _RESERVED_DESCRIPTORS + config.database.pool_size + _DESCRIPTORS_PER_SESSION * sessions
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    available = limits.max_connections if descriptors == resource.RLIM_INFINITY else descriptors - reserved
    return ConnectionLimits(
        max_connections=max(_MIN_CONNECTIONS, min(limits.max_connections, available)),
        head_seconds=limits.head_timeout_seconds,
        body_seconds=limits.body_timeout_seconds,
        keep_alive_seconds=limits.keep_alive_seconds,
    )


def limits_for_sessions(config: ButlerConfig) -> ConnectionLimits:
    """Return the limits of the server for sessions, which the limit of the other server leaves room for."""
    connections = _CONNECTIONS_PER_SESSION * config.sessions.max_concurrent
    return replace(limits_from_config(config), max_connections=max(_MIN_CONNECTIONS, connections))


class ConnectionTable(ServerState):
    """The connections of a server; those that wait for their client are the first to be closed at the limit."""

    def __init__(self, limits: ConnectionLimits) -> None:
        super().__init__()
        self.limits = limits
        self._waiting: dict[str, dict[LimitedProtocol, None]] = {}
        self._reserve: dict[LimitedProtocol, None] = {}
        self._closed = 0
        self._warned_at = float("-inf")
        self._is_draining = False

    def drain(self) -> None:
        """Serve only /health on new connections from now on, and close the others after their next response."""
        self._is_draining = True
        for connection in self.connections:
            if isinstance(connection, LimitedProtocol):
                connection.close_after_response()

    def start_waiting(self, connection: "LimitedProtocol") -> None:
        """Add a connection that waits for its client, as the youngest of its address."""
        self.stop_waiting(connection)
        if connection not in self._reserve:
            self._waiting.setdefault(connection.address, {})[connection] = None

    def stop_waiting(self, connection: "LimitedProtocol") -> None:
        """Remove a connection that waits no more."""
        waiting = self._waiting.get(connection.address, {})
        waiting.pop(connection, None)
        if not waiting:
            self._waiting.pop(connection.address, None)

    def remove(self, connection: "LimitedProtocol") -> None:
        """Remove a connection that is closed."""
        self.stop_waiting(connection)
        self._reserve.pop(connection, None)
        self.connections.discard(connection)

    def admit(self, connection: "LimitedProtocol") -> None:
        """Make room for a new connection, or put it into the reserve, which serves only /health."""
        if self._is_draining:
            self._admit_to_reserve(connection, "the butler is stopping")
            return
        if len(self.connections) - len(self._reserve) <= self.limits.max_connections:
            return
        self._warn()
        if self._waiting.keys() - {connection.address} or len(self._waiting[connection.address]) > 1:
            self._close(self._longest_waiting())
            return
        self._admit_to_reserve(connection, "too many connections")

    def _admit_to_reserve(self, connection: "LimitedProtocol", reason: str) -> None:
        self.stop_waiting(connection)
        self._reserve[connection] = None
        connection.serve_only_health(reason)
        if len(self._reserve) > HEALTH_CONNECTIONS:
            self._close(next(iter(self._reserve)))

    def _longest_waiting(self) -> "LimitedProtocol":
        """Return the oldest waiting connection of the address that has most of them."""
        address = max(self._waiting, key=lambda address: len(self._waiting[address]))
        return next(iter(self._waiting[address]))

    def _close(self, connection: "LimitedProtocol") -> None:
        self.remove(connection)
        connection.transport.abort()
        self._closed += 1

    def _warn(self) -> None:
        """Log that the limit is reached, at most once a minute."""
        now = time.monotonic()
        if now - self._warned_at >= _WARNING_SECONDS:
            log.warning(
                "the limit of connections is reached: each new one closes the one that waits longest for its client; "
                "raise butler.limits.max_connections or `ulimit -n` if these are your clients",
                extra={"limit": self.limits.max_connections, "closed_before": self._closed},
            )
            self._warned_at, self._closed = now, 0


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 with a time limit on everything that depends on the client."""

    server_state: ConnectionTable

    def __init__(
        self,
        config: Config,
        server_state: ConnectionTable,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = server_state.limits
        self.conn = _StrictConnection(self._handle_event)
        self.address = ""
        self._client_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self._wait_for_client(self._limits.head_seconds)
        self.server_state.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self.resume_writing()
        self.server_state.remove(self)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        # A body that is still on its way keeps its own time limit.
        if self.conn.their_state is not h11.SEND_BODY:
            self._wait_for_next_request()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(self._limits.body_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        self._refuse(HTTPStatus.BAD_REQUEST, msg)

    def serve_only_health(self, reason: str) -> None:
        """Answer 503 with the reason to any path but /health, and close the connection after one request."""
        app = self.app
        refusal = PlainTextResponse(reason, HTTPStatus.SERVICE_UNAVAILABLE, {"Retry-After": "2"})

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            await (app if scope["path"] == HEALTH_PATH else refusal)(scope, receive, send)

        self.app = serve
        self.close_after_response()

    def close_after_response(self) -> None:
        """Close the connection after the next request that arrives on it."""
        app = self.app

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            async def send_and_close(message: Message) -> None:
                if message["type"] == "http.response.start":
                    message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
                await send(message)

            await app(scope, receive, send_and_close)

        self.app = serve

    def _handle_event(self, event: h11.Event) -> None:
        if isinstance(event, h11.Request):
            self._wait_for_client(self._limits.body_seconds)
        elif isinstance(event, h11.EndOfMessage):
            # The response may be complete before the body, if the request is refused by its head.
            if self.cycle.response_complete:
                self._wait_for_next_request()
            else:
                self._stop_waiting()

    def _wait_for_next_request(self) -> None:
        self._wait_for_client(self._limits.keep_alive_seconds + self._limits.head_seconds)

    def _wait_for_client(self, seconds: float) -> None:
        self._stop_waiting()
        self.server_state.start_waiting(self)
        self._client_timer = self.loop.call_later(seconds, self._handle_timeout)

    def _stop_waiting(self) -> None:
        self.server_state.stop_waiting(self)
        if self._client_timer is not None:
            self._client_timer.cancel()
            self._client_timer = None

    def _handle_timeout(self) -> None:
        """Answer 408 to a request that has begun, and close the connection."""
        if self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            self.transport.abort()
        else:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "the request took too long to arrive")

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        """Answer with an error if there is no response yet, end the request, and close the connection."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE} and not self.transport.is_closing():
            headers = [("content-type", "text/plain; charset=utf-8"), ("connection", "close")]
            response = h11.Response(status_code=status, headers=headers, reason=status.phrase.encode())
            for event in (response, h11.Data(data=text.encode()), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self._stop_waiting()
        self.transport.close()
        # A client that does not read keeps a closing connection open.
        self._client_timer = self.loop.call_later(_CLOSE_SECONDS, self.transport.abort)


class _StrictConnection(h11.Connection):
    """h11 that reports each event, and refuses a body of two lengths, tiny chunks and many headers."""

    def __init__(self, report: Callable[[h11.Event], None]) -> None:
        super().__init__(h11.SERVER, _MAX_HEAD_BYTES)
        self._report = report
        self._chunks = 0

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Return the next event; raise `RemoteProtocolError` for one that is refused."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = 0
            _refuse_ambiguous_head(event)
        elif isinstance(event, h11.Data):
            # Each chunk takes microseconds to parse, however small it is.
            self._chunks += 1
            if self._chunks > MAX_CHUNKS:
                raise h11.RemoteProtocolError("too many chunks")
        if isinstance(event, h11.Request | h11.EndOfMessage):
            self._report(event)
        return event


def _refuse_ambiguous_head(request: h11.Request) -> None:
    """Raise `RemoteProtocolError` for two lengths of one body: a proxy may choose the other one."""
    names = {name for name, _ in request.headers}
    if {b"content-length", b"transfer-encoding"} <= names:
        raise h11.RemoteProtocolError("both Content-Length and Transfer-Encoding")
    if len(request.headers) > MAX_HEADERS:
        raise h11.RemoteProtocolError("too many headers")
