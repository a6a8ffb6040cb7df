"""Bench of load: many clients on one butler, with a check for lost writes, latencies by tool, and memory."""

import argparse
import asyncio
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import asyncpg
import httpx2
import psutil

from butlers import embedded_server
from butlers.host.api_keys import NewKey, create_key
from report import BENCH, Report, Table
from workload import EMPTY_TOOL, CallLog, Client, find_errors, parse_outcomes

TENANTS = 5
EMPTY_CALLS_SECONDS = 5.0
_MIB = 2.0**20
_TOML = """
[butler]
name = "bench"
port = 0
[butler.auth]
mode = "keys"
[butler.limits]
calls_per_second = 1000000.0
burst = 1000000
[modules.memory]
enabled = true
[modules.probe]
enabled = true
"""


@dataclass
class Setup:
    """A butler in its own process, its clients, and the measurements of both."""

    process: psutil.Process
    owner: "asyncpg.Connection[asyncpg.Record]"
    address: str
    clients: Sequence[Client]
    log: CallLog
    admin_key: str
    memory_samples: list[tuple[int, float]] = field(default_factory=list)

    async def metrics(self) -> str:
        """The /metrics page."""
        async with httpx2.AsyncClient() as client:
            address = self.address.removesuffix("/mcp") + "/metrics"
            return (await client.get(address, headers={"Authorization": f"Bearer {self.admin_key}"})).text

    async def run_clients(self, action: Callable[[Client], Awaitable[None]], more: Callable[[], bool]) -> float:
        """All clients repeat the action while `more` returns true; returns the seconds."""

        async def run_client(client: Client) -> None:
            while more():
                await action(client)

        started = time.perf_counter()
        await asyncio.gather(*(run_client(client) for client in self.clients))
        return time.perf_counter() - started

    async def sample_memory(self) -> None:
        """Record the memory of the process until cancelled."""
        while True:
            self.memory_samples.append((self.log.calls, self.process.memory_info().rss / _MIB))
            await asyncio.sleep(0.25)


@contextlib.contextmanager
def _run_butler(root: Path) -> Iterator[tuple[psutil.Process, str, Path]]:
    """A butler with the tests' probe module, which has an empty tool; yields process, address and log file."""
    (root / "butler.toml").write_text(_TOML, encoding="utf-8")
    log = root / "stderr"
    variables = {**os.environ, "BUTLERS_HOME": str(root / "home"), "BUTLERS_LOG": "warning"}
    variables["PYTHONPATH"] = str(BENCH.parent / "tests")
    with log.open("w") as stderr:
        process = subprocess.Popen([sys.executable, "-m", "probe", str(root)], env=variables, stderr=stderr)
    try:
        while not (ready := [line for line in log.read_text().splitlines() if line.startswith("ready: ")]):
            if process.poll() is not None:
                raise RuntimeError(f"the butler did not start:\n{log.read_text()}")
            time.sleep(0.05)
        yield psutil.Process(process.pid), ready[0].removeprefix("ready: "), log
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


@contextlib.asynccontextmanager
async def _open_setup(root: Path, client_count: int) -> AsyncIterator[tuple[Setup, Path]]:
    async with contextlib.AsyncExitStack() as stack:
        process, address, log_file = stack.enter_context(_run_butler(root))
        cluster = embedded_server.acquire(root / "home")
        stack.callback(cluster.release)
        owner = await asyncpg.connect(cluster.dsn("butler_bench"))
        stack.push_async_callback(owner.close)
        log, clients = CallLog(), []
        headers = {"Accept": "application/json, text/event-stream"}
        for number in range(client_count):
            tenant = f"tenant-{number % TENANTS}"
            _, key = await create_key(owner, NewKey(tenant=tenant, actor=f"client {number}"))
            http = httpx2.AsyncClient(headers=headers, timeout=60)
            await stack.enter_async_context(http)
            clients.append(Client(number, tenant, key, "bench", address, http, log))
        _, admin_key = await create_key(owner, NewKey(tenant="operator", actor="scraper", roles=("admin",)))
        yield Setup(process, owner, address, clients, log, admin_key), log_file


async def _prepare(setup: Setup) -> None:
    """Store a shared rule and some entities for each tenant; each client makes a first call of every tool."""
    rules: dict[str, str] = {}
    for client in setup.clients[:TENANTS]:
        stored = await client.call("memory_store_rule", content="Ask before you send anything")
        rules[client.tenant] = stored["id"]
        setup.log.stored["rules"][stored["id"]] = "Ask before you send anything"
        for number in range(20):
            await client.call("entity_create", canonical_name=f"Somebody {number}", entity_type="person")
    await asyncio.gather(*(_call_every_tool(client, rules[client.tenant]) for client in setup.clients))
    setup.log.seconds.clear()


async def _call_every_tool(client: Client, rule: str) -> None:
    client.shared_rule = rule
    await client.store_own()
    for action in dict.fromkeys(client.actions):
        await action()


@dataclass(frozen=True)
class LoadResult:
    """The measurements of one run."""

    seconds: float
    calls: int
    empty_calls_a_second: float
    log: CallLog
    memory_samples: Sequence[tuple[int, float]]
    errors: Sequence[str]


async def measure(client_count: int, seconds: float, calls: int) -> LoadResult:
    """Run the clients for that many seconds, or calls if not 0, and check the database against their log."""
    with tempfile.TemporaryDirectory(prefix=f"butlers-load-{uuid4().hex[:6]}", ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        root.chmod(0o755)
        async with _open_setup(root, client_count) as (setup, log_file):
            await _prepare(setup)
            log = setup.log
            first_empty, deadline = log.calls, time.perf_counter() + min(EMPTY_CALLS_SECONDS, seconds)
            empty_seconds = await setup.run_clients(Client.empty, lambda: time.perf_counter() < deadline)
            empty_rate = (log.calls - first_empty) / empty_seconds
            log.seconds.clear()
            first, end = log.calls, time.perf_counter() + seconds
            sampling = asyncio.create_task(setup.sample_memory())
            elapsed = await setup.run_clients(
                Client.act, lambda: log.calls - first < calls if calls else time.perf_counter() < end
            )
            sampling.cancel()
            call_count = log.calls - first
            errors = await find_errors(setup.owner, log, parse_outcomes(await setup.metrics()))
            # A job without a connection is retried and logs a warning; an internal error is a defect.
            internal = [line for line in log_file.read_text().splitlines() if " internal " in line]
            memory = [(call - first, mib) for call, mib in setup.memory_samples]
        return LoadResult(elapsed, call_count, empty_rate, log, memory, [*errors, *internal[:10]])


def report(result: LoadResult, client_count: int, name: str) -> Report:
    """The report on one run."""
    rate = result.calls / result.seconds
    overloaded = result.log.outcomes["overloaded"] + result.log.rejected_before_tool
    rss = {name: _median_rss(result, start) for name, start in (("first", 0.0), ("middle", 0.45), ("last", 0.9))}
    return Report(
        name=name,
        title="Load" if name == "load" else "Endurance",
        about=f"{client_count} clients of {TENANTS} tenants over HTTP, each with its own key, each calling without a "
        f"pause: {result.calls:,} calls in {result.seconds:.0f} s. The bench then checks that every acknowledged "
        "store is in the database, the last one under each key is active, marks and reads add up, each row has its "
        f"event, and `/metrics` agrees with the clients. Rejected as `overloaded`: {overloaded}; any other error "
        "fails the bench.",
        measured={
            "seconds": result.seconds,
            "calls": result.calls,
            "calls_a_second": rate,
            "empty_calls_a_second": result.empty_calls_a_second,
            "overloaded": overloaded,
            "rss_mib_by_tenth": rss,
            "percentiles_ms": {tool: _percentiles(seconds) for tool, seconds in sorted(result.log.seconds.items())},
        },
        tables=[_latency_table(result), _throughput_table(result, rate), _memory_table(result, rss)],
    )


def _percentiles(seconds: Sequence[float]) -> tuple[float, float, float]:
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return cuts[49] * 1000, cuts[94] * 1000, cuts[98] * 1000


def _latency_table(result: LoadResult) -> Table:
    rows, (empty_p50, _, _) = [], _percentiles(result.log.seconds[EMPTY_TOOL])
    for tool, seconds in sorted(result.log.seconds.items(), key=lambda item: statistics.median(item[1])):
        percentiles = _percentiles(seconds)
        label = "a tool that does nothing" if tool == EMPTY_TOOL else f"`{tool}`"
        cells = [f"{value:.0f}" for value in percentiles]
        rows.append([label, f"{len(seconds):,}", *cells, f"{percentiles[0] / empty_p50:.1f}×"])
    return Table(
        "Latency of a call under load",
        "Measured by the client, time in the queue included. The clients share the machine with the butler. The "
        "ratio is to a tool that does nothing, called under the same load.",
        ["", "calls", "p50, ms", "p95, ms", "p99, ms", "p50 ratio"],
        rows,
    )


def _throughput_table(result: LoadResult, rate: float) -> Table:
    empty = result.empty_calls_a_second
    return Table(
        "Calls a second",
        "The same clients with calls of the empty tool alone, and with the mix.",
        ["", "calls/s", "ratio"],
        [["empty tool", f"{empty:.0f}", "1.00"], ["mix", f"{rate:.0f}", f"{rate / empty:.2f}"]],
    )


def _median_rss(result: LoadResult, start: float) -> float:
    """The median MiB in the tenth of the calls that begins at this share of them."""
    low, high = result.calls * start, result.calls * (start + 0.1)
    return statistics.median(mib for call, mib in result.memory_samples if low <= call <= high)


def _memory_table(result: LoadResult, rss: dict[str, float]) -> Table:
    return Table(
        "Memory of the butler",
        f"RSS of the process over {result.calls:,} calls, after a first call of every tool.",
        ["", *(f"{name} tenth, MiB" for name in rss), "growth"],
        [["RSS", *(f"{mib:.0f}" for mib in rss.values()), f"{rss['last'] / rss['first'] - 1:+.0%}"]],
    )


def main() -> int:
    """Measure and publish; returns 1 when an error was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--calls", type=int, default=0, help="run for this many calls instead of seconds")
    parser.add_argument("--check", action="store_true", help="write no result, only fail on errors")
    options = parser.parse_args()
    result = asyncio.run(measure(options.clients, options.seconds, options.calls))
    finished = report(result, options.clients, "endurance" if options.calls else "load")
    if options.check or result.errors:
        print(finished.markdown())
    else:
        finished.publish()
    for error in result.errors:
        print(f"error: {error}", file=sys.stderr)
    return 1 if result.errors else 0


if __name__ == "__main__":
    sys.exit(main())
