"""Queries on the session_receipts and session_receipt_lines tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.domain.receipt import Receipt
from butlers.modules.memory.store.statements import statements

_sql = statements("receipts")
MAX_COUNTED = 1_000
"""Lines of a memory that are counted at most."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NewReceipt:
    """A receipt of a session that is not stored yet."""

    session_id: UUID
    receipt: Receipt
    agent: str | None = None
    id: UUID = field(default_factory=uuid4)
    told_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    """When the call ended: a batch of receipts is stored later, at one time."""


@dataclass(frozen=True, slots=True)
class ToldCount:
    """The number of sessions that were told a memory, and the last time."""

    sessions: int = 0
    last_told_at: datetime | None = None


async def insert(tx: Connection, caller: Caller, receipts: Sequence[NewReceipt]) -> None:
    """Store receipts of the caller's tenant with their lines."""
    lines = [(new, line) for new in receipts for line in new.receipt.stored_lines]
    await _sql.insert(
        tx,
        tenant_id=caller.tenant,
        ids=[new.id for new in receipts],
        session_ids=[new.session_id for new in receipts],
        sources=[new.receipt.source for new in receipts],
        butler=caller.butler,
        agents=[new.agent for new in receipts],
        told=[new.receipt.told for new in receipts],
        left_out=[new.receipt.left_out for new in receipts],
        tokens=[new.receipt.tokens for new in receipts],
        token_budgets=[new.receipt.token_budget for new in receipts],
        told_at=[new.told_at for new in receipts],
        line_receipts=[new.id for new, _ in lines],
        memory_types=[line.memory_type for _, line in lines],
        memory_ids=[line.memory_id for _, line in lines],
        line_sessions=[new.session_id for new, _ in lines],
        line_times=[new.told_at for new, _ in lines],
        ranks=[line.rank for _, line in lines],
        outcomes=[line.outcome for _, line in lines],
        scores=[line.score for _, line in lines],
        line_tokens=[line.tokens for _, line in lines],
    )


async def of_session(tx: Connection, caller: Caller, session_id: UUID, limit: int) -> list[dict[str, Any]]:
    """The latest receipts of a session, oldest first, each with its lines."""
    receipts = [
        dict(row) async for row in _sql.of_session(tx, tenant_id=caller.tenant, session_id=session_id, max_rows=limit)
    ]
    lines: dict[UUID, list[dict[str, Any]]] = {receipt["id"]: [] for receipt in receipts}
    async for row in _sql.lines_of(tx, tenant_id=caller.tenant, receipt_ids=list(lines)):
        line = dict(row)
        lines[line.pop("receipt_id")].append(line)
    return [{**receipt, "lines": lines[receipt["id"]]} for receipt in receipts]


async def told_sessions(tx: Connection, caller: Caller, memory_id: UUID, limit: int) -> list[dict[str, Any]]:
    """The latest calls that told a memory to a session, newest first."""
    rows = _sql.told_sessions(tx, tenant_id=caller.tenant, memory_id=memory_id, max_rows=limit)
    return [dict(row) async for row in rows]


async def count_told(tx: Connection, caller: Caller, memory_ids: Sequence[UUID]) -> dict[UUID, ToldCount]:
    """How many sessions were told each of these memories; one that nobody was told is missing."""
    rows = _sql.count_told(tx, tenant_id=caller.tenant, memory_ids=list(memory_ids), max_counted=MAX_COUNTED)
    return {row["memory_id"]: ToldCount(row["sessions"], row["last_told_at"]) async for row in rows}


async def told_in_sessions(
    tx: Connection, caller: Caller, session_ids: Sequence[UUID]
) -> dict[UUID, set[tuple[MemoryType, UUID]]]:
    """The memories that each of these sessions was told or found."""
    told: dict[UUID, set[tuple[MemoryType, UUID]]] = {session_id: set() for session_id in session_ids}
    async for row in _sql.told_in_sessions(tx, tenant_id=caller.tenant, session_ids=list(session_ids)):
        told[row["session_id"]].add((MemoryType(row["memory_type"]), row["memory_id"]))
    return told


async def delete_old(tx: Connection, caller: Caller, days: int, limit: int) -> int:
    """Delete some receipts older than the given days; returns their number."""
    return int(await _sql.delete_old(tx, tenant_id=caller.tenant, days=days, max_rows=limit))
