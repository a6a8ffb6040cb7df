"""Work in the background that meets somebody in its way waits a moment and tries again."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from butlers.errors import Overloaded

P = ParamSpec("P")
T = TypeVar("T")
_PAUSES = (0.2, 1.0, 5.0)


async def retry_when_busy(work: Callable[P, Awaitable[T]], *words: P.args, **named: P.kwargs) -> T:
    """What a transaction gives, after as many attempts as it takes while others hold what it needs, up to four."""
    for pause in _PAUSES:
        try:
            return await work(*words, **named)
        except Overloaded:
            await asyncio.sleep(pause)
    return await work(*words, **named)
