"""Runs each job when its cron expression says so, on one process at a time, and keeps a record of every run."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from importlib import resources
from typing import Any
from uuid import UUID

import aiosql
from cronsim import CronSim

from butlers.caller import Caller
from butlers.contract import Job, JobResult
from butlers.db import Database, fault_of
from butlers.errors import Fault
from butlers.host.metrics import Metrics

log = logging.getLogger("butlers.jobs")
_queries: Any = aiosql.from_path(str(resources.files(__package__) / "sql" / "job_runs.sql"), "asyncpg")
_LONGEST_SLEEP = timedelta(seconds=60)

Clock = Callable[[], datetime]


def local_time() -> datetime:
    """Now, on the clock of the place the butler runs in: that is the clock people mean in a cron expression."""
    return datetime.now(UTC).astimezone()


def due(cron: str, now: datetime) -> datetime:
    """The latest moment at or before `now` that the expression names."""
    # Whole seconds: with a fraction left in, the moment could be one that is still to come.
    after = now.replace(microsecond=0) + timedelta(seconds=1)
    moment: datetime = next(CronSim(cron, after, reverse=True))
    return moment


class Scheduler:
    """Every job of one butler, for as long as it runs."""

    def __init__(
        self,
        database: Database,
        caller: Caller,
        jobs: Sequence[Job],
        metrics: Metrics,
        clock: Clock = local_time,
    ) -> None:
        self._database = database
        self._caller = caller
        self._jobs = jobs
        self._metrics = metrics
        self._clock = clock
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to watch the clock."""
        self._tasks = [asyncio.create_task(self._watch(job), name=f"job {job.name}") for job in self._jobs]

    async def stop(self, seconds: float) -> None:
        """Start nothing more, let what runs end within the time given, then cancel it."""
        self._stopping.set()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _watch(self, job: Job) -> None:
        """Run the job at each of its moments; the ones missed while nothing ran are caught up once."""
        since: datetime | None = None
        while not self._stopping.is_set():
            now = self._clock()
            moment = due(job.cron, now)
            since = since or await self._last(job) or now
            if moment > since:
                await self.run(job, moment)
                since = moment
            await self._sleep(job)

    async def _last(self, job: Job) -> datetime | None:
        try:
            async with self._database.transaction(self._caller) as tx:
                last: datetime | None = await _queries.last_scheduled(tx, tenant_id=self._caller.tenant, job=job.name)
                return last
        except Fault:
            return None

    async def _sleep(self, job: Job) -> None:
        # In short steps: a laptop that slept, or a clock that was set, is noticed within a minute.
        now = self._clock()
        upcoming: datetime = next(CronSim(job.cron, now))
        pause = min(upcoming - now, _LONGEST_SLEEP)
        try:
            async with asyncio.timeout(max(pause.total_seconds(), 0.05)):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def run(self, job: Job, moment: datetime | None = None) -> JobResult | None:
        """One run, recorded; None when another process has this one, or it failed."""
        try:
            async with self._database.exclusive(f"butlers job {self._caller.butler} {job.name}") as ours:
                if not ours or not (run_id := await self._begin(job, moment)):
                    return None
                return await self._recorded(job, run_id)
        except Exception as error:  # noqa: BLE001 — a failing job must not end the watch over the clock
            self._failed(job, error)
            return None

    async def _begin(self, job: Job, moment: datetime | None) -> UUID | None:
        tenant = self._caller.tenant
        async with self._database.transaction(self._caller) as tx:
            await _queries.give_up_lost(tx, tenant_id=tenant, job=job.name)
            last = await _queries.last_scheduled(tx, tenant_id=tenant, job=job.name)
            if moment and last and last >= moment:
                return None
            run_id: UUID = await _queries.start(tx, tenant_id=tenant, job=job.name, scheduled_for=moment)
            return run_id

    async def _recorded(self, job: Job, run_id: UUID) -> JobResult:
        try:
            result = await job.run(self._caller)
        except asyncio.CancelledError:
            await asyncio.shield(self._end(run_id, "lost", {}, "the butler was stopped"))
            raise
        except Exception as error:
            await self._end(run_id, "failed", {}, _said(error))
            raise
        await self._end(run_id, "succeeded", dict(result), None)
        self._metrics.job_runs.labels(job.name, "succeeded").inc()
        log.info("job", extra={"job": job.name, "outcome": "succeeded"})
        return result

    async def _end(self, run_id: UUID, status: str, result: dict[str, Any], error: str | None) -> None:
        async with self._database.transaction(self._caller) as tx:
            await _queries.finish(
                tx, tenant_id=self._caller.tenant, id=run_id, status=status, result=result, error=error
            )

    def _failed(self, job: Job, error: Exception) -> None:
        self._metrics.job_runs.labels(job.name, "failed").inc()
        log.error("job", extra={"job": job.name, "outcome": "failed"}, exc_info=error)


def _said(error: Exception) -> str:
    """The fault's own words, or only the kind of an error nobody foresaw: its words may quote a memory."""
    fault = fault_of(error)
    return str(fault) if fault else type(error).__qualname__
