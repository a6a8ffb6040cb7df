"""HTTP server with graceful shutdown: it drains, then lets active requests finish within the grace period."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from butlers.errors import Unavailable
from butlers.host.connections import ConnectionLimits, ConnectionTable, LimitedProtocol

log = logging.getLogger("butlers.http")

_BACKLOG = 2048
# asyncio accepts this many connections before the limit on their number is applied to them.
_ACCEPTED_AT_ONCE = 16
_CANCEL_TIMEOUT_SECONDS = 1.0
_START_POLL_SECONDS = 0.005


@contextlib.contextmanager
def bind_socket(host: str, port: int) -> Iterator[socket.socket]:
    """Yield a bound socket, so that a taken port is noticed first. Raises `Unavailable` if it can't be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio sets TCP_NODELAY; otherwise the end of a response waits for an acknowledgement.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise Unavailable(
                f"can't listen on {host}:{port}: {error.strerror}",
                hint="Choose another port with --port or butler.port in butler.toml.",
            ) from None
        yield listener


async def serve(
    app: ASGIApp,
    listeners: Sequence[socket.socket],
    limits: ConnectionLimits,
    *,
    grace: float,
    ready: Callable[[], None],
    on_signal: Callable[[], None],
    drain: float = 0,
) -> None:
    """Serve until SIGTERM or SIGINT; a second signal cancels active requests. Each signal calls `on_signal`.

    After SIGTERM, the open connections are served for `drain` seconds more, and new ones get /health only.
    """
    server = _Server(app, limits, grace, ready)

    def handle_signal(number: int) -> None:
        on_signal()
        if number == signal.SIGTERM and drain and not server.is_stopping:
            server.drain(drain)
        else:
            server.request_stop()

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_log_failed_accept)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, handle_signal, number)
    await server.serve(sockets=list(listeners))
    if not server.started:
        raise Unavailable("the HTTP server did not start")


def _log_failed_accept(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log that no connection can be accepted. asyncio tries again after a second, and its own log is off."""
    if context.get("message", "").startswith("socket.accept()"):
        log.error("can't accept connections: too many open files; raise `ulimit -n` for the butler")
    loop.default_exception_handler(context)


@contextlib.asynccontextmanager
async def serve_in_background(app: ASGIApp, listener: socket.socket, limits: ConnectionLimits) -> AsyncIterator[None]:
    """Serve until the block ends; then cancel active requests."""
    server = _Server(app, limits, grace=1, ready=lambda: None)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started:
            if serving.done():
                serving.result()
                raise Unavailable("the HTTP server did not start")
            await asyncio.sleep(_START_POLL_SECONDS)
        yield
    finally:
        server.request_stop()
        server.request_stop()
        await asyncio.gather(serving, return_exceptions=True)


class _Server(uvicorn.Server):
    """uvicorn without its signal handling, which ends the process before the database is closed."""

    def __init__(self, app: ASGIApp, limits: ConnectionLimits, grace: float, ready: Callable[[], None]) -> None:
        config = uvicorn.Config(
            app,
            http=LimitedProtocol,
            backlog=_ACCEPTED_AT_ONCE,
            timeout_keep_alive=limits.keep_alive_seconds,
            lifespan="on",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=max(1, round(grace)),
        )
        super().__init__(config)
        self.server_state = self._connections = ConnectionTable(limits)
        self._ready = ready
        self.is_stopping = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(_BACKLOG)
        if self.started:
            self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        # Cancelled requests release their database connections before the pool is closed.
        if cancelled := self._cancel_requests():
            await asyncio.wait(cancelled, timeout=_CANCEL_TIMEOUT_SECONDS)

    def drain(self, seconds: float) -> None:
        """Serve the open connections for `seconds` more, and nothing but /health on new ones; then stop."""
        self.is_stopping = True
        self._connections.drain()
        asyncio.get_running_loop().call_later(seconds, self._exit)

    def request_stop(self) -> None:
        """Stop accepting requests; on the second call, or while draining, cancel active ones."""
        # Not uvicorn's force_exit: it leaves its tasks running until the loop is closed.
        if self.is_stopping:
            self._cancel_requests()
        self.is_stopping = True
        self._exit()

    def _exit(self) -> None:
        self.should_exit = True

    def _cancel_requests(self) -> list[asyncio.Task[None]]:
        """Cancel active requests and close all connections; return the cancelled tasks."""
        tasks = list(self.server_state.tasks)
        for task in tasks:
            task.cancel()
        for connection in list(self.server_state.connections):
            if connection.transport is not None:
                connection.transport.close()
        return tasks
