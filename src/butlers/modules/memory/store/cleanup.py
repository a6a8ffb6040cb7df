"""Episodes that go."""

from dataclasses import dataclass

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.store.events import caller_payload
from butlers.modules.memory.store.statements import statements

_sql = statements("cleanup")


@dataclass(frozen=True, slots=True)
class EpisodeCounts:
    """The episodes there are: all, those whose time is over, and those that were read."""

    total: int
    expired: int
    expired_unread: int
    consolidated: int


async def delete_expired(tx: Connection, caller: Caller, most: int) -> tuple[int, int]:
    """Delete the next episodes whose time is over: how many, and how many of them nobody had read."""
    await _sql.plan_once(tx)
    row = await _sql.delete_expired(
        tx,
        tenant_id=caller.tenant,
        most=most,
        actor=caller.actor,
        request_id=caller.request_id,
        caller_payload=caller_payload(caller),
    )
    return row["deleted"], row["unread"]


async def delete_oldest(tx: Connection, caller: Caller, most: int) -> int:
    """Delete the oldest episodes that were consolidated; how many there were."""
    await _sql.plan_once(tx)
    deleted: int = await _sql.delete_oldest(
        tx,
        tenant_id=caller.tenant,
        most=most,
        actor=caller.actor,
        request_id=caller.request_id,
        caller_payload=caller_payload(caller),
    )
    return deleted


async def lock_tenant_cleanup(tx: Connection, caller: Caller) -> None:
    """Wait until nobody else makes room in this tenant, and keep others waiting until the transaction ends."""
    await _sql.alone(tx, tenant_id=caller.tenant)


async def count_remaining(tx: Connection, caller: Caller) -> int:
    """How many episodes there are."""
    counted: int = await _sql.remaining(tx, tenant_id=caller.tenant)
    return counted


async def count_episodes(tx: Connection, caller: Caller) -> EpisodeCounts:
    """The episodes there are, by what a cleanup would do with them."""
    row = await _sql.would_delete(tx, tenant_id=caller.tenant)
    return EpisodeCounts(row["total"], row["expired"], row["unread"], row["consolidated"])


async def delete_old_records(tx: Connection, caller: Caller, *, request_days: int, run_days: int) -> None:
    """Drop answers and records that nobody will ask for any more."""
    await _sql.forget_requests(tx, tenant_id=caller.tenant, days=request_days)
    await _sql.forget_runs(tx, tenant_id=caller.tenant, days=run_days)
