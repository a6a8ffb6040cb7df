"""Lease of an episode batch: claim, renew, release, and the record of a failed or lost batch."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import uuid4

from butlers.caller import Caller
from butlers.db import Connection
from butlers.errors import Fault
from butlers.modules.memory.domain.consolidation_prompt import max_content_characters
from butlers.modules.memory.domain.model import MemoryType, sanitize_text
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import consolidation, events
from butlers.modules.memory.store.consolidation import EpisodeBatch, RunRecord
from butlers.modules.memory.store.events import Event

_MAX_ERROR_CHARACTERS = 500
CANCELLED = "it was cancelled"
_EVENT_BY_STATUS = {"failed": "episode_consolidation_failed", "dead_letter": "episode_dead_lettered"}


async def claim_batch(memory: Memory, caller: Caller, butler: str) -> EpisodeBatch | None:
    """Return the next batch of a group under a new lease; None when none is due or another worker has the group."""
    claim = asyncio.ensure_future(_claim_batch(memory, caller, butler))
    try:
        return await asyncio.shield(claim)
    except asyncio.CancelledError:
        # The claim may have been committed before the cancellation arrived.
        await asyncio.wait({claim})
        if not claim.exception() and (batch := claim.result()):
            await release_batch(memory, caller, batch, RunRecord(), CANCELLED)
        raise


async def _claim_batch(memory: Memory, caller: Caller, butler: str) -> EpisodeBatch | None:
    lease_seconds = memory.config.consolidation.lease_seconds
    batch = EpisodeBatch(uuid4(), uuid4(), butler, ())
    async with memory.transaction(caller) as tx:
        if not await consolidation.lock_group_if_free(tx, caller, butler):
            return None
        limit = await batch_size(memory, tx, caller, butler)
        episodes = await consolidation.claim(
            tx, caller, batch, lease_seconds=lease_seconds, limit=limit, max_characters=content_limit(memory)
        )
        if not episodes:
            return None
        await consolidation.begin_run(tx, caller, batch, len(episodes))
    return replace(batch, episodes=episodes)


async def batch_size(memory: Memory, tx: Connection, caller: Caller, butler: str) -> int:
    """Return the number of episodes for the next batch: half as many after each failure, at least one.

    An episode that makes every batch fail then takes fewer others with it.
    """
    failures = await consolidation.attempts(tx, caller, butler)
    return max(1, memory.config.consolidation.batch_size >> failures)


def content_limit(memory: Memory) -> int:
    """Return the number of characters of an episode that are fetched for a prompt."""
    return max_content_characters(memory.config.consolidation.max_prompt_tokens)


@contextlib.asynccontextmanager
async def renew_lease(memory: Memory, caller: Caller, batch: EpisodeBatch) -> "AsyncIterator[asyncio.Future[None]]":
    """Renew the lease of a batch while the block runs; yields a future that is done when the lease is lost."""
    renewal = asyncio.ensure_future(_renew_until_lost(memory, caller, batch))
    try:
        yield renewal
    finally:
        renewal.cancel()


async def _renew_until_lost(memory: Memory, caller: Caller, batch: EpisodeBatch) -> None:
    """Renew the lease each third of its duration; return when no episode is under it any more."""
    seconds = memory.config.consolidation.lease_seconds
    while True:
        await asyncio.sleep(seconds / 3)
        try:
            async with memory.transaction(caller) as tx:
                if not await consolidation.renew_lease(tx, caller, batch.token, seconds):
                    return
        except Fault as fault:
            # The database may be back before the lease expires; applying the batch checks the lease again.
            memory.warn(f"a consolidation lease could not be renewed: {fault.message}")


async def release_excess(memory: Memory, caller: Caller, batch: EpisodeBatch, count: int) -> EpisodeBatch:
    """Return the batch with its first `count` episodes; the others did not fit the prompt and are pending again."""
    if count == len(batch.episodes):
        return batch
    async with memory.transaction(caller) as tx:
        await consolidation.release_lease(tx, caller, batch.token, batch.ids[count:])
    return replace(batch, episodes=batch.episodes[:count])


async def record_failure(memory: Memory, caller: Caller, batch: EpisodeBatch, record: RunRecord, error: str) -> None:
    """Count a failed attempt and store its error; the episodes are retried or dead-lettered."""
    record.fail("failed", _shorten(error))
    problem = "a failed consolidation attempt could not be recorded; its lease will expire"
    async with _finishing_run(memory, caller, batch, record, problem) as tx:
        max_attempts = memory.config.consolidation.max_attempts
        failed = await consolidation.record_failure(tx, caller, batch.token, _shorten(error), max_attempts)
        recorded = (
            Event(_EVENT_BY_STATUS[each.status], MemoryType.EPISODE, each.id, {"attempts": each.attempts})
            for each in failed
        )
        await events.append(tx, caller, *recorded)


async def release_batch(memory: Memory, caller: Caller, batch: EpisodeBatch, record: RunRecord, reason: str) -> None:
    """Release the lease of a batch without counting an attempt."""
    record.fail("released", _shorten(reason))
    problem = "a consolidation lease could not be released and will expire"
    async with _finishing_run(memory, caller, batch, record, problem) as tx:
        await consolidation.release_lease(tx, caller, batch.token)


async def record_lost(memory: Memory, caller: Caller, batch: EpisodeBatch, record: RunRecord, reason: str) -> None:
    """Record a batch whose lease was lost: nothing was applied, but its tokens count."""
    record.fail("lost", reason)
    async with _finishing_run(memory, caller, batch, record, "the tokens of a lost batch could not be recorded"):
        pass


@contextlib.asynccontextmanager
async def _finishing_run(
    memory: Memory, caller: Caller, batch: EpisodeBatch, record: RunRecord, problem: str
) -> AsyncIterator[Connection]:
    """Open a transaction that ends with the record of the run; a fault is logged as the given problem."""
    try:
        async with memory.transaction(caller) as tx:
            yield tx
            await consolidation.finish_run(tx, caller, batch.run_id, record)
    except Fault as fault:
        memory.warn(f"{problem}: {fault.message}")


def _shorten(error: str) -> str:
    return sanitize_text(error)[:_MAX_ERROR_CHARACTERS]
