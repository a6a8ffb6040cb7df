"""Records of job runs: claim a run, finish it, and read the status of each job."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib import resources
from typing import Any, NamedTuple
from uuid import UUID

import aiosql

from butlers import cron
from butlers.caller import Caller
from butlers.contract import Job
from butlers.db import Connection, Database

_queries: Any = aiosql.from_path(str(resources.files(__package__) / "sql" / "job_runs.sql"), "asyncpg")
MAX_ATTEMPTS = 5
_RETENTION_DAYS = 30
_SHARED_TENANT = "default"
"""Runs of shared jobs are stored under this tenant, so that each scheduled time gets one run."""
_FIRST_DELAY_SECONDS, _MAX_DELAY_SECONDS = 30.0, 3600.0


class RetryAfter(NamedTuple):
    """The last attempt failed; the next is allowed after `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job with its next run and its last run."""

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

    def is_overdue(self, now: datetime, grace_seconds: float) -> bool:
        """Whether the job has run before and missed a scheduled time more than `grace_seconds` ago."""
        latest_allowed = (now.astimezone(UTC) - timedelta(seconds=grace_seconds)).astimezone(now.tzinfo)
        return self.started_at is not None and self.started_at < cron.last_due(self.cron, latest_allowed)

    @property
    def is_failing(self) -> bool:
        """Whether the last run failed, also while it is being retried."""
        return self.status in {"failed", "lost"} or (self.status == "running" and (self.attempt or 1) > 1)


def job_key(job: Job, butler: str) -> str:
    """Return the name of a job in its records and its lease."""
    return job.name if job.shared else f"{butler}/{job.name}"


async def last_completed(database: Database, caller: Caller, name: str, now: datetime) -> datetime | None:
    """Return the latest scheduled time up to `now` that needs no further run, or None if the job has no runs."""
    async with database.transaction(caller) as tx:
        return await _fetch_last_completed(tx, caller, name, now)


async def _fetch_last_completed(tx: Connection, caller: Caller, name: str, now: datetime) -> datetime | None:
    last: datetime | None = await _queries.last_completed(
        tx, tenant_id=caller.tenant, job=name, now=now, max_attempts=MAX_ATTEMPTS
    )
    return last


def record_owner(job: Job, caller: Caller) -> Caller:
    """Return the caller that reads and writes the records of a job."""
    return replace(caller, tenant=_SHARED_TENANT) if job.shared else caller


async def claim_run(
    database: Database, caller: Caller, name: str, scheduled_for: datetime | None, now: datetime
) -> UUID | RetryAfter | None:
    """Record a new run and return its id; None if its scheduled time needs none. The caller holds the job's lease."""
    tenant = caller.tenant
    async with database.transaction(caller) as tx:
        await _queries.mark_lost(tx, tenant_id=tenant, job=name)
        attempts = 0
        if scheduled_for is not None:
            last = await _fetch_last_completed(tx, caller, name, now)
            if last is not None and last >= scheduled_for:
                return None
            row = await _queries.count_attempts(tx, tenant_id=tenant, job=name, scheduled_for=scheduled_for)
            attempts = row["attempts"]
            if attempts and (delay := retry_delay(attempts) - (row["ago"] or 0.0)) > 0:
                return RetryAfter(delay)
        await _queries.delete_old(tx, tenant_id=tenant, job=name, days=_RETENTION_DAYS)
        run_id: UUID = await _queries.insert_run(
            tx, tenant_id=tenant, job=name, scheduled_for=scheduled_for, attempt=attempts + 1
        )
        return run_id


def retry_delay(attempts: int) -> float:
    """Return the seconds to wait after this number of failed attempts."""
    return float(min(_FIRST_DELAY_SECONDS * 2 ** (attempts - 1), _MAX_DELAY_SECONDS))


async def finish_run(
    database: Database, caller: Caller, run_id: UUID, status: str, result: Mapping[str, Any], error: str | None
) -> None:
    """Record the outcome of a run."""
    async with database.transaction(caller) as tx:
        await _queries.finish_run(
            tx, tenant_id=caller.tenant, id=run_id, status=status, result=dict(result), error=error
        )


async def latest_runs(database: Database) -> list[dict[str, Any]]:
    """Return the latest run of every job in the records."""
    return [dict(row) for row in await database.fetch_across_tenants(_queries.latest_runs.sql)]


async def job_statuses(database: Database, jobs: Mapping[str, Job], now: datetime) -> list[JobStatus]:
    """Return the status of these jobs, given by their `job_key`."""
    rows = {row.pop("job"): row for row in await latest_runs(database)}
    return [
        JobStatus(job.name, job.cron, cron.next_due(job.cron, now), **rows.get(key, {})) for key, job in jobs.items()
    ]
