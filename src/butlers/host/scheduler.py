"""Runs each job when its cron expression says so, on one process at a time, and tries again what failed."""

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
_LONGEST_SLEEP = 60.0
_SHORTEST_SLEEP = 0.05
_LOOK_AGAIN = 5.0
"""Seconds after which a job that could not be begun is looked at again."""

Clock = Callable[[], datetime]


class JobRunningElsewhere(Conflict):
    """Another process is running the job right now."""

    def __init__(self, name: str) -> None:
        super().__init__(f"another process is running {name}", hint="`butlers jobs list DIR` shows how it stands.")


@dataclass(frozen=True, slots=True)
class TickResult:
    """What became of one look at a job: whether its moment is over, or after how many seconds to look again."""

    over: bool
    look_again: float = _LOOK_AGAIN


class Scheduler:
    """Every job of one butler, for as long as it runs."""

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
        """Begin to watch the clock."""
        self._tasks = [asyncio.create_task(self._watch(name), name=f"job {name}") for name in self._jobs]

    def request_stop(self) -> None:
        """Start nothing more; told again, end what runs."""
        if self._stopping.is_set():
            for task in self._tasks:
                if not task.cancelling():
                    task.cancel()
        self._stopping.set()

    async def stop(self, seconds: float) -> None:
        """Start nothing more, let what runs end within the time given, then cancel it."""
        self._stopping.set()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def job_statuses(self) -> list[JobStatus]:
        """How each job stands."""
        return await records.job_statuses(self._database, self._jobs, self._clock())

    async def run(self, job: Job) -> JobResult:
        """One run by hand, recorded; raises what the job raised, or `RunsElsewhere`."""
        name = records.job_key(job, self._caller.butler)
        async with self._database.try_lock(_lock_name(name)) as ours:
            if not ours:
                raise JobRunningElsewhere(job.name)
            begun = await self._begin(name, None)
            if not isinstance(begun, ClaimedRun):
                raise TypeError(begun)
            return await self._recorded(name, begun.id)

    async def _watch(self, name: str) -> None:
        """Run the job at each of its moments; the ones missed while nothing ran are caught up once."""
        job, over = self._jobs[name], None
        while not self._stopping.is_set():
            now = self._clock()
            # What is over can't lie ahead, unless the clock was put back: then the record tells what had its run.
            over = over if over is not None and over <= now else await self._over(name, now)
            moment, turn = cron.last_due(job.cron, now), TickResult(over=False)
            if over is not None:
                turn = await self._turn(name, moment) if moment > over else TickResult(over=True)
                over = moment if turn.over else over
            await self._sleep(job, _LONGEST_SLEEP if turn.over else turn.look_again)

    async def _over(self, name: str, now: datetime) -> datetime | None:
        """The latest moment that needs no run any more; for a job that never ran, now. None: nobody can tell yet."""
        try:
            return await records.last_settled(self._database, self._recorder(name), name, now) or now
        except Exception as error:  # noqa: BLE001 — whatever is the matter with the record, the watch goes on
            log.warning("the record of a job can't be read", extra={"job": name, "error": _error_text(error)})
            return None

    async def _turn(self, name: str, moment: datetime) -> TickResult:
        """Make the run of a moment, unless another process makes it or it has to wait."""
        try:
            async with self._database.try_lock(_lock_name(name)) as ours:
                if not ours:
                    return TickResult(over=False)
                begun = await self._begin(name, moment)
                if isinstance(begun, AlreadyRun):
                    return TickResult(over=True)
                if isinstance(begun, RetryAfter):
                    return TickResult(over=False, look_again=begun.seconds)
                await self._recorded(name, begun.id)
                return TickResult(over=True)
        except Exception as error:  # noqa: BLE001 — a failing job must not end the watch over the clock
            self._failed(name, error)
            return TickResult(over=False)

    def _recorder(self, name: str) -> Caller:
        return records.record_owner(self._jobs[name], self._caller)

    async def _begin(self, name: str, moment: datetime | None) -> ClaimedRun | AlreadyRun | RetryAfter:
        return await records.claim_run(self._database, self._recorder(name), name, moment, self._clock())

    async def _recorded(self, name: str, run_id: UUID) -> JobResult:
        job = self._jobs[name]
        try:
            result = await job.run(self._caller)
        except asyncio.CancelledError:
            await asyncio.shield(self._end(name, run_id, "lost", {}, "the butler was stopped"))
            raise
        except Exception as error:
            await self._end(name, run_id, "failed", {}, _error_text(error))
            raise
        await self._end(name, run_id, "succeeded", result, None)
        self._metrics.job_runs.labels(job.name, "succeeded").inc()
        log.info("job", extra={"job": job.name, "outcome": "succeeded"})
        return result

    async def _end(self, name: str, run_id: UUID, status: str, result: JobResult, error: str | None) -> None:
        await records.finish_run(self._database, self._recorder(name), run_id, status, result, error)

    def _failed(self, name: str, error: Exception) -> None:
        self._metrics.job_runs.labels(self._jobs[name].name, "failed").inc()
        log.error("job", extra={"job": name, "outcome": "failed"}, exc_info=error)

    async def _sleep(self, job: Job, seconds: float) -> None:
        # In short steps: a laptop that slept, or a clock that was set, is noticed within a minute.
        now = self._clock()
        until = (cron.next_due(job.cron, now) - now).total_seconds()
        try:
            async with asyncio.timeout(max(min(until, seconds), _SHORTEST_SLEEP)):
                await self._stopping.wait()
        except TimeoutError:
            return


def _lock_name(name: str) -> str:
    return f"butlers job {name}"


def _error_text(error: Exception) -> str:
    """The fault's own words, or only the kind of an error nobody foresaw: its words may quote a memory."""
    fault = as_fault(error)
    return str(fault) if fault else type(error).__qualname__
