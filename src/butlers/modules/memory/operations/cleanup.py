"""Cleanup of episodes, expired or over the configured limit, and of old receipts and records."""

from dataclasses import asdict, dataclass

from butlers.caller import Caller
from butlers.db import WRITE_TIMEOUT_SECONDS
from butlers.modules.memory.operations.batching import Progress, callers_by_tenant, no_progress, retry_when_busy
from butlers.modules.memory.operations.idempotency import Answer
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import cleanup, proposals, receipts

ACTOR = "cleanup"
BATCH = 2_000
REQUEST_DAYS, RUN_DAYS = 30, 180
"""Retention of stored answers to requests and words that edits replaced, and of the records of consolidation runs."""


@dataclass(slots=True)
class CleanupReport:
    """Episodes deleted and remaining."""

    expired_deleted: int = 0
    expired_unread: int = 0
    capacity_deleted: int = 0
    remaining: int = 0

    @property
    def deleted(self) -> int:
        """Episodes deleted for either reason."""
        return self.expired_deleted + self.capacity_deleted


async def clean_up(
    memory: Memory,
    caller: Caller,
    *,
    all_tenants: bool = False,
    max_entries: int | None = None,
    progress: Progress = no_progress,
) -> Answer:
    """Clean up the caller's tenant, or all of them, in batches; each batch is one transaction with its events."""
    limit = memory.config.max_episodes if max_entries is None else max_entries
    report = CleanupReport()
    callers = await callers_by_tenant(memory, caller, all_tenants=all_tenants)
    total = (await _preview(memory, callers, limit)).deleted
    for each in callers:
        deleted = BATCH
        while deleted == BATCH:
            deleted, unread = await retry_when_busy(_delete_expired, memory, each)
            report.expired_deleted += deleted
            report.expired_unread += unread
            progress(report.deleted, total)
        while deleted := await retry_when_busy(_delete_over_capacity, memory, each, limit):
            report.capacity_deleted += deleted
        progress(report.deleted, total)
        while await retry_when_busy(_delete_old_receipts, memory, each) == BATCH:
            pass
        async with memory.transaction(each, seconds=WRITE_TIMEOUT_SECONDS) as tx:
            report.remaining += await cleanup.count_remaining(tx, each)
            await cleanup.delete_old_records(tx, each, request_days=REQUEST_DAYS, run_days=RUN_DAYS)
            await proposals.delete_decided(tx, each, REQUEST_DAYS)
        while await retry_when_busy(_expire_proposals, memory, each) == BATCH:
            pass
    return {"dry_run": False, **asdict(report)}


async def preview(
    memory: Memory, caller: Caller, *, all_tenants: bool = False, max_entries: int | None = None
) -> Answer:
    """Return what a cleanup would delete; nothing changes."""
    limit = memory.config.max_episodes if max_entries is None else max_entries
    callers = await callers_by_tenant(memory, caller, all_tenants=all_tenants)
    return {"dry_run": True, **asdict(await _preview(memory, callers, limit))}


async def _preview(memory: Memory, callers: list[Caller], limit: int) -> CleanupReport:
    report = CleanupReport()
    for each in callers:
        async with memory.transaction(each, seconds=WRITE_TIMEOUT_SECONDS) as tx:
            counts = await cleanup.count_episodes(tx, each)
        excess = min(max(counts.total - counts.expired - limit, 0), counts.consolidated)
        report.expired_deleted += counts.expired
        report.expired_unread += counts.expired_unread
        report.capacity_deleted += excess
        report.remaining += counts.total - counts.expired - excess
    return report


async def _delete_expired(memory: Memory, caller: Caller) -> tuple[int, int]:
    # Not durable: the next cleanup deletes what a crash loses.
    async with memory.database.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS, durable=False) as tx:
        return await cleanup.delete_episodes(tx, caller, "episode_expired", BATCH)


async def _expire_proposals(memory: Memory, caller: Caller) -> int:
    async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        return await proposals.expire(tx, caller, BATCH)


async def _delete_over_capacity(memory: Memory, caller: Caller, limit: int) -> int:
    async with memory.database.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS, durable=False) as tx:
        await cleanup.lock_tenant_cleanup(tx, caller)
        excess = await cleanup.count_remaining(tx, caller) - limit
        if excess <= 0:
            return 0
        deleted, _ = await cleanup.delete_episodes(tx, caller, "episode_crowded_out", min(excess, BATCH))
        return deleted


async def _delete_old_receipts(memory: Memory, caller: Caller) -> int:
    async with memory.database.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS, durable=False) as tx:
        await cleanup.reuse_plans(tx)
        return await receipts.delete_old(tx, caller, memory.config.receipt_days, BATCH)
