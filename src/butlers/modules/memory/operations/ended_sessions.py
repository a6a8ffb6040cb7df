"""Browser sessions that somebody ended, on the audit trail."""

from uuid import UUID

from butlers.caller import Caller
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import events
from butlers.modules.memory.store.events import Event


async def record_end(memory: Memory, caller: Caller, session_id: UUID) -> None:
    """Record that the caller ended a browser session of the tenant."""
    async with memory.transaction(caller) as tx:
        await events.append(tx, caller, Event("browser_session_ended", "browser_session", session_id))
