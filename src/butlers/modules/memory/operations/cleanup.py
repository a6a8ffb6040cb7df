"""Episodes go when their time is over, and the oldest that were read when there are too many."""

from collections.abc import Callable
from dataclasses import asdict, dataclass

from butlers.caller import Caller
from butlers.db import WORK_SECONDS
from butlers.modules.memory.operations.once import Answer
from butlers.modules.memory.operations.patience import patiently
from butlers.modules.memory.operations.tenants import inside_each
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import cleanup

ACTOR = "cleanup"
BATCH = 2_000
REQUEST_DAYS, RUN_DAYS = 30, 180
"""How long answers are kept for requests that may come again, and the records of consolidation."""

Tell = Callable[[int, int], None]


@dataclass(slots=True)
class Cleaned:
    """What a cleanup did."""

    expired_deleted: int = 0
    expired_unread: int = 0
    capacity_deleted: int = 0
    remaining: int = 0


async def clean(
    memory: Memory,
    caller: Caller,
    *,
    everywhere: bool = False,
    max_entries: int | None = None,
    tell: Tell = lambda _, __: None,
) -> Answer:
    """Clean up after the caller's tenant, or all of them, in batches; each is a transaction with its events."""
    most = memory.config.max_episodes if max_entries is None else max_entries
    cleaned = Cleaned()
    callers = await inside_each(memory, caller, everywhere=everywhere)
    total = sum([await _due(memory, each, most) for each in callers])
    for each in callers:
        await _expire(memory, each, cleaned, lambda: tell(cleaned.expired_deleted + cleaned.capacity_deleted, total))
        await _crowd_out(memory, each, most, cleaned)
        tell(cleaned.expired_deleted + cleaned.capacity_deleted, total)
        async with memory.transaction(each, seconds=WORK_SECONDS) as tx:
            cleaned.remaining += await cleanup.remaining(tx, each)
            await cleanup.forget_records(tx, each, request_days=REQUEST_DAYS, run_days=RUN_DAYS)
    return {"dry_run": False, **asdict(cleaned)}


async def preview(
    memory: Memory, caller: Caller, *, everywhere: bool = False, max_entries: int | None = None
) -> Answer:
    """What a cleanup would delete; nothing changes."""
    most = memory.config.max_episodes if max_entries is None else max_entries
    cleaned = Cleaned()
    for each in await inside_each(memory, caller, everywhere=everywhere):
        async with memory.transaction(each, seconds=WORK_SECONDS) as tx:
            stock = await cleanup.stock(tx, each)
        crowded = min(max(stock.total - stock.expired - most, 0), stock.consolidated)
        cleaned.expired_deleted += stock.expired
        cleaned.expired_unread += stock.expired_unread
        cleaned.capacity_deleted += crowded
        cleaned.remaining += stock.total - stock.expired - crowded
    return {"dry_run": True, **asdict(cleaned)}


async def _due(memory: Memory, caller: Caller, most: int) -> int:
    found = await preview(memory, caller, max_entries=most)
    return int(found["expired_deleted"] + found["capacity_deleted"])


async def _expire(memory: Memory, caller: Caller, cleaned: Cleaned, tell: Callable[[], None]) -> None:
    while True:
        deleted, unread = await patiently(_expired, memory, caller)
        cleaned.expired_deleted += deleted
        cleaned.expired_unread += unread
        tell()
        if deleted < BATCH:
            return


async def _expired(memory: Memory, caller: Caller) -> tuple[int, int]:
    # What a crash loses of it is deleted by the next: it need not wait for the disk.
    async with memory.database.transaction(caller, seconds=WORK_SECONDS, durable=False) as tx:
        return await cleanup.delete_expired(tx, caller, BATCH)


async def _crowd_out(memory: Memory, caller: Caller, most: int, cleaned: Cleaned) -> None:
    while deleted := await patiently(_crowded_out, memory, caller, most):
        cleaned.capacity_deleted += deleted


async def _crowded_out(memory: Memory, caller: Caller, most: int) -> int:
    async with memory.database.transaction(caller, seconds=WORK_SECONDS, durable=False) as tx:
        await cleanup.alone(tx, caller)
        excess = await cleanup.remaining(tx, caller) - most
        return await cleanup.delete_oldest(tx, caller, min(excess, BATCH)) if excess > 0 else 0
