"""Receipts of what sessions were told: written after the answer, in batches, so that no call waits for them."""

import asyncio
from collections.abc import Sequence
from itertools import groupby
from uuid import UUID

from butlers.caller import Caller
from butlers.errors import Fault
from butlers.modules.memory.domain.errors import MemoryNotFound
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.domain.ranking import ScoredMemory
from butlers.modules.memory.domain.receipt import Receipt, ReceiptLine, ReceiptSource
from butlers.modules.memory.operations.idempotency import Answer
from butlers.modules.memory.runtime import Memory, PendingReceipt
from butlers.modules.memory.store import memories, receipts
from butlers.modules.memory.store.receipts import NewReceipt

MAX_RECEIPTS = 200
MAX_TOLD = 200
_MAX_PENDING = 1_000
_BATCH = 50
_SETTLE_SECONDS, _CLOSE_SECONDS = 2.0, 5.0


def record(memory: Memory, caller: Caller, receipt: Receipt) -> None:
    """Store the receipt of the caller's session soon; without a session, or with receipts off, do nothing.

    A database that can't be reached, or that falls behind, loses receipts and says so in the log: no session waits
    for them.
    """
    if caller.session_id is None or not memory.config.receipt_days:
        return
    queue = memory.receipts
    if len(queue.pending) >= _MAX_PENDING:
        memory.warn("a receipt was not stored: the database falls behind")
        return
    new = NewReceipt(UUID(caller.session_id), receipt, caller.details.get("agent") or None)
    queue.pending.append(PendingReceipt(caller, new))
    if queue.writer is None or queue.writer.done():
        queue.writer = asyncio.create_task(_write_pending(memory))


def record_found(memory: Memory, caller: Caller, source: ReceiptSource, found: Sequence[ScoredMemory]) -> None:
    """Store the receipt of a search or recall that answered with these memories."""
    lines = [
        ReceiptLine(each.candidate.memory_type, each.candidate.id, rank, score=each.score)
        for rank, each in enumerate(found, 1)
    ]
    record(memory, caller, Receipt(source, lines))


def record_read(memory: Memory, caller: Caller, memory_type: MemoryType, memory_id: UUID) -> None:
    """Store the receipt of a session that read one memory."""
    record(memory, caller, Receipt(ReceiptSource.GET, [ReceiptLine(memory_type, memory_id, 1)]))


async def settle(memory: Memory, seconds: float = _SETTLE_SECONDS) -> None:
    """Return when every receipt recorded so far is stored or lost, or after some seconds."""
    writer = memory.receipts.writer
    if writer is not None and not writer.done():
        await asyncio.wait([writer], timeout=seconds)


async def receipts_of_session(memory: Memory, caller: Caller, session_id: UUID) -> Answer:
    """Return what a session was told and found, call by call; the list is empty for one that has no receipts."""
    await settle(memory)
    async with memory.transaction(caller) as tx:
        found = await receipts.of_session(tx, caller, session_id, MAX_RECEIPTS + 1)
    kept = found[-MAX_RECEIPTS:]
    return {"session_id": session_id, "receipts": kept, "truncated": len(found) > len(kept)}


async def told_sessions(memory: Memory, caller: Caller, memory_type: MemoryType, memory_id: UUID) -> Answer:
    """Return the sessions that were told a memory, newest first, and their number.

    A deleted episode keeps them; raises `MemoryNotFound` for what neither exists nor was told.
    """
    await settle(memory)
    async with memory.transaction(caller) as tx:
        found = await receipts.told_sessions(tx, caller, memory_id, MAX_TOLD + 1)
        count = (await receipts.count_told(tx, caller, [memory_id])).get(memory_id, receipts.ToldCount())
        if not found and await memories.lifecycle_state(tx, caller, memory_type, memory_id) is None:
            raise MemoryNotFound(memory_type, memory_id)
    return {
        "memory_type": memory_type.value,
        "id": memory_id,
        "sessions": count.sessions,
        "last_told_at": count.last_told_at,
        "told": found[:MAX_TOLD],
        "truncated": len(found) > MAX_TOLD,
    }


async def close(memory: Memory) -> None:
    """Store the pending receipts, or lose those that the database does not take within some seconds."""
    await settle(memory, _CLOSE_SECONDS)
    if memory.receipts.writer is not None:
        memory.receipts.writer.cancel()


async def _write_pending(memory: Memory) -> None:
    """Write receipts until none is pending, a transaction for each tenant of a batch."""
    pending = memory.receipts.pending
    while pending:
        batch = [pending.popleft() for _ in range(min(_BATCH, len(pending)))]
        by_tenant = sorted(batch, key=lambda each: each.caller.tenant)
        for _, same_tenant in groupby(by_tenant, lambda each: each.caller.tenant):
            await _write(memory, list(same_tenant))


async def _write(memory: Memory, batch: Sequence[PendingReceipt]) -> None:
    try:
        async with memory.read_transaction(batch[0].caller) as tx:
            await receipts.insert(tx, batch[0].caller, [each.receipt for each in batch])
    except Exception as error:  # noqa: BLE001 — the session has its answer; an error must not lose the receipts behind
        reason = error.message if isinstance(error, Fault) else type(error).__name__
        memory.warn(f"{len(batch)} receipts were not stored: {reason}")
