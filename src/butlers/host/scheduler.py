"""Scheduler that runs each job by its cron expression, in one process at a time, with retries."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from uuid import UUID

from butlers import cron
from butlers.caller import Caller
from butlers.contract import Job, JobResult
from butlers.cron import local_now
from butlers.db import Database, as_fault
from butlers.errors import Conflict, NotFound, Unavailable
from butlers.host import job_runs as records
from butlers.host.early_runs import CHECK_SECONDS, EarlyRuns
from butlers.host.job_runs import JobStatus, RetryAfter
from butlers.host.leases import work_exclusively
from butlers.host.metrics import Metrics

log = logging.getLogger("butlers.jobs")
_MAX_SLEEP_SECONDS = 60.0
_MIN_SLEEP_SECONDS = 0.05
_RETRY_SECONDS = 5.0
"""Delay after a job could not be started."""
_LEASE_NAME = "butlers job {}"

Clock = Callable[[], datetime]


class JobRunningElsewhere(Conflict):
    """The job is running in another process."""

    def __init__(self, name: str) -> None:
        super().__init__(f"another process is running {name}", hint="`butlers jobs list DIR` shows its status.")


class Scheduler:
    """Runs all jobs of one butler."""

    def __init__(
        self,
        database: Database,
        caller: Caller,
        jobs: Sequence[Job],
        metrics: Metrics,
        clock: Clock = local_now,
        check_seconds: float = CHECK_SECONDS,
    ) -> None:
        self._database = database
        self._caller = caller
        self._jobs = {records.job_key(job, caller.butler): job for job in jobs}
        self._record_owners = {name: records.record_owner(job, caller) for name, job in self._jobs.items()}
        self._metrics = metrics
        self._clock = clock
        self._check_seconds = check_seconds
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._requested: set[asyncio.Task[JobResult]] = set()
        """Runs that were asked for by name."""

    def start(self) -> None:
        """Start one task for each job."""
        self._tasks = [asyncio.create_task(self._run_on_schedule(name), name=f"job {name}") for name in self._jobs]

    def request_stop(self) -> None:
        """Start no more runs; on the second call, cancel active ones."""
        if self._stopping.is_set():
            for task in (*self._tasks, *self._requested):
                if not task.cancelling():
                    task.cancel()
        self._stopping.set()

    async def stop(self, seconds: float) -> None:
        """Start no more runs, wait up to `seconds` for active ones, then cancel them."""
        self._stopping.set()
        if tasks := [*self._tasks, *self._requested]:
            _, late = await asyncio.wait(tasks, timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def job_statuses(self) -> list[JobStatus]:
        """Return the status of each job."""
        return await records.job_statuses(self._database, self._jobs, self._clock())

    async def run(self, job: Job) -> JobResult:
        """Run a job once now and record it. Raises the job's error, or `JobRunningElsewhere`."""
        name = records.job_key(job, self._caller.butler)
        async with work_exclusively(self._database, _LEASE_NAME.format(name)) as acquired:
            if not acquired:
                raise JobRunningElsewhere(job.name)
            run_id = await self._claim(name, None)
            if not isinstance(run_id, UUID):
                raise TypeError(run_id)
            return await self._run_and_record(name, run_id)

    async def run_by_name(self, name: str, wait_seconds: float) -> None:
        """Start a job now and wait that long for its end; after that it goes on by itself.

        Raises `NotFound`, `JobRunningElsewhere`, or the error of a run that ends within the time.
        """
        job = next((each for each in self._jobs.values() if each.name == name), None)
        if job is None:
            raise NotFound(f"there is no job {name}", hint="`butlers jobs list DIR` shows their names.")
        if self._stopping.is_set():
            raise Unavailable("the butler is stopping", hint="Try again when it runs.")
        task = asyncio.create_task(self.run(job), name=f"job {name} by request")
        self._requested.add(task)
        task.add_done_callback(self._end_requested)
        if (await asyncio.wait({task}, timeout=wait_seconds))[0]:
            task.result()

    def _end_requested(self, task: "asyncio.Task[JobResult]") -> None:
        self._requested.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.warning("a requested job failed", extra={"task": task.get_name(), "error": type(error).__qualname__})

    async def _run_on_schedule(self, name: str) -> None:
        """Run the job at each scheduled time until stopped; times missed while no process ran are caught up once."""
        job, completed = self._jobs[name], None
        early = EarlyRuns(job.is_due_early, self._caller, self._check_seconds) if job.is_due_early else None
        while not self._stopping.is_set():
            now = self._clock()
            # A completed time in the future means that the clock was set back: the records decide then.
            if completed is None or completed > now:
                completed = await self._last_completed(name, now)
            due, retry_seconds = cron.last_due(job.cron, now), _RETRY_SECONDS
            if completed is not None:
                retry_seconds = await self._tick(name, due) if due > completed else 0.0
                completed = completed if retry_seconds else due
            if early and not retry_seconds and not self._stopping.is_set():
                await self._run_early(name, early)
            await self._sleep(job, retry_seconds or (early.seconds_to_check() if early else _MAX_SLEEP_SECONDS))

    async def _run_early(self, name: str, early: EarlyRuns) -> None:
        """Run the job now if it has work that should not wait for its time."""
        try:
            is_due = await early.is_due()
        except Exception as error:  # noqa: BLE001 — a failed check must not end the schedule
            log.warning("a job can't be checked", extra={"job": name, "error": _error_text(error)})
            return
        try:
            if is_due:
                await self.run(self._jobs[name])
        except JobRunningElsewhere:
            early.expect_other_process()
        except Exception as error:  # noqa: BLE001 — a failed run must not end the schedule
            self._log_failure(name, error)

    async def _last_completed(self, name: str, now: datetime) -> datetime | None:
        """Return the latest scheduled time that needs no run (now, for a job without runs), or None on an error."""
        try:
            return await records.last_completed(self._database, self._record_owners[name], name, now) or now
        except Exception as error:  # noqa: BLE001 — an unreadable record must not end the schedule
            log.warning("the records of a job can't be read", extra={"job": name, "error": _error_text(error)})
            return None

    async def _tick(self, name: str, due: datetime) -> float:
        """Run the job for a scheduled time; return the seconds until that has to be tried again, or 0."""
        try:
            async with work_exclusively(self._database, _LEASE_NAME.format(name)) as acquired:
                if not acquired:
                    return _RETRY_SECONDS
                claim = await self._claim(name, due)
                if isinstance(claim, RetryAfter):
                    return claim.seconds
                if claim is not None:
                    await self._run_and_record(name, claim)
                return 0.0
        except Exception as error:  # noqa: BLE001 — a failed run must not end the schedule
            self._log_failure(name, error)
            return _RETRY_SECONDS

    def _log_failure(self, name: str, error: Exception) -> None:
        self._metrics.job_runs.labels(self._jobs[name].name, "failed").inc()
        # A fault says what happened; only an unexpected error needs its traceback.
        traceback = None if as_fault(error) else error
        log.error("job", extra={"job": name, "outcome": "failed", "error": _error_text(error)}, exc_info=traceback)

    async def _claim(self, name: str, due: datetime | None) -> UUID | RetryAfter | None:
        return await records.claim_run(self._database, self._record_owners[name], name, due, self._clock())

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
        await records.finish_run(self._database, self._record_owners[name], run_id, status, result, error)

    async def _sleep(self, job: Job, seconds: float) -> None:
        # Sleep at most a minute, so that a suspended machine or a changed clock is noticed.
        now = self._clock()
        until_due = (cron.next_due(job.cron, now) - now).total_seconds()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(min(until_due, seconds), _MIN_SLEEP_SECONDS)):
                await self._stopping.wait()


def _error_text(error: Exception) -> str:
    """Return a fault's text, or only the type of another error: its message may quote a memory."""
    fault = as_fault(error)
    return str(fault) if fault else type(error).__qualname__
