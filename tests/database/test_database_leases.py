"""Leases: one holder, takeover after expiry, fenced transactions, and work that stops when its lease is lost."""

import asyncio
import signal
import time

import pytest

from butlers import db
from butlers.db import LeaseLost
from butlers.host.leases import hold_lease, work_exclusively
from database.butler_processes import eventually

INSERT = "insert into probe_rows values ($1, $2)"
TAKE_OVER = "update leases set token = gen_random_uuid(), expires_at = now() + interval '1 minute' where name = $1"


async def is_free(database: db.Database, name: str) -> bool:
    async with hold_lease(database, name) as is_mine:
        return is_mine


async def test_a_lease_excludes_others_until_the_block_ends_and_uses_no_connection(database):
    async with hold_lease(database, "one") as first, hold_lease(database, "one") as second:
        async with hold_lease(database, "other") as third:
            assert (first, second, third) == (True, False, True)
            assert database.usage().idle == database.usage().size
        assert not await is_free(database, "one")
    assert await is_free(database, "one")


async def test_of_thirty_claims_at_once_one_succeeds(database):
    held = asyncio.Event()

    async def claim() -> bool:
        async with hold_lease(database, "thirty") as is_mine:
            if is_mine:
                await held.wait()
            return is_mine

    claims = [asyncio.create_task(claim()) for _ in range(30)]
    await eventually(lambda: asyncio.sleep(0, sum(each.done() for each in claims) == 29), "the others to be refused")
    held.set()
    assert sorted(await asyncio.gather(*claims)) == [False] * 29 + [True]


async def test_a_lease_is_renewed_while_the_work_goes_on(database):
    async with work_exclusively(database, "renewed", seconds=2) as is_mine:
        assert is_mine
        until = time.monotonic() + 3
        while time.monotonic() < until:
            assert not await is_free(database, "renewed")
            await asyncio.sleep(0.2)


_HOLDER = """
import asyncio, sys
from butlers import db
from butlers.host.leases import hold_lease

async def hold():
    database = await db.connect(sys.argv[1], pool_size=1)
    async with hold_lease(database, "held", seconds=2) as is_mine:
        print("acquired:", is_mine, flush=True)
        await asyncio.sleep(60)

asyncio.run(hold())
"""


async def test_the_lease_of_a_killed_process_is_taken_over_after_it_has_expired(butler, database, processes):
    holder = processes.python("-c", _HOLDER, butler.location.dsn)
    assert await asyncio.to_thread(holder.line, "acquired: ") == "True"
    assert not await is_free(database, "held")
    holder.end(signal.SIGKILL)
    await eventually(lambda: is_free(database, "held"), "the lease to expire", seconds=10)


async def test_work_whose_lease_was_taken_over_is_cancelled_and_writes_nothing_more(butler, database, caller):
    outcomes: list[str] = []

    async def write() -> None:
        async with database.transaction(caller) as tx:
            await tx.execute(INSERT, caller.tenant, "late")

    async def work() -> None:
        async with butler.location.owner_connection() as owner, work_exclusively(database, "lost", seconds=1):
            await owner.execute(TAKE_OVER, "lost")
            with pytest.raises(LeaseLost):
                await write()
            try:
                await asyncio.sleep(20)
            finally:
                outcomes.append("stopped")

    with pytest.raises(LeaseLost, match="another process has taken the work over"):
        await work()
    assert outcomes == ["stopped"]
    async with database.transaction(caller) as tx:
        assert await tx.fetchval("select count(*) from probe_rows where text = 'late'") == 0
    assert not await is_free(database, "lost"), "the lease of the other one was released"


async def test_a_lease_is_not_taken_over_in_the_middle_of_a_transaction_of_its_work(butler, database, caller):
    """The holder froze in a transaction for longer than its lease: it may commit, and the next starts after it."""
    order = []

    async def take_over() -> None:
        db.current_fence.set(None)
        await eventually(lambda: is_free(database, "frozen"), "the lease to be free")
        order.append("taken over")

    async with butler.location.owner_connection() as owner, work_exclusively(database, "frozen", seconds=60):
        async with database.transaction(caller, seconds=30) as tx:
            await owner.execute("update leases set expires_at = now() - interval '1 s' where name = 'frozen'")
            taking = asyncio.create_task(take_over())
            await tx.execute("select pg_sleep(1)")
            order.append("committed")
        await taking
    assert order == ["committed", "taken over"]


async def test_a_lease_belongs_to_the_work_and_not_to_what_it_started(database):
    """A session's lease that a job begins is renewed and released after the job has ended."""
    async with work_exclusively(database, "outer"):
        inner = hold_lease(database, "inner", seconds=1)
        assert await inner.__aenter__()
    await asyncio.sleep(1.5)
    assert not await is_free(database, "inner")
    await inner.__aexit__(None, None, None)
    assert await is_free(database, "inner")
