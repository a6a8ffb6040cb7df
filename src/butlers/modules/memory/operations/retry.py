"""Retries of background transactions that meet a locked row."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from butlers.errors import Overloaded

P = ParamSpec("P")
T = TypeVar("T")
_PAUSES_SECONDS = (0.2, 1.0, 5.0)


async def retry_when_busy(work: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return the result of `work`, retried up to three times on `Overloaded`; the fourth error is raised."""
    for pause in _PAUSES_SECONDS:
        try:
            return await work(*args, **kwargs)
        except Overloaded:
            await asyncio.sleep(pause)
    return await work(*args, **kwargs)
