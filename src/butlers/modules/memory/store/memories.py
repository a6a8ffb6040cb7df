"""Queries on memories of any type, by id."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.model import FACT_CONFIDENCE, RULE_CONFIDENCE, MemoryType
from butlers.modules.memory.store import facts, states
from butlers.modules.memory.store.statements import statements
from butlers.modules.memory.store.states import States

_sql = statements("memories")
_CONFIRM = {
    MemoryType.FACT: (statements("facts").confirm, FACT_CONFIDENCE),
    MemoryType.RULE: (statements("rules").confirm, RULE_CONFIDENCE),
}

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ConfirmationResult:
    """The confidence of a confirmed memory, and when it was confirmed."""

    confidence: float
    last_confirmed_at: datetime


async def mark_referenced(
    tx: Connection, caller: Caller, *, facts: Sequence[UUID], rules: Sequence[UUID], max_characters: int
) -> dict[UUID, Record]:
    """Count a reference to these facts and rules and return them by id, contents cut after so many characters."""
    rows = _sql.mark_referenced(
        tx, tenant_id=caller.tenant, fact_ids=list(facts), rule_ids=list(rules), max_characters=max_characters
    )
    return {row["id"]: dict(row) async for row in rows}


async def fetch_many(tx: Connection, caller: Caller, ids: Sequence[UUID], max_characters: int) -> dict[UUID, Record]:
    """These memories by id, as a list shows them, contents cut after so many characters."""
    rows = _sql.fetch_many(tx, tenant_id=caller.tenant, ids=list(ids), max_characters=max_characters)
    return {row["id"]: dict(row) async for row in rows}


async def fetch_for_context(
    tx: Connection, caller: Caller, ids: Sequence[UUID], butler: str, max_episodes: int, max_characters: int
) -> tuple[dict[UUID, Record], list[Record]]:
    """These facts and rules by id, and a butler's latest live episodes; contents cut after so many characters."""
    rows = _sql.fetch_for_context(
        tx,
        tenant_id=caller.tenant,
        ids=list(ids),
        butler=butler,
        max_episodes=max_episodes,
        max_characters=max_characters,
    )
    fetched: list[Record] = [dict(row) async for row in rows]
    recent = [row for row in fetched if row["memory_type"] == MemoryType.EPISODE]
    return {row["id"]: row for row in fetched if row["memory_type"] != MemoryType.EPISODE}, recent


async def get(
    tx: Connection, caller: Caller, memory_type: MemoryType, memory_id: UUID, *, counted: bool
) -> Record | None:
    """A whole memory in any state; `counted` counts a reference."""
    statement = getattr(_sql, f"get_{memory_type}" if counted else f"look_at_{memory_type}")
    row = await statement(tx, tenant_id=caller.tenant, id=memory_id)
    return dict(row) if row else None


async def confirm(
    tx: Connection, caller: Caller, memory_type: MemoryType, memory_id: UUID, *, supported: bool = True
) -> ConfirmationResult | None:
    """Restart the decay of a live fact or rule; None where it is not live."""
    return (await confirm_many(tx, caller, memory_type, [memory_id], supported=supported)).get(memory_id)


async def confirm_many(
    tx: Connection, caller: Caller, memory_type: MemoryType, ids: Sequence[UUID], *, supported: bool = True
) -> dict[UUID, ConfirmationResult]:
    """Restart the decay of these facts or rules; returns those that are live.

    Supported, a distilled memory gets the confidence of a stored one.
    """
    statement, full_confidence = _CONFIRM[memory_type]
    rows = statement(
        tx, tenant_id=caller.tenant, ids=list(ids), is_supported=supported, full_confidence=full_confidence
    )
    return {row["id"]: ConfirmationResult(row["confidence"], row["last_confirmed_at"]) async for row in rows}


async def lifecycle_state(tx: Connection, caller: Caller, memory_type: MemoryType, memory_id: UUID) -> str | None:
    """active, superseded, expired, retracted or forgotten; None where there is no such memory."""
    state: str | None = await _sql.lifecycle_state(tx, tenant_id=caller.tenant, memory_type=memory_type, id=memory_id)
    return state


async def forget(tx: Connection, caller: Caller, memory_type: MemoryType, ids: Sequence[UUID]) -> list[UUID]:
    """Take these memories out of every search; returns the ids of those that were live."""
    rows = _sql.forget(tx, tenant_id=caller.tenant, memory_type=memory_type, ids=list(ids))
    return [row["id"] async for row in rows]


async def restore(tx: Connection, caller: Caller, memory_type: MemoryType, memory_id: UUID) -> States | None:
    """Make a forgotten memory live again; returns its state before, or None where it is not forgotten."""
    if memory_type is MemoryType.FACT:
        # The key before the row, as a store does.
        await facts.lock_keys_of_facts(tx, caller, [memory_id])
    before = await states.lock(tx, caller, memory_type, [memory_id])
    return before if await _restore(tx, caller, memory_type, [memory_id]) else None


async def restore_many(tx: Connection, caller: Caller, memory_type: MemoryType, ids: Sequence[UUID]) -> list[UUID]:
    """Make these forgotten memories live again; returns the ids of those that were forgotten and whose key is free.

    The caller has locked the rows, and the keys of facts.
    """
    if memory_type is MemoryType.FACT:
        ids = [row["id"] async for row in _sql.restorable_facts(tx, tenant_id=caller.tenant, ids=list(ids))]
    return await _restore(tx, caller, memory_type, ids)


async def _restore(tx: Connection, caller: Caller, memory_type: MemoryType, ids: Sequence[UUID]) -> list[UUID]:
    rows = _sql.restore(tx, tenant_id=caller.tenant, memory_type=memory_type, ids=list(ids))
    return [row["id"] async for row in rows]
