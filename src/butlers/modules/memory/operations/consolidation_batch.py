"""A batch of episodes in the hands of one worker: taken under a lease, kept while it works, and never left behind."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import uuid4

from butlers.caller import Caller
from butlers.db import Connection
from butlers.errors import Fault
from butlers.modules.memory.domain.model import MemoryType, sanitize_text
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import consolidation, events
from butlers.modules.memory.store.consolidation import EpisodeBatch, RunRecord
from butlers.modules.memory.store.events import Event

_ERROR_CHARACTERS = 500
_CANCELLED = "it was cancelled"
_TOLD = {"failed": "episode_consolidation_failed", "dead_letter": "episode_dead_lettered"}


async def claim_batch(memory: Memory, caller: Caller, butler: str) -> EpisodeBatch | None:
    """The next batch of a group under a lease of our own, or None when there is none or it is not our turn."""
    claiming = asyncio.ensure_future(_claim_batch(memory, caller, butler))
    try:
        return await asyncio.shield(claiming)
    except asyncio.CancelledError:
        # It may have been committed by then: what was taken is given back.
        await asyncio.wait({claiming})
        if not claiming.exception() and (batch := claiming.result()):
            await release_batch(memory, caller, batch, RunRecord(), _CANCELLED)
        raise


async def _claim_batch(memory: Memory, caller: Caller, butler: str) -> EpisodeBatch | None:
    config = memory.config.consolidation
    batch = EpisodeBatch(uuid4(), uuid4(), butler, ())
    async with memory.transaction(caller) as tx:
        if not await consolidation.is_free(tx, caller, butler):
            return None
        most = await batch_size(memory, tx, caller, butler)
        episodes = await consolidation.claim(tx, caller, batch, lease_seconds=config.lease_seconds, limit=most)
        if not episodes:
            return None
        await consolidation.begin_run(tx, caller, batch, len(episodes))
    return replace(batch, episodes=episodes)


async def batch_size(memory: Memory, tx: Connection, caller: Caller, butler: str) -> int:
    """How many episodes the next batch has: half as many after each failure.

    An episode that no model can take drags fewer others along that way.
    """
    failures = await consolidation.attempts(tx, caller, butler)
    return max(1, memory.config.consolidation.batch_size >> failures)


@contextlib.asynccontextmanager
async def renew_lease(memory: Memory, caller: Caller, batch: EpisodeBatch) -> "AsyncIterator[asyncio.Future[None]]":
    """While the block lasts the batch stays ours; what it gives is done when it turns out not to be."""
    beating = asyncio.ensure_future(_renew_until_lost(memory, caller, batch))
    try:
        yield beating
    finally:
        beating.cancel()


async def _renew_until_lost(memory: Memory, caller: Caller, batch: EpisodeBatch) -> None:
    """Renew the lease at a third of its time; returns when there is nothing to renew any more."""
    seconds = memory.config.consolidation.lease_seconds
    while True:
        await asyncio.sleep(seconds / 3)
        try:
            async with memory.transaction(caller) as tx:
                if not await consolidation.renew_lease(tx, caller, batch.token, seconds):
                    return
        except Fault as fault:
            # The database may be back before the lease is over; whose it is shows when the work is written.
            memory.warn(f"a lease could not be renewed: {fault.message}")


async def release_excess(memory: Memory, caller: Caller, batch: EpisodeBatch, taken: int) -> EpisodeBatch:
    """The batch without the episodes that found no room in the prompt; those wait again."""
    if taken == len(batch.episodes):
        return batch
    async with memory.transaction(caller) as tx:
        await consolidation.release_lease(tx, caller, batch.token, batch.ids[taken:])
    return replace(batch, episodes=batch.episodes[:taken])


async def record_failure(memory: Memory, caller: Caller, batch: EpisodeBatch, record: RunRecord, error: str) -> None:
    """Count the attempt and keep the reason; the episodes wait for the next, or are set aside after the last."""
    record.fail("failed", _short(error))
    try:
        async with memory.transaction(caller) as tx:
            most = memory.config.consolidation.max_attempts
            tried = await consolidation.record_failure(tx, caller, batch.token, _short(error), most)
            told = (
                Event(_TOLD[each.status], MemoryType.EPISODE, each.id, {"attempts": each.attempts}) for each in tried
            )
            await events.append(tx, caller, *told)
            await consolidation.finish_run(tx, caller, batch.run_id, record)
    except Fault as fault:
        memory.warn(f"a failed attempt could not be noted, its lease will run out: {fault.message}")


async def release_batch(memory: Memory, caller: Caller, batch: EpisodeBatch, record: RunRecord, reason: str) -> None:
    """Let the episodes wait as if nobody had taken them."""
    record.fail("released", _short(reason))
    try:
        async with memory.transaction(caller) as tx:
            await consolidation.release_lease(tx, caller, batch.token)
            await consolidation.finish_run(tx, caller, batch.run_id, record)
    except Fault as fault:
        memory.warn(f"a lease could not be given back and will run out: {fault.message}")


async def release_cancelled(memory: Memory, caller: Caller, batch: EpisodeBatch, record: RunRecord) -> None:
    """Give a batch back, whoever is in a hurry."""
    await asyncio.shield(release_batch(memory, caller, batch, record, _CANCELLED))


async def record_lost(memory: Memory, caller: Caller, batch: EpisodeBatch, record: RunRecord, reason: str) -> None:
    """Nothing this worker found out has any effect; the tokens it took it took."""
    record.fail("lost", reason)
    try:
        async with memory.transaction(caller) as tx:
            await consolidation.finish_run(tx, caller, batch.run_id, record)
    except Fault as fault:
        memory.warn(f"what a lost batch took could not be noted: {fault.message}")


def _short(error: str) -> str:
    return sanitize_text(error)[:_ERROR_CHARACTERS]
