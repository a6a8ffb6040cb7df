"""The pool and the tenant transaction: connection settings, isolation and the faults behind errors."""

import asyncio
import time
from datetime import UTC, datetime

import asyncpg
import numpy as np
import pytest

from butlers import db
from butlers.caller import Caller
from butlers.errors import InvalidInput, Overloaded, TimedOut, Unavailable
from database.butler_processes import connected, eventually


@pytest.fixture
async def single(butler):
    """A new pool of one connection."""
    database = await db.connect(butler.location.dsn, pool_size=1)
    yield database
    await database.close()


@pytest.mark.parametrize("tenant", ["", " ", "a b", "-a", "a" * 129, "a'b", "a\x00", "ä", None, 7, b"a"])
def test_a_caller_without_a_valid_tenant_can_not_be_constructed(tenant):
    with pytest.raises(InvalidInput):
        Caller(tenant=tenant, butler="b")


def test_a_caller_can_not_be_constructed_without_a_tenant():
    with pytest.raises(TypeError):
        Caller(butler="b")


READS = ["select * from facts", "select count(*) from job_runs", "select text from probe_rows"]
WRITES = [
    "insert into probe_rows values ('anna', 'x')",
    "insert into probe_rows values ('', 'x')",
    "update probe_rows set text = 'x'",
    "delete from probe_rows",
]


async def assert_refused(database, statement) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="tenant context is not set"):
        await database.fetch_row(statement)


@pytest.mark.parametrize("statement", READS + WRITES)
async def test_row_28_without_a_tenant_nothing_is_read_or_written(single, caller, butler, statement):
    """On a new connection, on one that served a tenant, and on one whose transaction failed."""
    await write_row(butler.database, caller, "hers")
    await assert_refused(single, statement)
    async with single.transaction(caller) as tx:
        assert await tx.fetchval("select count(*) from probe_rows") > 0
    await assert_refused(single, statement)
    with pytest.raises(asyncpg.DivisionByZeroError):
        await fail_in_transaction(single, caller)
    await assert_refused(single, statement)
    async with connected(butler.location.admin_dsn) as connection:
        assert await connection.fetchval("select count(*) from probe_rows where tenant_id <> 'anna'") == 0
        assert await connection.fetchval("select count(*) from probe_rows where text <> 'hers'") == 0


async def fail_in_transaction(database, caller) -> None:
    async with database.transaction(caller) as tx:
        await tx.execute("select 1 / 0")


async def write_row(database, caller, text) -> None:
    async with database.transaction(caller) as tx:
        await tx.execute("insert into probe_rows values ($1, $2)", caller.tenant, text)


async def test_a_tenant_sees_its_own_rows_alone_even_without_a_filter(single, butler):
    one, other = butler.caller("one"), butler.caller("other")
    await write_row(single, one, "one's")
    async with single.transaction(other) as tx:
        assert await tx.fetch("select * from probe_rows") == []
        assert await tx.execute("delete from probe_rows") == "DELETE 0"
    async with single.transaction(other) as tx:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await tx.execute("insert into probe_rows values ('one', 'smuggled')")
    async with single.transaction(one) as tx:
        assert [row["text"] for row in await tx.fetch("select * from probe_rows")] == ["one's"]
        await tx.execute("delete from probe_rows")


async def test_every_connection_of_the_pool_is_set_up_the_same(database, caller):
    together = asyncio.Barrier(3)

    async def settings() -> tuple[str, ...]:
        async with database.transaction(caller) as tx:
            await together.wait()
            names = (
                "plan_cache_mode",
                "search_path",
                "lock_timeout",
                "idle_in_transaction_session_timeout",
                "timezone",
            )
            pid = await tx.fetchval("select pg_backend_pid()")
            return pid, *[await tx.fetchval("select current_setting($1)", name) for name in names]

    found = await asyncio.gather(settings(), settings(), settings())
    assert len({pid for pid, *_ in found}) == 3
    assert {tuple(rest) for _, *rest in found} == {("force_custom_plan", "public, pg_catalog", "2s", "10s", "UTC")}


async def test_a_tenant_that_wants_every_connection_leaves_a_quarter_to_the_others(butler):
    database = await db.connect(butler.location.dsn, pool_size=4)
    loud, quiet = butler.caller("loud"), butler.caller("quiet")
    over, inside = asyncio.Event(), 0

    async def hold() -> None:
        nonlocal inside
        async with database.transaction(loud):
            inside += 1
            await over.wait()

    async def three_are_in() -> bool:
        return inside == 3

    holding = [asyncio.create_task(hold()) for _ in range(4)]
    await eventually(three_are_in, "the loud tenant to have its share")
    async with database.transaction(quiet) as tx:
        assert await tx.fetchval("select 1") == 1
    assert inside == 3
    over.set()
    await asyncio.gather(*holding)
    assert inside == 4, "the waiting call ran afterwards"
    await database.close()


async def test_settings_hold_on_a_connection_that_is_used_again(single, caller):
    async with single.transaction(caller, seconds=1) as tx:
        await tx.execute("set local search_path = pg_temp")
        await tx.execute("set local plan_cache_mode = auto")
    for name, value in {
        "search_path": "public, pg_catalog",
        "plan_cache_mode": "force_custom_plan",
        "statement_timeout": "30s",
    }.items():
        row = await single.fetch_row("select current_setting($1) as value", name)
        assert row is not None
        assert row["value"] == value


@pytest.mark.parametrize(
    "value", [{"a": [1, 2.5, None, True, "ü \U0001f600"]}, [], "text", 7, None, {"quote": "\"'\\"}], ids=repr
)
@pytest.mark.parametrize("kind", ["json", "jsonb"])
async def test_json_comes_back_as_it_went_in(database, caller, kind, value):
    async with database.transaction(caller) as tx:
        assert await tx.fetchval(f"select $1::{kind}", value) == value


async def test_vectors_come_back_as_they_went_in(database, caller):
    vector = np.linspace(-1, 1, 384, dtype=np.float32)
    async with database.transaction(caller) as tx:
        back = await tx.fetchval("select $1::vector", vector)
        assert await tx.fetchval("select $1::vector <-> $2::vector", vector, back) == 0
    assert np.array_equal(back.to_numpy(), vector)


async def test_times_come_back_in_utc(database, caller):
    moment = datetime(2026, 7, 28, 12, 30, tzinfo=UTC)
    async with database.transaction(caller) as tx:
        assert (await tx.fetchval("select $1::timestamptz", moment)).isoformat() == moment.isoformat()


async def run_slow_statement(database, caller, seconds: float) -> None:
    async with database.transaction(caller, seconds=seconds) as tx:
        await tx.execute("select pg_sleep(20)")


@pytest.mark.parametrize("seconds", [0.1, 0.0001])
async def test_row_10_a_statement_over_its_time_is_a_timeout_and_its_connection_usable(single, caller, seconds):
    started = time.monotonic()
    with pytest.raises(TimedOut, match="took too long") as late:
        await run_slow_statement(single, caller, seconds)
    assert time.monotonic() - started < 2
    assert late.value.hint
    pid = await single.fetch_row("select pg_backend_pid() as pid")
    with pytest.raises(TimedOut):
        await run_slow_statement(single, caller, seconds)
    assert await single.fetch_row("select pg_backend_pid() as pid") == pid


async def test_row_09_a_pool_without_a_free_connection_is_overloaded_within_about_two_seconds(database, caller):
    release = asyncio.Event()

    async def hold() -> None:
        async with database.transaction(caller):
            await release.wait()

    holding = [asyncio.create_task(hold()) for _ in range(3)]
    await eventually(
        lambda: asyncio.sleep(0, database.usage().idle == 0 and database.usage().size == 3), "a full pool"
    )
    started = time.monotonic()
    with pytest.raises(Overloaded, match="every database connection is busy"):
        await database.ping()
    assert 1.5 < time.monotonic() - started < 4
    release.set()
    await asyncio.gather(*holding)
    await database.ping()


async def test_a_lock_somebody_else_holds_is_overloaded(database, caller):
    async with database.transaction(caller) as first:
        await first.execute("select pg_advisory_xact_lock(42)")
        with pytest.raises(Overloaded, match="another call holds"):
            async with database.transaction(caller) as second:
                await second.execute("select pg_advisory_xact_lock(42)")


async def test_row_06_a_connection_ended_in_mid_transaction_is_unavailable_and_the_next_call_works(
    database, caller, admin
):
    async def cut_off() -> None:
        async with database.transaction(caller) as tx:
            await tx.execute("insert into probe_rows values ($1, 'lost')", caller.tenant)
            await admin.execute("select pg_terminate_backend($1)", await tx.fetchval("select pg_backend_pid()"))
            await tx.execute("select pg_sleep(5)")

    with pytest.raises(Unavailable, match=r"ended the connection|connection to the database was lost") as ended:
        await cut_off()
    assert "Retry" in ended.value.hint
    async with database.transaction(caller) as tx:
        assert await tx.fetchval("select count(*) from probe_rows where text = 'lost'") == 0


async def test_row_06_every_idle_connection_ended_is_not_noticed_by_the_next_call(butler, database, caller, admin):
    await database.ping()
    await admin.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where usename = $1 and application_name = 'butlers'",
        butler.location.app,
    )
    await asyncio.sleep(0.1)
    await database.ping()


async def test_a_cancelled_call_gives_its_connection_back_and_leaves_nothing(single, caller):
    working = asyncio.Event()

    async def call() -> None:
        async with single.transaction(caller) as tx:
            await tx.execute("insert into probe_rows values ($1, 'cancelled')", caller.tenant)
            working.set()
            await tx.execute("select pg_sleep(20)")

    task = asyncio.create_task(call())
    await working.wait()
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with single.transaction(caller) as tx:
        assert await tx.fetchval("select count(*) from probe_rows where text = 'cancelled'") == 0


async def test_a_file_that_is_missing_is_not_blamed_on_the_database(database, caller):
    with pytest.raises(FileNotFoundError):
        async with database.transaction(caller):
            raise FileNotFoundError("model.onnx")
    assert db.as_fault(FileNotFoundError("model.onnx")) is None


async def test_a_database_that_is_not_there_is_unavailable():
    with pytest.raises(Unavailable, match="can't be reached"):
        await db.connect("postgresql://nobody@/none?host=/nowhere")


async def test_closing_ends_after_its_timeout(butler, caller):
    database = await db.connect(butler.location.dsn, pool_size=1)
    task = asyncio.create_task(run_slow_statement(database, caller, 20))
    await eventually(lambda: asyncio.sleep(0, database.usage().idle == 0), "the call to be under way")
    started = time.monotonic()
    await database.close(seconds=0.3)
    assert time.monotonic() - started < 3
    with pytest.raises(Unavailable):
        await task
