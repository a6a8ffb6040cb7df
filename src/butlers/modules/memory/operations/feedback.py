"""Feedback on memories: confirmations, and helpful or harmful marks on rules."""

from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain import maturity
from butlers.modules.memory.domain.errors import EpisodesDoNotDecay, MemoryNotFound, MemoryNotLive
from butlers.modules.memory.domain.maturity import TrackRecord
from butlers.modules.memory.domain.model import Maturity, MemoryType, sanitize_text
from butlers.modules.memory.operations.change_events import append_changes
from butlers.modules.memory.operations.idempotency import Answer, Request, run_once
from butlers.modules.memory.operations.receipts import settle
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import memories, rules, states

MAX_REASON_CHARACTERS = 1_000
MAX_REASONS = 50


async def confirm(
    memory: Memory, caller: Caller, memory_type: MemoryType, memory_id: UUID, request: Request
) -> Answer:
    """Restart the decay of a fact or rule; a fading one is active again. Raises `EpisodesDoNotDecay`."""
    if memory_type is MemoryType.EPISODE:
        raise EpisodesDoNotDecay

    async def work(tx: Connection) -> Answer:
        before = await states.lock(tx, caller, memory_type, [memory_id])
        confirmed = await memories.confirm(tx, caller, memory_type, memory_id)
        if confirmed is None:
            raise await refusal_for(tx, caller, memory_type, memory_id)
        await append_changes(tx, caller, f"{memory_type}_confirmed", memory_type, before, always=True)
        return {
            "id": str(memory_id),
            "memory_type": memory_type.value,
            "confidence": confirmed.confidence,
            "last_confirmed_at": confirmed.last_confirmed_at.isoformat(),
        }

    return await run_once(memory.transaction(caller), caller, request, work)


async def mark_helpful(memory: Memory, caller: Caller, rule_id: UUID, request: Request) -> Answer:
    """Count a success of a rule, and promote it when it has earned the next level."""

    await _settle_receipts(memory, caller)

    async def work(tx: Connection) -> Answer:
        record, metadata = await _lock_track_record(tx, caller, rule_id)
        after = maturity.after_helpful_mark(record)
        level = maturity.maturity_after_help(after)
        return await _write_mark(memory, tx, caller, rule_id, "helpful", after, level, metadata, None)

    return await run_once(memory.transaction(caller), caller, request, work)


async def mark_harmful(memory: Memory, caller: Caller, rule_id: UUID, reason: str | None, request: Request) -> Answer:
    """Count a harm of a rule, demote it when due, and flag it for inversion when it does more harm than good."""
    reason = sanitize_text(reason).strip()[:MAX_REASON_CHARACTERS] if reason else None
    await _settle_receipts(memory, caller)

    async def work(tx: Connection) -> Answer:
        record, metadata = await _lock_track_record(tx, caller, rule_id)
        after = maturity.after_harmful_mark(record)
        level = maturity.maturity_after_harm(after)
        if reason:
            reasons = [*metadata.get("harmful_reasons", []), reason]
            metadata = {**metadata, "harmful_reasons": reasons[-MAX_REASONS:]}
        if maturity.needs_inversion(after):
            metadata = {**metadata, "needs_inversion": True}
        return await _write_mark(memory, tx, caller, rule_id, "harmful", after, level, metadata, reason)

    return await run_once(memory.transaction(caller), caller, request, work)


async def _settle_receipts(memory: Memory, caller: Caller) -> None:
    """Wait for the receipts of the caller's session, which are the evidence of its mark."""
    if caller.session_id is not None:
        await settle(memory)


async def _lock_track_record(tx: Connection, caller: Caller, rule_id: UUID) -> tuple[TrackRecord, dict[str, Any]]:
    locked = await rules.lock_track_record(tx, caller, rule_id)
    if locked is None:
        raise MemoryNotFound(MemoryType.RULE, rule_id)
    if locked[1].get("forgotten"):
        raise MemoryNotLive(MemoryType.RULE, rule_id, "forgotten")
    return locked


async def _write_mark(
    memory: Memory,
    tx: Connection,
    caller: Caller,
    rule_id: UUID,
    outcome: str,
    after: TrackRecord,
    level: Maturity,
    metadata: dict[str, Any],
    reason: str | None,
) -> Answer:
    before = await states.fetch(tx, caller, MemoryType.RULE, [rule_id])
    await rules.write_track_record(tx, caller, rule_id, after, level, metadata)
    has_receipts = bool(memory.config.receipt_days)
    evidence = await rules.record_application(tx, caller, rule_id, outcome, reason, has_receipts=has_receipts)
    payload = {
        "evidence": evidence,
        "maturity": level.value,
        "maturity_before": after.maturity.value,
        "needs_inversion": bool(metadata.get("needs_inversion")),
    }
    counts = {"applied_count": after.applied, "success_count": after.successes, "harmful_count": after.harms}
    told = {**payload, **counts, "effectiveness": after.effectiveness}
    await append_changes(tx, caller, f"rule_marked_{outcome}", MemoryType.RULE, before, told, always=True)
    return {"id": str(rule_id), **counts, "effectiveness_score": after.effectiveness, **payload}


async def refusal_for(
    tx: Connection, caller: Caller, memory_type: MemoryType, memory_id: UUID
) -> MemoryNotFound | MemoryNotLive:
    """Return the fault for a change that matched no row: the memory does not exist, or its state forbids it."""
    state = await memories.lifecycle_state(tx, caller, memory_type, memory_id)
    if state is None:
        return MemoryNotFound(memory_type, memory_id)
    return MemoryNotLive(memory_type, memory_id, state)
