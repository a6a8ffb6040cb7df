"""Selection of the tenants a maintenance operation works on."""

from dataclasses import replace

from butlers.caller import Caller
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import decay_sweep


async def callers_by_tenant(memory: Memory, caller: Caller, *, all_tenants: bool) -> list[Caller]:
    """Return the caller, or a copy of it for each tenant that has memories."""
    if not all_tenants:
        return [caller]
    return [replace(caller, tenant=tenant) for tenant in await decay_sweep.list_tenants(memory.database)]
