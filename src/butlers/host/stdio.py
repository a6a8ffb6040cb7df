"""Serves over stdin and stdout, and ends when told to, even while the client keeps its side open."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from threading import Thread
from typing import Any

from fastmcp import FastMCP

_STDIN = 0
_LAST_WORDS_SECONDS = 0.1


async def serve(
    mcp: FastMCP[Any], *, grace: float, idle: Callable[[], Awaitable[object]], told: Callable[[], None]
) -> None:
    """Serve until the client leaves or SIGTERM or SIGINT comes; a second signal ends without waiting.

    `told` hears every one of them.
    """
    once, again = asyncio.Event(), asyncio.Event()

    def signalled() -> None:
        (again if once.is_set() else once).set()
        told()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, signalled)
    with _stdin_of_our_own() as end:
        serving = asyncio.ensure_future(mcp.run_stdio_async(show_banner=False))
        leaving = asyncio.ensure_future(_leave(once, (idle, again.wait), grace, end))
        try:
            await serving
        finally:
            leaving.cancel()


async def _leave(
    told: asyncio.Event,
    enough: Sequence[Callable[[], Awaitable[object]]],
    grace: float,
    end: Callable[[], None],
) -> None:
    """Once told to stop, end stdin as soon as nothing is under way, a second signal came or the time is up."""
    await told.wait()
    waiting = [asyncio.ensure_future(reason()) for reason in enough]
    await asyncio.wait(waiting, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
    # The last answer is on its way to stdout.
    await asyncio.sleep(_LAST_WORDS_SECONDS)
    end()


@contextlib.contextmanager
def _stdin_of_our_own() -> Iterator[Callable[[], None]]:
    """Stand a socket in for stdin; what this gives ends it as if the client had left.

    A thread that waits in a read of the client's pipe can't be told to stop: ours may, it holds nothing up.
    """
    client = os.dup(_STDIN)
    ours, theirs = socket.socketpair()
    os.dup2(theirs.fileno(), _STDIN)
    theirs.close()
    Thread(target=_forward, args=(client, ours), name="stdin", daemon=True).start()
    yield lambda: _end(ours)
    os.dup2(client, _STDIN)


def _forward(client: int, stdin: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(client, 65536):
            stdin.sendall(data)
    _end(stdin)


def _end(stdin: socket.socket) -> None:
    with contextlib.suppress(OSError):
        stdin.shutdown(socket.SHUT_WR)
