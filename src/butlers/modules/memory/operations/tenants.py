"""For whom upkeep works: the caller's own tenant, or each there is."""

from dataclasses import replace

from butlers.caller import Caller
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import decay_sweep


async def callers_by_tenant(memory: Memory, caller: Caller, *, everywhere: bool) -> list[Caller]:
    """Whoever runs it, inside its own tenant or inside each that has memories."""
    if not everywhere:
        return [caller]
    return [replace(caller, tenant=tenant) for tenant in await decay_sweep.list_tenants(memory.database)]
