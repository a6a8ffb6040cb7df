"""Queries of the decay sweep: pages of decaying facts and rules."""

from dataclasses import asdict, dataclass
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection, Database
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.store.events import caller_payload
from butlers.modules.memory.store.statements import statements

_sql = statements("decay_sweep")
MIN_ID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The confidence below which a memory fades, and below which it expires."""

    fading_below: float
    expired_below: float


@dataclass(frozen=True, slots=True)
class SweepPage:
    """The counts of one page of a sweep, and the last id in it."""

    seen: int
    fading: int
    recovered: int
    expired: int
    held_back: int = 0
    last: UUID = MIN_ID


async def list_tenants(database: Database) -> list[str]:
    """Every tenant with memories."""
    return [row["tenant_id"] for row in await database.fetch_across_tenants(_sql.list_tenants.sql)]


async def count_live(tx: Connection, caller: Caller, memory_type: MemoryType) -> int:
    """The number of live memories of a type."""
    return int(await _sql.count_live(tx, tenant_id=caller.tenant, memory_type=memory_type))


async def sweep_page(
    tx: Connection,
    caller: Caller,
    memory_type: MemoryType,
    after: UUID,
    limit: int,
    thresholds: Thresholds,
    may_expire: int,
) -> SweepPage:
    """Apply decay to the next facts or rules after an id."""
    row = await _sql.sweep_page(
        tx,
        tenant_id=caller.tenant,
        memory_type=memory_type,
        after=after,
        max_rows=limit,
        may_expire=may_expire,
        actor=caller.actor,
        request_id=caller.request_id,
        caller_payload=caller_payload(caller),
        **asdict(thresholds),
    )
    return SweepPage(**row)


async def preview_sweep(tx: Connection, caller: Caller, memory_type: MemoryType, thresholds: Thresholds) -> SweepPage:
    """What a sweep of a type would do without a cap."""
    row = await _sql.preview_sweep(tx, tenant_id=caller.tenant, memory_type=memory_type, **asdict(thresholds))
    return SweepPage(**row)
