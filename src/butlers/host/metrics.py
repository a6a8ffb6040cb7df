"""Prometheus metrics of one butler."""

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from butlers.contract import Usage
from butlers.db import Database
from butlers.errors import Fault, NotFound
from butlers.host.job_runs import JobStatus

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

Gauges = Callable[[], Awaitable[Mapping[str, float]]]
JobStatuses = Callable[[], Awaitable[Sequence[JobStatus]]]
RunJob = Callable[[str, float], Awaitable[None]]
"""Starts a job by name and waits some seconds for its end."""


async def no_jobs() -> Sequence[JobStatus]:
    """Return no statuses: the default for a server without a scheduler."""
    return ()


async def no_job_to_run(name: str, wait_seconds: float) -> None:
    """Raise `NotFound`: the default for a server without a scheduler."""
    del wait_seconds
    raise NotFound(f"there is no job {name}", hint="This process runs no jobs.")


class Metrics:
    """Metrics in a registry of their own, so that two butlers in one process don't mix."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self.calls = counter("butlers_tool_calls", "Tool calls that ended, by outcome.", ("tool", "outcome"))
        self.seconds = Histogram(
            "butlers_tool_seconds", "Duration of tool calls.", ("tool",), buckets=_BUCKETS, registry=registry
        )
        self.rows_asked = counter("butlers_rows_asked", "Rows that calls asked for.", ("tool",))
        self.rows_returned = counter("butlers_rows_returned", "Rows that calls got.", ("tool",))
        self.job_runs = counter("butlers_job_runs", "Job runs that ended, by outcome.", ("job", "outcome"))
        self._sessions = counter("butlers_sessions", "Sessions that ended, by outcome.", ("purpose", "outcome"))
        self._session_tokens = counter(
            "butlers_session_tokens", "Tokens of sessions, as their runtime reports them.", ("purpose", "direction")
        )
        self._sessions_without_usage = counter(
            "butlers_sessions_without_usage", "Sessions whose runtime reported no tokens.", ("purpose",)
        )
        self._pool = gauge("butlers_pool_connections", "Database connections.", ("state",))
        self._module = gauge("butlers_module", "Gauges of modules.", ("module", "name"))
        self._next_run = gauge("butlers_job_next_run_timestamp_seconds", "Time of a job's next run.", ("job",))
        self._last_success = gauge(
            "butlers_job_last_success_timestamp_seconds", "Time of a job's last success.", ("job",)
        )
        self._failing = gauge("butlers_job_failing", "1 if a job's last run failed, else 0.", ("job",))

    def count_session(self, trigger_source: str, outcome: str, usage: Usage | None) -> None:
        """Count a session that ended, and its tokens. A trigger by a tool counts as `tool`, whoever called it."""
        kind, _, name = trigger_source.partition(":")
        purpose = f"{kind}:{name}" if kind == "schedule" else kind
        self._sessions.labels(purpose, outcome).inc()
        if usage is None:
            self._sessions_without_usage.labels(purpose).inc()
            return
        self._session_tokens.labels(purpose, "input").inc(usage.input_tokens)
        self._session_tokens.labels(purpose, "output").inc(usage.output_tokens)

    async def render(self, database: Database, modules: Mapping[str, Gauges], jobs: JobStatuses = no_jobs) -> bytes:
        """Return the /metrics page. Values that can't be read right now are left out."""
        pool = database.usage()
        self._pool.labels("idle").set(pool.idle)
        self._pool.labels("busy").set(pool.size - pool.idle)
        self._pool.labels("limit").set(pool.limit)
        await self._set_jobs(jobs)
        self._module.clear()
        for module, gauges in modules.items():
            with contextlib.suppress(Fault):
                for name, value in (await gauges()).items():
                    self._module.labels(module, name).set(value)
        return generate_latest(self.registry)

    async def _set_jobs(self, jobs: JobStatuses) -> None:
        statuses: Sequence[JobStatus] = ()
        with contextlib.suppress(Fault):
            statuses = await jobs()
        for gauge in (self._next_run, self._last_success, self._failing):
            gauge.clear()
        for status in statuses:
            self._next_run.labels(status.job).set(status.next_run.timestamp())
            self._failing.labels(status.job).set(status.is_failing)
            if status.succeeded_at is not None:
                self._last_success.labels(status.job).set(status.succeeded_at.timestamp())
