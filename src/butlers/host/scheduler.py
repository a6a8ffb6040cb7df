"""Scheduler that runs each job by its cron expression, in one process at a time, with retries."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from butlers import cron
from butlers.caller import Caller
from butlers.contract import Job, JobResult
from butlers.cron import local_now
from butlers.db import Database, as_fault
from butlers.errors import Conflict
from butlers.host import job_runs as records
from butlers.host.job_runs import AlreadyRun, ClaimedRun, JobStatus, RetryAfter
from butlers.host.metrics import Metrics

log = logging.getLogger("butlers.jobs")
_MAX_SLEEP_SECONDS = 60.0
_MIN_SLEEP_SECONDS = 0.05
_RETRY_SECONDS = 5.0
"""Delay after a job could not be started."""

Clock = Callable[[], datetime]


class JobRunningElsewhere(Conflict):
    """The job is running in another process."""

    def __init__(self, name: str) -> None:
        super().__init__(f"another process is running {name}", hint="`butlers jobs list DIR` shows its status.")


@dataclass(frozen=True, slots=True)
class TickResult:
    """Result of one check of a job: its scheduled time is done, or is checked again after `retry_seconds`."""

    done: bool
    retry_seconds: float = _RETRY_SECONDS


class Scheduler:
    """Runs all jobs of one butler."""

    def __init__(
        self,
        database: Database,
        caller: Caller,
        jobs: Sequence[Job],
        metrics: Metrics,
        clock: Clock = local_now,
    ) -> None:
        self._database = database
        self._caller = caller
        self._jobs = {records.job_key(job, caller.butler): job for job in jobs}
        self._metrics = metrics
        self._clock = clock
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start one task for each job."""
        self._tasks = [asyncio.create_task(self._run_on_schedule(name), name=f"job {name}") for name in self._jobs]

    def request_stop(self) -> None:
        """Start no more runs; on the second call, cancel active ones."""
        if self._stopping.is_set():
            for task in self._tasks:
                if not task.cancelling():
                    task.cancel()
        self._stopping.set()

    async def stop(self, seconds: float) -> None:
        """Start no more runs, wait up to `seconds` for active ones, then cancel them."""
        self._stopping.set()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def job_statuses(self) -> list[JobStatus]:
        """Return the status of each job."""
        return await records.job_statuses(self._database, self._jobs, self._clock())

    async def run(self, job: Job) -> JobResult:
        """Run a job once now and record it. Raises the job's error, or `JobRunningElsewhere`."""
        name = records.job_key(job, self._caller.butler)
        async with self._database.try_lock(_lock_name(name)) as acquired:
            if not acquired:
                raise JobRunningElsewhere(job.name)
            claim = await self._claim(name, None)
            if not isinstance(claim, ClaimedRun):
                raise TypeError(claim)
            return await self._run_and_record(name, claim.id)

    async def _run_on_schedule(self, name: str) -> None:
        """Run the job at each scheduled time until stopped; times missed while no process ran are caught up once."""
        job, completed = self._jobs[name], None
        while not self._stopping.is_set():
            now = self._clock()
            # A completed time in the future means that the clock was set back: the records decide then.
            if completed is None or completed > now:
                completed = await self._last_completed(name, now)
            due, tick = cron.last_due(job.cron, now), TickResult(done=False)
            if completed is not None:
                tick = await self._tick(name, due) if due > completed else TickResult(done=True)
                completed = due if tick.done else completed
            await self._sleep(job, _MAX_SLEEP_SECONDS if tick.done else tick.retry_seconds)

    async def _last_completed(self, name: str, now: datetime) -> datetime | None:
        """Return the latest scheduled time that needs no run (now, for a job without runs), or None on an error."""
        try:
            return await records.last_completed(self._database, self._record_owner(name), name, now) or now
        except Exception as error:  # noqa: BLE001 — an unreadable record must not end the schedule
            log.warning("the records of a job can't be read", extra={"job": name, "error": _error_text(error)})
            return None

    async def _tick(self, name: str, due: datetime) -> TickResult:
        """Run the job for a scheduled time, unless another process runs it or a retry has to wait."""
        try:
            async with self._database.try_lock(_lock_name(name)) as acquired:
                if not acquired:
                    return TickResult(done=False)
                claim = await self._claim(name, due)
                if isinstance(claim, AlreadyRun):
                    return TickResult(done=True)
                if isinstance(claim, RetryAfter):
                    return TickResult(done=False, retry_seconds=claim.seconds)
                await self._run_and_record(name, claim.id)
                return TickResult(done=True)
        except Exception as error:  # noqa: BLE001 — a failing job must not end the schedule
            self._report_failure(name, error)
            return TickResult(done=False)

    def _record_owner(self, name: str) -> Caller:
        return records.record_owner(self._jobs[name], self._caller)

    async def _claim(self, name: str, due: datetime | None) -> ClaimedRun | AlreadyRun | RetryAfter:
        return await records.claim_run(self._database, self._record_owner(name), name, due, self._clock())

    async def _run_and_record(self, name: str, run_id: UUID) -> JobResult:
        job = self._jobs[name]
        try:
            result = await job.run(self._caller)
        except asyncio.CancelledError:
            await asyncio.shield(self._finish(name, run_id, "lost", {}, "the butler was stopped"))
            raise
        except Exception as error:
            await self._finish(name, run_id, "failed", {}, _error_text(error))
            raise
        await self._finish(name, run_id, "succeeded", result, None)
        self._metrics.job_runs.labels(job.name, "succeeded").inc()
        log.info("job", extra={"job": job.name, "outcome": "succeeded"})
        return result

    async def _finish(self, name: str, run_id: UUID, status: str, result: JobResult, error: str | None) -> None:
        await records.finish_run(self._database, self._record_owner(name), run_id, status, result, error)

    def _report_failure(self, name: str, error: Exception) -> None:
        self._metrics.job_runs.labels(self._jobs[name].name, "failed").inc()
        log.error("job", extra={"job": name, "outcome": "failed"}, exc_info=error)

    async def _sleep(self, job: Job, seconds: float) -> None:
        # Sleep at most a minute, so that a suspended machine or a changed clock is noticed.
        now = self._clock()
        until_due = (cron.next_due(job.cron, now) - now).total_seconds()
        try:
            async with asyncio.timeout(max(min(until_due, seconds), _MIN_SLEEP_SECONDS)):
                await self._stopping.wait()
        except TimeoutError:
            return


def _lock_name(name: str) -> str:
    return f"butlers job {name}"


def _error_text(error: Exception) -> str:
    """Return a fault's text, or only the type of another error: its message may quote a memory."""
    fault = as_fault(error)
    return str(fault) if fault else type(error).__qualname__
