"""Queries that delete expired episodes, episodes over capacity and old records."""

from dataclasses import dataclass
from typing import Literal

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.store.events import caller_payload
from butlers.modules.memory.store.statements import statements

_sql = statements("cleanup")


@dataclass(frozen=True, slots=True)
class EpisodeCounts:
    """The episodes of a tenant by what a cleanup would do with them."""

    total: int
    expired: int
    expired_unread: int
    consolidated: int


async def delete_episodes(
    tx: Connection, caller: Caller, event_type: Literal["episode_expired", "episode_crowded_out"], limit: int
) -> tuple[int, int]:
    """Delete the next expired or the oldest consolidated episodes.

    Returns their number and how many were never consolidated.
    """
    await reuse_plans(tx)
    row = await _sql.delete_episodes(
        tx,
        tenant_id=caller.tenant,
        event_type=event_type,
        max_rows=limit,
        actor=caller.actor,
        request_id=caller.request_id,
        caller_payload=caller_payload(caller),
    )
    return row["deleted"], row["unread"]


async def reuse_plans(tx: Connection) -> None:
    """Let the foreign-key checks of each row that this transaction deletes reuse one plan."""
    await _sql.reuse_plans(tx)


async def lock_tenant_cleanup(tx: Connection, caller: Caller) -> None:
    """Keep other cleanups of the tenant waiting until the transaction ends."""
    await _sql.lock_tenant_cleanup(tx, tenant_id=caller.tenant)


async def count_remaining(tx: Connection, caller: Caller) -> int:
    """The number of episodes of the tenant."""
    return int(await _sql.count_remaining(tx, tenant_id=caller.tenant))


async def count_episodes(tx: Connection, caller: Caller) -> EpisodeCounts:
    """The episodes of the tenant by what a cleanup would do with them."""
    return EpisodeCounts(**await _sql.count_episodes(tx, tenant_id=caller.tenant))


async def delete_old_records(tx: Connection, caller: Caller, *, request_days: int, run_days: int) -> None:
    """Delete stored answers, replaced words and consolidation runs older than the given days."""
    await _sql.delete_old_answers(tx, tenant_id=caller.tenant, days=request_days)
    await _sql.delete_old_edits(tx, tenant_id=caller.tenant, days=request_days)
    await _sql.delete_old_runs(tx, tenant_id=caller.tenant, days=run_days)
