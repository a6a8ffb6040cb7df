"""Jobs by the clock, on the real database, with a clock the test sets."""

import asyncio
import time
import uuid
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta, timezone

import asyncpg
import pytest

from butlers import app
from butlers.caller import Caller
from butlers.contract import Job
from butlers.cron import due
from butlers.errors import Conflict
from butlers.host.metrics import Metrics
from butlers.host.scheduler import Scheduler
from probe import MODULES

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self, now=NOON):
        self.now = now

    def __call__(self):
        return self.now


class Work:
    """A job that counts its runs and does as it is told."""

    def __init__(self, cron="0 * * * *", fails=None, seconds=0.0):
        self.job = Job(f"job_{uuid.uuid4().hex}", cron, self.run)
        self.fails = fails
        self.seconds = seconds
        self.runs = 0

    async def run(self, caller):
        self.runs += 1
        await asyncio.sleep(self.seconds)
        if self.fails:
            raise self.fails
        return {"runs": self.runs, "tenant": caller.tenant}


@pytest.fixture
async def database(folder, running):
    async with running(folder()) as server:
        yield server.database


@pytest.fixture
def caller():
    return Caller(tenant="default", butler="test", actor="scheduler")


@asynccontextmanager
async def watching(database, caller, *works, clock, stop=5.0):
    metrics = Metrics()
    scheduler = Scheduler(database, caller, [work.job for work in works], metrics, clock)
    scheduler.start()
    try:
        yield metrics
    finally:
        await scheduler.stop(stop)


async def recorded(database, caller, work):
    async with database.transaction(caller) as tx:
        rows = await tx.fetch(
            "select scheduled_for, status, result, error, finished_at from job_runs"
            " where job = $1 order by started_at, scheduled_for",
            work.job.name,
        )
    return [dict(row) for row in rows]


async def until(condition, seconds=30):
    give_up = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < give_up, "it never happened"
        await asyncio.sleep(0.02)


async def ran(database, caller, work, times):
    async def enough():
        rows = await recorded(database, caller, work)
        return len([row for row in rows if row["status"] != "running"]) >= times

    await until(enough)
    return await recorded(database, caller, work)


@pytest.mark.parametrize(
    ("cron", "now", "moment"),
    [
        ("0 * * * *", NOON, NOON),
        ("0 * * * *", NOON + timedelta(microseconds=1), NOON),
        ("0 * * * *", NOON - timedelta(microseconds=1), NOON - timedelta(hours=1)),
        ("0 * * * *", NOON + timedelta(minutes=59, seconds=59.9), NOON),
        ("30 8 * * *", NOON, NOON.replace(hour=8, minute=30)),
        ("0 8 * * 1", NOON - timedelta(hours=5), NOON - timedelta(days=7, hours=4)),
        ("0 0 29 2 *", NOON, datetime(2024, 2, 29, tzinfo=UTC)),
        ("* * * * * *", NOON + timedelta(seconds=7.5), NOON + timedelta(seconds=7)),
    ],
)
def test_a_moment_is_due_from_the_second_it_names(cron, now, moment):
    assert due(cron, now) == moment


def test_a_cron_expression_means_the_clock_of_the_place():
    there = timezone(timedelta(hours=5, minutes=30))
    assert due("0 8 * * *", NOON.astimezone(there)) == datetime(2026, 5, 4, 8, tzinfo=there)


async def test_a_job_runs_when_its_moment_has_come_and_not_before(database, caller):
    work, clock = Work(cron="* * * * * *"), Clock()
    async with watching(database, caller, work, clock=clock):
        await asyncio.sleep(0.3)
        assert work.runs == 0
        clock.now = NOON + timedelta(seconds=2)
        (row,) = await ran(database, caller, work, 1)
    assert (row["scheduled_for"], row["status"]) == (NOON + timedelta(seconds=2), "succeeded")
    assert row["result"] == {"runs": 1, "tenant": "default"}
    assert row["finished_at"] is not None


async def test_runs_missed_while_nothing_ran_are_caught_up_once(database, caller):
    work, clock = Work(), Clock()
    scheduler = Scheduler(database, caller, [work.job], Metrics(), clock)
    await scheduler._turn(work.job.name, NOON)
    clock.now = NOON + timedelta(hours=5, minutes=20)
    async with watching(database, caller, work, clock=clock):
        rows = await ran(database, caller, work, 2)
        await asyncio.sleep(0.2)
    assert [row["scheduled_for"] for row in rows] == [NOON, NOON + timedelta(hours=5)]
    assert work.runs == 2


async def test_a_job_that_never_ran_waits_for_its_first_moment(database, caller):
    work = Work()
    async with watching(database, caller, work, clock=Clock(NOON + timedelta(minutes=20))):
        await asyncio.sleep(0.3)
    assert await recorded(database, caller, work) == []


@pytest.mark.parametrize(
    ("error", "said"),
    [(Conflict("it is taken", hint="Wait."), "conflict: it is taken. Wait."), (ValueError("a secret"), "ValueError")],
)
async def test_a_failing_job_is_recorded_and_the_next_moment_runs(database, caller, error, said):
    work, clock = Work(cron="* * * * * *", fails=error), Clock()
    async with watching(database, caller, work, clock=clock) as metrics:
        await asyncio.sleep(0.1)
        clock.now += timedelta(seconds=1)
        await ran(database, caller, work, 1)
        work.fails = None
        clock.now += timedelta(seconds=1)
        rows = await ran(database, caller, work, 2)
        page = (await metrics.render(database, {})).decode()
    assert [(row["status"], row["error"]) for row in rows] == [("failed", said), ("succeeded", None)]
    assert f'butlers_job_runs_total{{job="{work.job.name}",outcome="failed"}} 1.0' in page
    assert f'butlers_job_runs_total{{job="{work.job.name}",outcome="succeeded"}} 1.0' in page


async def test_stopping_waits_for_a_job_that_runs(database, caller):
    work, clock = Work(cron="* * * * * *", seconds=0.6), Clock()
    async with watching(database, caller, work, clock=clock):
        await asyncio.sleep(0.1)
        clock.now += timedelta(seconds=1)

        async def running():
            return work.runs == 1

        await until(running)
    rows = await recorded(database, caller, work)
    assert [row["status"] for row in rows] == ["succeeded"]


async def test_a_job_that_had_to_be_cancelled_is_marked(database, caller):
    work, clock = Work(cron="* * * * * *", seconds=60), Clock()
    async with watching(database, caller, work, clock=clock, stop=0.1):
        await asyncio.sleep(0.1)
        clock.now += timedelta(seconds=1)

        async def running():
            return work.runs == 1

        await until(running)
    (row,) = await recorded(database, caller, work)
    assert (row["status"], row["error"]) == ("lost", "the butler was stopped")


async def test_a_run_whose_process_is_gone_is_given_up_by_the_next(database, caller):
    work = Work()
    scheduler = Scheduler(database, caller, [work.job], Metrics(), Clock())
    async with database.transaction(caller) as tx:
        await tx.execute(
            "insert into job_runs (tenant_id, job, scheduled_for, status) values ('default', $1, $2, 'running')",
            work.job.name,
            NOON - timedelta(hours=1),
        )
    await scheduler._turn(work.job.name, NOON)
    rows = await recorded(database, caller, work)
    assert [(row["status"], row["error"]) for row in rows] == [
        ("lost", "the process that ran it ended"),
        ("succeeded", None),
    ]


async def test_two_schedulers_run_each_moment_once(database, caller):
    work, clock = Work(cron="* * * * * *", seconds=0.1), Clock()
    async with watching(database, caller, work, clock=clock), watching(database, caller, work, clock=clock):
        await asyncio.sleep(0.2)
        for _ in range(3):
            clock.now += timedelta(seconds=1)
            await asyncio.sleep(1.2)
    rows = await recorded(database, caller, work)
    moments = [row["scheduled_for"] for row in rows]
    assert len(moments) == len(set(moments)) == work.runs
    assert moments[-1] == clock.now


async def test_a_long_run_does_not_delay_the_moment_after_it(database, caller):
    work = Work(cron="* * * * * *", seconds=0.7)
    started = time.monotonic()
    async with watching(database, caller, work, clock=lambda: datetime.now(UTC)):
        await ran(database, caller, work, 3)
    assert time.monotonic() - started < 8


async def test_a_butler_that_runs_for_real_keeps_its_jobs(folder, process, cluster):
    place = folder(probing='cron = "* * * * * *"', fresh=True)
    butler = process(place)
    butler.ready()
    connection = await asyncpg.connect(cluster.dsn(f"butler_{app.configuration(place, MODULES).butler.name}"))
    try:

        async def three():
            rows = await connection.fetch("select status, result from job_runs where job = 'probe_job'")
            return len([row for row in rows if row["status"] == "succeeded"]) >= 3

        await until(three, 30)
        assert await asyncio.to_thread(butler.end) == 0
        rows = await connection.fetch("select scheduled_for, status from job_runs where job = 'probe_job' order by 1")
    finally:
        await connection.close()
    moments = [row["scheduled_for"] for row in rows]
    assert len(moments) == len(set(moments))
    assert {row["status"] for row in rows} <= {"succeeded", "lost"}
