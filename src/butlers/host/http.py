"""Serves an application over HTTP and ends cleanly: what is in flight finishes within the grace time."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from butlers.errors import Unavailable

_CUT_SECONDS = 1.0
_STARTING_SECONDS = 0.005


@contextlib.contextmanager
def bind_socket(host: str, port: int) -> Iterator[socket.socket]:
    """A bound socket: a port that is taken is noticed before anything else starts."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named, the protocol lets asyncio send an answer at once; else its second half waits for an acknowledgement.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise Unavailable(
                f"can't listen on {host}:{port}: {error.strerror}",
                hint="Choose another with --port, or butler.port in butler.toml.",
            ) from None
        yield listener


async def serve(
    app: ASGIApp,
    listener: socket.socket,
    *,
    grace: float,
    ready: Callable[[], None],
    told: Callable[[], None],
) -> None:
    """Serve until SIGTERM or SIGINT; a second signal ends without waiting. `told` hears every one of them."""
    server = _Server(_configured(app, grace), ready)
    loop = asyncio.get_running_loop()

    def signalled() -> None:
        server.told_to_stop()
        told()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled)
    await server.serve(sockets=[listener])
    if not server.started:
        raise Unavailable("the HTTP server did not start")


@contextlib.asynccontextmanager
async def serve_in_background(app: ASGIApp, listener: socket.socket) -> AsyncIterator[None]:
    """Serve while the block lasts; what is under way at its end is cut."""
    server = _Server(_configured(app, grace=1), lambda: None)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started:
            if serving.done():
                serving.result()
                raise Unavailable("the HTTP server did not start")
            await asyncio.sleep(_STARTING_SECONDS)
        yield
    finally:
        server.told_to_stop()
        server.told_to_stop()
        await asyncio.gather(serving, return_exceptions=True)


def _configured(app: ASGIApp, grace: float) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        lifespan="on",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=max(1, round(grace)),
    )


class _Server(uvicorn.Server):
    """uvicorn with signals left to us: its own handling ends the process before the database is closed."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        # What was cut gives its connections back before the pool is closed.
        if cut := self._cut():
            await asyncio.wait(cut, timeout=_CUT_SECONDS)

    def told_to_stop(self) -> None:
        # Not uvicorn's force_exit, which leaves its tasks to whoever closes the loop.
        if self.should_exit:
            self._cut()
        self.should_exit = True

    def _cut(self) -> list[asyncio.Task[None]]:
        """End what is still under way, and hang up."""
        tasks = list(self.server_state.tasks)
        for task in tasks:
            task.cancel()
        for connection in list(self.server_state.connections):
            if connection.transport is not None:
                connection.transport.close()
        return tasks
