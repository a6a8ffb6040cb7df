"""MCP over stdin and stdout, with a graceful stop on signals."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from threading import Thread
from typing import Any

from fastmcp import FastMCP

_STDIN = 0
_FLUSH_SECONDS = 0.1


async def serve(
    mcp: FastMCP[Any], *, grace: float, idle: Callable[[], Awaitable[object]], on_signal: Callable[[], None]
) -> None:
    """Serve until the client disconnects or a SIGTERM or SIGINT arrives; a second signal ends without waiting.

    Each signal calls `on_signal`; `idle` returns when no call is active.
    """
    stop, force_stop = asyncio.Event(), asyncio.Event()

    def handle_signal() -> None:
        (force_stop if stop.is_set() else stop).set()
        on_signal()

    async def close_on_stop(close_stdin: Callable[[], None]) -> None:
        await stop.wait()
        waiting = [asyncio.ensure_future(condition()) for condition in (idle, force_stop.wait)]
        await asyncio.wait(waiting, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        # Give the last answer time to reach stdout.
        await asyncio.sleep(_FLUSH_SECONDS)
        close_stdin()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, handle_signal)
    with _closable_stdin() as close_stdin:
        stopping = asyncio.ensure_future(close_on_stop(close_stdin))
        try:
            await mcp.run_stdio_async(show_banner=False)
        finally:
            stopping.cancel()


@contextlib.contextmanager
def _closable_stdin() -> Iterator[Callable[[], None]]:
    """Replace stdin by a socket; yield a function that closes it as if the client had disconnected.

    A thread that blocks in a read of the client's pipe can't be stopped. The forwarding thread is a daemon, so it
    doesn't keep the process alive.
    """
    client = os.dup(_STDIN)
    writer, reader = socket.socketpair()
    os.dup2(reader.fileno(), _STDIN)
    reader.close()
    Thread(target=_forward, args=(client, writer), name="stdin", daemon=True).start()
    yield lambda: _close(writer)
    os.dup2(client, _STDIN)


def _forward(client: int, stdin: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(client, 65536):
            stdin.sendall(data)
    _close(stdin)


def _close(stdin: socket.socket) -> None:
    with contextlib.suppress(OSError):
        stdin.shutdown(socket.SHUT_WR)
