"""A settable clock, scripted jobs, and helpers that write and read job runs."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from butlers.caller import Caller
from butlers.contract import Job, JobResult
from butlers.db import Database
from butlers.host.early_runs import CHECK_SECONDS
from butlers.host.metrics import Metrics
from butlers.host.scheduler import Scheduler

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
EVERY_SECOND = "* * * * * *"


class FakeClock:
    """A clock that stands still until the test moves it, and counts how often it is read.

    It stands just before the end of a second, so that a waiting scheduler reads it many times a second.
    """

    def __init__(self, now: datetime = NOON) -> None:
        self.now = now
        self.reads = 0

    def __call__(self) -> datetime:
        self.reads += 1
        # Add in UTC: a sum in local time would lose which of two equal hours it was.
        return (self.now.astimezone(UTC) + timedelta(milliseconds=950)).astimezone(self.now.tzinfo)

    async def wait_handled(self, loops: float = 1) -> None:
        """Return when each of the job loops has handled the current time: one read before a run, one after it.

        A loop in the middle of a round needs two rounds; one that has just started needs one.
        """
        enough = self.reads + 4 * loops

        async def reached() -> bool:
            return self.reads >= enough

        await until(reached)


class FakeJob:
    """A job that counts its runs, and waits or fails as configured."""

    def __init__(
        self,
        cron: str = EVERY_SECOND,
        fails: Exception | None = None,
        seconds: float = 0.0,
        shared: bool = True,
        is_due_early: Callable[[Caller], Awaitable[bool]] | None = None,
    ) -> None:
        self.name = f"job_{uuid.uuid4().hex}"
        self.job = Job(self.name, cron, self.run, shared=shared, is_due_early=is_due_early)
        self.fails = fails
        self.seconds = seconds
        self.runs = 0

    async def run(self, caller: Caller) -> JobResult:
        self.runs += 1
        await asyncio.sleep(self.seconds)
        if self.fails:
            raise self.fails
        return {"runs": self.runs, "tenant": caller.tenant}

    async def wait_started(self, times: int = 1) -> None:
        """Return when the job has been started this many times."""

        async def reached() -> bool:
            return self.runs >= times

        await until(reached)


@dataclass(frozen=True)
class RunningScheduler:
    """A running scheduler and its metrics."""

    database: Database
    scheduler: Scheduler
    metrics: Metrics

    async def metrics_page(self) -> str:
        """Return the /metrics page."""
        return (await self.metrics.render(self.database, {}, self.scheduler.job_statuses)).decode()


@asynccontextmanager
async def run_scheduler(
    database: Database,
    caller: Caller,
    *works: FakeJob,
    clock: Callable[[], datetime],
    stop: float = 5.0,
    check_seconds: float = CHECK_SECONDS,
) -> AsyncIterator[RunningScheduler]:
    """Run a scheduler with these jobs and this clock."""
    metrics = Metrics()
    scheduler = Scheduler(database, caller, [work.job for work in works], metrics, clock, check_seconds)
    scheduler.start()
    try:
        yield RunningScheduler(database, scheduler, metrics)
    finally:
        await scheduler.stop(stop)


async def until(condition: Callable[[], Awaitable[object]], seconds: float = 30) -> None:
    """Wait until the condition is true."""
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, "it never happened"
        await asyncio.sleep(0.02)


async def insert_run(
    database: Database,
    caller: Caller,
    work: FakeJob,
    moment: datetime | None,
    status: str = "succeeded",
    days_ago: float = 0.0,
) -> None:
    """Insert a run of a job that started now or `days_ago`."""
    async with database.transaction(caller) as tx:
        await tx.execute(
            "insert into job_runs (tenant_id, job, scheduled_for, status, started_at, finished_at)"
            " select $1, $2, $3, $4, began, case when $4 <> 'running' then began end"
            " from (select now() - make_interval(secs => $5) as began) moments",
            caller.tenant,
            work.name,
            moment,
            status,
            days_ago * 86_400,
        )


async def fetch_runs(database: Database, caller: Caller, work: FakeJob) -> list[Mapping[str, Any]]:
    """Return all runs of a job, oldest first, including inserted ones."""
    async with database.transaction(caller) as tx:
        rows = await tx.fetch(
            "select scheduled_for, status, attempt, result, error, started_at, finished_at from job_runs"
            " where job = $1 order by started_at, scheduled_for",
            work.name,
        )
    return [dict(row) for row in rows]


async def wait_for_runs(database: Database, caller: Caller, work: FakeJob, times: int) -> list[Mapping[str, Any]]:
    """Return all runs of a job once this many have ended."""

    async def enough() -> bool:
        rows = await fetch_runs(database, caller, work)
        return len([row for row in rows if row["status"] != "running"]) >= times

    await until(enough)
    return await fetch_runs(database, caller, work)


async def set_finished_ago(database: Database, caller: Caller, work: FakeJob, seconds: float) -> None:
    """Set the end of a job's runs to this many seconds ago."""
    async with database.transaction(caller) as tx:
        await tx.execute(
            "update job_runs set finished_at = now() - make_interval(secs => $2) where job = $1", work.name, seconds
        )
