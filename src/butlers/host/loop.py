"""The event loop a butler serves on."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


def run(work: Coroutine[Any, Any, None]) -> None:
    """Serve until it ends, on the loop that takes least of the processor for itself."""
    with asyncio.Runner(loop_factory=_factory()) as runner:
        runner.run(work)


def _factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        # There is none for this system: asyncio's own does the same, with more of the processor.
        return asyncio.new_event_loop
    return uvloop.new_event_loop
