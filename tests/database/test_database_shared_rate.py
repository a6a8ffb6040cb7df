"""The rate of a tenant across processes: leased in blocks, never more than the burst and the rate together."""

import asyncio
import time
from uuid import uuid4

import pytest

from butlers import db
from butlers.errors import Overloaded
from butlers.host.shared_rate import SharedRateLimit


async def count_admitted(limit: SharedRateLimit, tenant: str, calls: int) -> int:
    """Return how many of these calls at once are admitted."""

    async def call() -> bool:
        await limit.prepare(tenant)
        try:
            limit.take(tenant)
        except Overloaded:
            return False
        return True

    return sum(await asyncio.gather(*(call() for _ in range(calls))))


async def test_several_processes_share_the_burst_and_the_rate_of_a_tenant(database):
    tenant, started = f"t{uuid4().hex[:8]}", time.monotonic()
    limits = [SharedRateLimit(database, "home", 20, 60) for _ in range(3)]
    admitted = sum(await asyncio.gather(*(count_admitted(limit, tenant, 60) for limit in limits)))
    for _ in range(10):
        await asyncio.sleep(0.1)
        admitted += sum(await asyncio.gather(*(count_admitted(limit, tenant, 20) for limit in limits)))
    allowed = 60 + 20 * (time.monotonic() - started)
    assert 60 <= admitted <= allowed + 1
    assert admitted > allowed - 3 * 6, "blocks that nobody uses are small"


async def test_other_tenants_and_other_butlers_have_their_own_rate(database):
    tenant = f"t{uuid4().hex[:8]}"
    assert await count_admitted(SharedRateLimit(database, "home", 1, 10), tenant, 30) <= 12
    assert await count_admitted(SharedRateLimit(database, "home", 1, 10), f"{tenant}x", 5) == 5
    assert await count_admitted(SharedRateLimit(database, "other", 1, 10), tenant, 5) == 5


async def test_a_call_needs_no_statement_while_its_block_lasts(database, caller):
    tenant, leases = f"t{uuid4().hex[:8]}", 0

    class Counted(SharedRateLimit):
        async def _lease(self, tenant: str, wanted: float) -> float:
            nonlocal leases
            leases += 1
            return await super()._lease(tenant, wanted)

    limit = Counted(database, "home", 200, 400)
    for _ in range(300):
        assert await count_admitted(limit, tenant, 1) == 1
    assert leases <= 300 / 20


async def test_without_the_database_each_process_applies_the_rate_by_itself(butler):
    closed = await db.connect(butler.location.dsn, pool_size=1)
    await closed.close()
    limit = SharedRateLimit(closed, "home", 1, 10)
    assert await count_admitted(limit, "anna", 30) in {10, 11}


@pytest.mark.parametrize("calls", [5, 500])
async def test_a_large_request_counts_as_several_calls(database, calls):
    tenant = f"t{uuid4().hex[:8]}"
    limit = SharedRateLimit(database, "home", 1, 10)
    await limit.prepare(tenant, calls=calls)
    limit.take(tenant, calls=calls)
    assert await count_admitted(limit, tenant, 20) == max(0, 10 - calls)
