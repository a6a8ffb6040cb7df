"""Helpers of operations that work in batches: tenants to work on, progress, and retries of busy transactions."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import ParamSpec, TypeVar

from butlers.caller import Caller
from butlers.errors import Overloaded
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import decay_sweep

P = ParamSpec("P")
T = TypeVar("T")
Progress = Callable[[int, int], None]
"""Called with the number of items done and the total."""
_PAUSES_SECONDS = (0.2, 1.0, 5.0)


def no_progress(_done: int, _total: int) -> None:
    """Default callback: report nothing."""


async def callers_by_tenant(memory: Memory, caller: Caller, *, all_tenants: bool) -> list[Caller]:
    """Return the caller, or a copy of it for each tenant that has memories."""
    if not all_tenants:
        return [caller]
    return [replace(caller, tenant=tenant) for tenant in await decay_sweep.list_tenants(memory.database)]


async def retry_when_busy(work: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return the result of `work`, retried up to three times on `Overloaded`; the fourth error is raised."""
    for pause in _PAUSES_SECONDS:
        try:
            return await work(*args, **kwargs)
        except Overloaded:
            await asyncio.sleep(pause)
    return await work(*args, **kwargs)
