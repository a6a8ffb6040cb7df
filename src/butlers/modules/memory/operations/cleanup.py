"""Episodes go when their time is over, and the oldest that were read when there are too many."""

from collections.abc import Callable
from dataclasses import asdict, dataclass

from butlers.caller import Caller
from butlers.db import WRITE_TIMEOUT_SECONDS
from butlers.modules.memory.operations.idempotency import Answer
from butlers.modules.memory.operations.retry import retry_when_busy
from butlers.modules.memory.operations.tenants import callers_by_tenant
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import cleanup

ACTOR = "cleanup"
BATCH = 2_000
REQUEST_DAYS, RUN_DAYS = 30, 180
"""How long answers are kept for requests that may come again, and the records of consolidation."""

Tell = Callable[[int, int], None]


@dataclass(slots=True)
class CleanupReport:
    """What a cleanup did."""

    expired_deleted: int = 0
    expired_unread: int = 0
    capacity_deleted: int = 0
    remaining: int = 0


async def clean_up(
    memory: Memory,
    caller: Caller,
    *,
    everywhere: bool = False,
    max_entries: int | None = None,
    tell: Tell = lambda _, __: None,
) -> Answer:
    """Clean up after the caller's tenant, or all of them, in batches; each is a transaction with its events."""
    most = memory.config.max_episodes if max_entries is None else max_entries
    cleaned = CleanupReport()
    callers = await callers_by_tenant(memory, caller, everywhere=everywhere)
    total = sum([await _count_due(memory, each, most) for each in callers])
    for each in callers:
        await _delete_expired(
            memory, each, cleaned, lambda: tell(cleaned.expired_deleted + cleaned.capacity_deleted, total)
        )
        await _delete_over_capacity(memory, each, most, cleaned)
        tell(cleaned.expired_deleted + cleaned.capacity_deleted, total)
        async with memory.transaction(each, seconds=WRITE_TIMEOUT_SECONDS) as tx:
            cleaned.remaining += await cleanup.count_remaining(tx, each)
            await cleanup.delete_old_records(tx, each, request_days=REQUEST_DAYS, run_days=RUN_DAYS)
    return {"dry_run": False, **asdict(cleaned)}


async def preview(
    memory: Memory, caller: Caller, *, everywhere: bool = False, max_entries: int | None = None
) -> Answer:
    """What a cleanup would delete; nothing changes."""
    most = memory.config.max_episodes if max_entries is None else max_entries
    cleaned = CleanupReport()
    for each in await callers_by_tenant(memory, caller, everywhere=everywhere):
        async with memory.transaction(each, seconds=WRITE_TIMEOUT_SECONDS) as tx:
            stock = await cleanup.count_episodes(tx, each)
        crowded = min(max(stock.total - stock.expired - most, 0), stock.consolidated)
        cleaned.expired_deleted += stock.expired
        cleaned.expired_unread += stock.expired_unread
        cleaned.capacity_deleted += crowded
        cleaned.remaining += stock.total - stock.expired - crowded
    return {"dry_run": True, **asdict(cleaned)}


async def _count_due(memory: Memory, caller: Caller, most: int) -> int:
    found = await preview(memory, caller, max_entries=most)
    return int(found["expired_deleted"] + found["capacity_deleted"])


async def _delete_expired(memory: Memory, caller: Caller, cleaned: CleanupReport, tell: Callable[[], None]) -> None:
    while True:
        deleted, unread = await retry_when_busy(_delete_expired_batch, memory, caller)
        cleaned.expired_deleted += deleted
        cleaned.expired_unread += unread
        tell()
        if deleted < BATCH:
            return


async def _delete_expired_batch(memory: Memory, caller: Caller) -> tuple[int, int]:
    # What a crash loses of it is deleted by the next: it need not wait for the disk.
    async with memory.database.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS, durable=False) as tx:
        return await cleanup.delete_expired(tx, caller, BATCH)


async def _delete_over_capacity(memory: Memory, caller: Caller, most: int, cleaned: CleanupReport) -> None:
    while deleted := await retry_when_busy(_delete_over_capacity_batch, memory, caller, most):
        cleaned.capacity_deleted += deleted


async def _delete_over_capacity_batch(memory: Memory, caller: Caller, most: int) -> int:
    async with memory.database.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS, durable=False) as tx:
        await cleanup.lock_tenant_cleanup(tx, caller)
        excess = await cleanup.count_remaining(tx, caller) - most
        return await cleanup.delete_oldest(tx, caller, min(excess, BATCH)) if excess > 0 else 0
