"""Clocks that a test sets, jobs that do as they are told, and the record of their runs as it can be aged."""

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
from butlers.host.metrics import Metrics
from butlers.host.scheduler import Scheduler

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
EVERY_SECOND = "* * * * * *"


class Clock:
    """A clock that stands still until it is moved, and knows how often it was looked at.

    It stands just before the end of its second: a scheduler that waits for the next one looks many times a second.
    """

    def __init__(self, now: datetime = NOON) -> None:
        self.now = now
        self.looks = 0

    def __call__(self) -> datetime:
        self.looks += 1
        # In UTC: a sum of a place's time forgets which of two equal hours it was in.
        return (self.now.astimezone(UTC) + timedelta(milliseconds=950)).astimezone(self.now.tzinfo)

    async def seen(self, watchers: float = 1) -> None:
        """Return when each of so many watches has dealt with the time shown: a look before a run, and one after it.

        A watch that was under way needs two rounds to be sure; one that has just begun needs half of that.
        """
        enough = self.looks + 4 * watchers

        async def often() -> bool:
            return self.looks >= enough

        await until(often)


class Work:
    """A job that counts its runs and does as it is told."""

    def __init__(
        self, cron: str = EVERY_SECOND, fails: Exception | None = None, seconds: float = 0.0, shared: bool = True
    ) -> None:
        self.name = f"job_{uuid.uuid4().hex}"
        self.job = Job(self.name, cron, self.run, shared=shared)
        self.fails = fails
        self.seconds = seconds
        self.runs = 0

    async def run(self, caller: Caller) -> JobResult:
        self.runs += 1
        await asyncio.sleep(self.seconds)
        if self.fails:
            raise self.fails
        return {"runs": self.runs, "tenant": caller.tenant}

    async def begun(self, times: int = 1) -> None:
        """Return when it has been started so often."""

        async def often() -> bool:
            return self.runs >= times

        await until(often)


@dataclass(frozen=True)
class Watched:
    """A scheduler that watches the clock, and what it counts."""

    database: Database
    scheduler: Scheduler
    metrics: Metrics

    async def page(self) -> str:
        """What a scraper reads."""
        return (await self.metrics.render(self.database, {}, self.scheduler.job_statuses)).decode()


@asynccontextmanager
async def watching(
    database: Database, caller: Caller, *works: Work, clock: Callable[[], datetime], stop: float = 5.0
) -> AsyncIterator[Watched]:
    """The jobs on their schedule, by that clock."""
    metrics = Metrics()
    scheduler = Scheduler(database, caller, [work.job for work in works], metrics, clock)
    scheduler.start()
    try:
        yield Watched(database, scheduler, metrics)
    finally:
        await scheduler.stop(stop)


async def until(condition: Callable[[], Awaitable[object]], seconds: float = 30) -> None:
    """Wait until it is true."""
    give_up = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < give_up, "it never happened"
        await asyncio.sleep(0.02)


async def had(
    database: Database,
    caller: Caller,
    work: Work,
    moment: datetime | None,
    status: str = "succeeded",
    days_ago: float = 0.0,
) -> None:
    """Write down a run of a job that began just now, or so many days ago."""
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


async def recorded(database: Database, caller: Caller, work: Work) -> list[Mapping[str, Any]]:
    """Every run of a job, oldest first; those that were written down by hand included."""
    async with database.transaction(caller) as tx:
        rows = await tx.fetch(
            "select scheduled_for, status, attempt, result, error, started_at, finished_at from job_runs"
            " where job = $1 order by started_at, scheduled_for",
            work.name,
        )
    return [dict(row) for row in rows]


async def ran(database: Database, caller: Caller, work: Work, times: int) -> list[Mapping[str, Any]]:
    """Every run of a job, once so many have ended."""

    async def enough() -> bool:
        rows = await recorded(database, caller, work)
        return len([row for row in rows if row["status"] != "running"]) >= times

    await until(enough)
    return await recorded(database, caller, work)


async def ended_ago(database: Database, caller: Caller, work: Work, seconds: float) -> None:
    """Let a job's runs have ended so many seconds ago."""
    async with database.transaction(caller) as tx:
        await tx.execute(
            "update job_runs set finished_at = now() - make_interval(secs => $2) where job = $1", work.name, seconds
        )
