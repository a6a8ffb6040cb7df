"""Reading for people: lists and details that change nothing, not even a reference count."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from butlers.caller import Caller
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import events, viewing

MAX_COUNTED = 1_000

Record = Mapping[str, Any]


async def navigation_counts(memory: Memory, caller: Caller) -> dict[str, str]:
    """Return the counts of the navigation as text; a large count ends with +."""
    async with memory.transaction(caller) as tx:
        counts = await viewing.navigation_counts(tx, caller, MAX_COUNTED + 1)
    return {
        name: f"{MAX_COUNTED:,}+" if number > MAX_COUNTED else f"{number:,}"
        for name, number in counts.items()
        if number
    }


async def latest_change(memory: Memory, caller: Caller) -> datetime | None:
    """Return the time of the tenant's newest event."""
    async with memory.transaction(caller) as tx:
        return await events.latest(tx, caller)
