"""The record of jobs: which run is due, which were made, and how each ended."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib import resources
from typing import Any
from uuid import UUID

import aiosql

from butlers import cron
from butlers.caller import Caller
from butlers.contract import Job
from butlers.db import Connection, Database

_queries: Any = aiosql.from_path(str(resources.files(__package__) / "sql" / "job_runs.sql"), "asyncpg")
MOST_ATTEMPTS = 5
_KEPT_DAYS = 30
_NOBODYS = "default"
"""The tenant that runs of shared jobs are kept under, whoever made them: one moment, one run."""
_FIRST_PAUSE, _LONGEST_PAUSE = 30.0, 3600.0


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """A run that is ours to make."""

    id: UUID


@dataclass(frozen=True, slots=True)
class AlreadyRun:
    """The moment has had its run."""


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """The moment's last run failed; the next may be made after so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job, when it runs next, and how it ran last."""

    job: str
    cron: str
    next_run: datetime
    scheduled_for: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    status: str | None = None
    attempt: int | None = None
    error: str | None = None
    result: Mapping[str, Any] | None = None
    succeeded_at: datetime | None = None

    def overdue(self, now: datetime, grace_seconds: float) -> bool:
        """Whether it ran before, and a moment it should have run at passed by without, longer ago than that."""
        allowed = (now.astimezone(UTC) - timedelta(seconds=grace_seconds)).astimezone(now.tzinfo)
        return self.started_at is not None and self.started_at < cron.last_due(self.cron, allowed)

    @property
    def failing(self) -> bool:
        """Whether its last run came to nothing; while that is tried again, it did."""
        return self.status in {"failed", "lost"} or (self.status == "running" and (self.attempt or 1) > 1)


def job_key(job: Job, butler: str) -> str:
    """The name under which a job's runs are kept and its lock is held."""
    return job.name if job.shared else f"{butler}/{job.name}"


async def last_settled(database: Database, caller: Caller, name: str, now: datetime) -> datetime | None:
    """The latest moment of a job up to `now` that needs no further run; None for a job that never had one."""
    async with database.transaction(caller) as tx:
        return await _settled(tx, caller, name, now)


async def _settled(tx: Connection, caller: Caller, name: str, now: datetime) -> datetime | None:
    last: datetime | None = await _queries.settled(
        tx, tenant_id=caller.tenant, job=name, now=now, most_attempts=MOST_ATTEMPTS
    )
    return last


def record_owner(job: Job, caller: Caller) -> Caller:
    """Who reads and writes the record of a job that the caller runs."""
    return replace(caller, tenant=_NOBODYS) if job.shared else caller


async def claim_run(
    database: Database, caller: Caller, name: str, moment: datetime | None, now: datetime
) -> ClaimedRun | AlreadyRun | RetryAfter:
    """Note that a run begins, for whoever holds the job's lock, unless the moment has had its run or must wait."""
    tenant = caller.tenant
    async with database.transaction(caller) as tx:
        await _queries.give_up_lost(tx, tenant_id=tenant, job=name)
        attempts = 0
        if moment is not None:
            last = await _settled(tx, caller, name, now)
            if last is not None and last >= moment:
                return AlreadyRun()
            row = await _queries.attempts(tx, tenant_id=tenant, job=name, moment=moment)
            attempts = row["attempts"]
            if attempts and (left := retry_delay(attempts) - (row["ago"] or 0.0)) > 0:
                return RetryAfter(left)
        await _queries.forget_old(tx, tenant_id=tenant, job=name, days=_KEPT_DAYS)
        run_id: UUID = await _queries.start(
            tx, tenant_id=tenant, job=name, scheduled_for=moment, attempt=attempts + 1
        )
        return ClaimedRun(run_id)


def retry_delay(attempts: int) -> float:
    """Seconds to wait after so many attempts in vain."""
    return float(min(_FIRST_PAUSE * 2 ** (attempts - 1), _LONGEST_PAUSE))


async def finish_run(
    database: Database, caller: Caller, run_id: UUID, status: str, result: Mapping[str, Any], error: str | None
) -> None:
    """Note how a run ended."""
    async with database.transaction(caller) as tx:
        await _queries.finish(tx, tenant_id=caller.tenant, id=run_id, status=status, result=dict(result), error=error)


async def latest_runs(database: Database) -> list[dict[str, Any]]:
    """The latest run of every job there ever was."""
    return [dict(row) for row in await database.fetch_across_tenants(_queries.latest.sql)]


async def job_statuses(database: Database, jobs: Mapping[str, Job], now: datetime) -> list[JobStatus]:
    """How these jobs stand, by the name each is kept under."""
    rows = {row["job"]: row for row in await latest_runs(database)}
    return [
        JobStatus(job.name, job.cron, cron.next_due(job.cron, now), **_told(rows.get(name, {})))
        for name, job in jobs.items()
    ]


def _told(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "job"}
