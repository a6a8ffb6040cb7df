"""Visits of elevated admins in other tenants: each begins with a reason on the tenant's audit trail."""

from datetime import timedelta
from uuid import uuid4

from butlers.caller import Caller
from butlers.modules.memory.domain.model import sanitize_text
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import events
from butlers.modules.memory.store.events import Event

VISIT_DURATION = timedelta(minutes=30)
_MAX_REASON_CHARACTERS = 200
_ENTERED = "tenant_entered"


async def tenant_names(memory: Memory) -> list[str]:
    """Return the names of all tenants with memories."""
    rows = await memory.database.fetch_across_tenants("select tenant_id from memory_tenants()")
    return [row["tenant_id"] for row in rows]


async def enter(memory: Memory, caller: Caller, reason: str) -> None:
    """Record that the caller enters their current tenant, and why."""
    payload = {"reason": sanitize_text(reason)[:_MAX_REASON_CHARACTERS]}
    async with memory.transaction(caller) as tx:
        await events.append(tx, caller, Event(_ENTERED, "tenant", uuid4(), payload))


async def is_visiting(memory: Memory, caller: Caller) -> bool:
    """Return whether the caller entered their current tenant within the last half hour."""
    async with memory.transaction(caller) as tx:
        return await events.has_recent(tx, caller, _ENTERED, VISIT_DURATION)
