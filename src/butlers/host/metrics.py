"""What is counted and timed, for Prometheus. A registry for each butler, so that two in one process stay apart."""

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from butlers.db import Database
from butlers.errors import Fault
from butlers.host.job_runs import JobStatus

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

Gauges = Callable[[], Awaitable[Mapping[str, float]]]
JobStatuses = Callable[[], Awaitable[Sequence[JobStatus]]]


async def no_jobs() -> Sequence[JobStatus]:
    """Of a server without a scheduler."""
    return ()


class Metrics:
    """The butler's own counters."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.calls = Counter(
            "butlers_tool_calls",
            "Tool calls that ended, by outcome.",
            ("tool", "outcome"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "butlers_tool_seconds",
            "How long tool calls took.",
            ("tool",),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.rows_asked = Counter(
            "butlers_rows_asked", "Rows that calls asked for.", ("tool",), registry=self.registry
        )
        self.rows_returned = Counter(
            "butlers_rows_returned", "Rows that those calls got.", ("tool",), registry=self.registry
        )
        self.job_runs = Counter(
            "butlers_job_runs",
            "Runs of scheduled jobs that ended, by outcome.",
            ("job", "outcome"),
            registry=self.registry,
        )
        self._pool = Gauge("butlers_pool_connections", "Database connections.", ("state",), registry=self.registry)
        self._module = Gauge(
            "butlers_module", "What a module says of itself.", ("module", "name"), registry=self.registry
        )

        self._next_run = Gauge(
            "butlers_job_next_run_timestamp_seconds", "When a job runs next.", ("job",), registry=self.registry
        )
        self._last_success = Gauge(
            "butlers_job_last_success_timestamp_seconds",
            "When a job last succeeded, on any process.",
            ("job",),
            registry=self.registry,
        )
        self._failing = Gauge(
            "butlers_job_failing", "Whether the last run of a job came to nothing.", ("job",), registry=self.registry
        )

    async def render(self, database: Database, modules: Mapping[str, Gauges], jobs: JobStatuses = no_jobs) -> bytes:
        """The page a scraper reads; what can't be told right now is left out."""
        use = database.usage()
        self._pool.labels("idle").set(use.idle)
        self._pool.labels("busy").set(use.size - use.idle)
        self._pool.labels("limit").set(use.limit)
        await self._stand(jobs)
        self._module.clear()
        for module, gauges in modules.items():
            with contextlib.suppress(Fault):
                for name, value in (await gauges()).items():
                    self._module.labels(module, name).set(value)
        return generate_latest(self.registry)

    async def _stand(self, jobs: JobStatuses) -> None:
        standings: Sequence[JobStatus] = ()
        with contextlib.suppress(Fault):
            standings = await jobs()
        for gauge in (self._next_run, self._last_success, self._failing):
            gauge.clear()
        for standing in standings:
            self._show(standing)

    def _show(self, standing: JobStatus) -> None:
        self._next_run.labels(standing.job).set(standing.next_run.timestamp())
        self._failing.labels(standing.job).set(standing.failing)
        if standing.succeeded_at is not None:
            self._last_success.labels(standing.job).set(standing.succeeded_at.timestamp())
