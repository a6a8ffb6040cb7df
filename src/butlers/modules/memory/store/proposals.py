"""Queries on the consolidation_proposals table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.store.consolidation import LeasedEpisode
from butlers.modules.memory.store.events import caller_payload
from butlers.modules.memory.store.statements import statements

_sql = statements("proposals")
Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NewProposal:
    """An action that waits for a person, and the episodes it comes from."""

    change: str
    action: Record
    target_id: UUID | None
    evidence: Sequence[UUID]
    happened_at: datetime


@dataclass(frozen=True, slots=True)
class Proposal(NewProposal):
    """A stored proposal."""

    id: UUID
    run_id: UUID
    butler: str
    status: str


async def insert(
    tx: Connection, caller: Caller, run_id: UUID, butler: str, proposed: Sequence[NewProposal], days: int
) -> None:
    """Store the proposals of a run."""
    await _sql.insert(
        tx,
        tenant_id=caller.tenant,
        run_id=run_id,
        butler=butler,
        days=days,
        changes=[each.change for each in proposed],
        actions=[dict(each.action) for each in proposed],
        target_ids=[each.target_id for each in proposed],
        happened_at=[each.happened_at for each in proposed],
    )


async def waiting(tx: Connection, caller: Caller, limit: int, run_id: UUID | None = None) -> list[Record]:
    """The proposals that wait for a person, the oldest first."""
    rows = _sql.waiting(tx, tenant_id=caller.tenant, run_id=run_id, max_rows=limit)
    return [dict(row) async for row in rows]


async def get(tx: Connection, caller: Caller, proposal_id: UUID) -> Proposal | None:
    """A proposal, or None."""
    row = await _sql.get(tx, tenant_id=caller.tenant, id=proposal_id)
    return Proposal(**row) if row else None


async def lock(tx: Connection, caller: Caller, proposal_id: UUID) -> None:
    """Lock a proposal until the transaction ends."""
    await _sql.lock(tx, tenant_id=caller.tenant, id=proposal_id)


async def evidence_states(tx: Connection, caller: Caller, ids: Sequence[UUID]) -> dict[UUID, LeasedEpisode]:
    """The episodes of a proposal, deleted ones included."""
    rows = _sql.evidence_states(tx, tenant_id=caller.tenant, ids=list(ids))
    return {row["id"]: LeasedEpisode(is_leased=False, **row) async for row in rows}


async def decide(tx: Connection, caller: Caller, proposal_id: UUID, status: str, memory_id: UUID | None) -> bool:
    """Accept or decline a proposal; False if it does not wait any more."""
    decided = await _sql.decide(
        tx, tenant_id=caller.tenant, id=proposal_id, status=status, decided_by=caller.actor, memory_id=memory_id
    )
    return decided is not None


async def expire(tx: Connection, caller: Caller, limit: int) -> int:
    """Expire proposals that nobody decided in time; returns their number."""
    return int(
        await _sql.expire(
            tx,
            tenant_id=caller.tenant,
            actor=caller.actor,
            request_id=caller.request_id,
            payload=caller_payload(caller),
            max_rows=limit,
        )
    )


async def delete_decided(tx: Connection, caller: Caller, days: int) -> None:
    """Delete proposals that were decided so many days ago."""
    await _sql.delete_decided(tx, tenant_id=caller.tenant, days=days)
