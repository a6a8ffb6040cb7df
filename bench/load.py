"""Fifty clients at once on one butler: nothing lost, how long each tool takes then, and what memory it ends with."""

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
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import asyncpg
import httpx2
import psutil

from butlers import embedded_server
from butlers.host.api_keys import NewKey, create_key
from report import BENCH, Report, Table
from traffic import EMPTY, Book, Caller, outcomes, settled

TENANTS = 5
BARE_SECONDS = 5.0
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
class Scene:
    """A butler in a process of its own, its clients, and what was seen of both."""

    process: psutil.Process
    owner: "asyncpg.Connection[asyncpg.Record]"
    address: str
    callers: Sequence[Caller]
    book: Book
    admin_key: str
    weights: list[tuple[int, float]] = field(default_factory=list)

    async def metrics(self) -> str:
        """The page a scraper reads."""
        async with httpx2.AsyncClient() as client:
            address = self.address.removesuffix("/mcp") + "/metrics"
            return (await client.get(address, headers={"Authorization": f"Bearer {self.admin_key}"})).text

    async def together(self, doing: str, more: Callable[[], bool]) -> float:
        """All clients do that again and again while there is more to do; seconds taken."""

        async def busy(caller: Caller) -> None:
            while more():
                await getattr(caller, doing)()

        began = time.perf_counter()
        await asyncio.gather(*(busy(each) for each in self.callers))
        return time.perf_counter() - began

    async def weigh(self) -> None:
        """Note the memory of the process now and then, until cancelled."""
        while True:
            self.weights.append((self.book.calls, self.process.memory_info().rss / _MIB))
            await asyncio.sleep(0.25)


@contextlib.contextmanager
def _running(root: Path) -> Iterator[tuple[psutil.Process, str, Path]]:
    """A butler with the tests' probe, whose empty tool is the yardstick."""
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
        process.send_signal(signal.SIGTERM)
        process.wait(60)


@contextlib.asynccontextmanager
async def _scene(root: Path, clients: int) -> AsyncIterator[tuple[Scene, Path]]:
    async with contextlib.AsyncExitStack() as stack:
        process, address, log = stack.enter_context(_running(root))
        cluster = embedded_server.acquire(root / "home")
        stack.callback(cluster.release)
        owner = await asyncpg.connect(cluster.dsn("butler_bench"))
        stack.push_async_callback(owner.close)
        book, callers = Book(), []
        headers = {"Accept": "application/json, text/event-stream"}
        for number in range(clients):
            tenant = f"tenant-{number % TENANTS}"
            _, key = await create_key(owner, NewKey(tenant=tenant, actor=f"client {number}"))
            http = httpx2.AsyncClient(headers=headers, timeout=60)
            callers.append(Caller(number, tenant, key, "bench", address, await stack.enter_async_context(http), book))
        _, admin_key = await create_key(owner, NewKey(tenant="operator", actor="scraper", roles=("admin",)))
        yield Scene(process, owner, address, callers, book, admin_key), log


async def _prepare(scene: Scene) -> None:
    """One rule for each tenant that all its clients mark, somebody to find, and a first call of everything."""
    rules: dict[str, str] = {}
    for caller in scene.callers[:TENANTS]:
        stored = await caller.call("memory_store_rule", content="Ask before you send anything")
        rules[caller.tenant] = stored["id"]
        scene.book.stored["rules"][stored["id"]] = "Ask before you send anything"
        for number in range(20):
            await caller.call("entity_create", canonical_name=f"Somebody {number}", entity_type="person")
    await asyncio.gather(*(_everything(caller, rules[caller.tenant]) for caller in scene.callers))
    scene.book.seconds.clear()


async def _everything(caller: Caller, rule: str) -> None:
    caller.shared_rule = rule
    await caller.store_own()
    for doing in dict.fromkeys(caller.doings):
        await doing()


@dataclass(frozen=True)
class Measured:
    """What one run showed."""

    seconds: float
    calls: int
    bare_a_second: float
    book: Book
    weights: Sequence[tuple[int, float]]
    wrong: Sequence[str]


async def measure(clients: int, seconds: float, calls: int) -> Measured:
    """Run the clients for so long, or for so many calls, and hold the database against what they were told."""
    with tempfile.TemporaryDirectory(prefix=f"butlers-load-{uuid4().hex[:6]}", ignore_cleanup_errors=True) as made:
        root = Path(made)
        root.chmod(0o755)
        async with _scene(root, clients) as (scene, log):
            await _prepare(scene)
            bare_from, until = scene.book.calls, time.perf_counter() + min(BARE_SECONDS, seconds)
            bare = await scene.together("empty", lambda: time.perf_counter() < until)
            bare_rate = (scene.book.calls - bare_from) / bare
            scene.book.seconds.clear()
            began, end = scene.book.calls, time.perf_counter() + seconds
            weighing = asyncio.create_task(scene.weigh())
            taken = await scene.together(
                "once", lambda: scene.book.calls - began < calls if calls else time.perf_counter() < end
            )
            weighing.cancel()
            done = scene.book.calls - began
            wrong = await settled(scene.owner, scene.book, outcomes(await scene.metrics()))
            # A job that finds no connection is tried again later; what nobody foresaw is a defect.
            complaints = [line for line in log.read_text().splitlines() if " internal " in line]
            weights = [(at - began, weight) for at, weight in scene.weights]
        return Measured(taken, done, bare_rate, scene.book, weights, [*wrong, *complaints[:10]])


def report(measured: Measured, clients: int, name: str) -> Report:
    """The page's part."""
    rate = measured.calls / measured.seconds
    overloaded = measured.book.outcomes["overloaded"] + measured.book.turned_away
    rss = {name: _weight(measured, start) for name, start in (("first", 0.0), ("middle", 0.45), ("last", 0.9))}
    return Report(
        name=name,
        title="Load" if name == "load" else "Endurance",
        about=f"{clients} clients of {TENANTS} tenants over HTTP, each with a key, each doing one thing after the "
        f"other without a pause: {measured.calls:,} calls in {measured.seconds:.0f} s. Afterwards every acknowledged "
        "store is in the database, the last one under each key is the live one, marks and reads add up, each row "
        f"has its event, and `/metrics` counted what the clients did. Refused as `overloaded`: {overloaded}; any "
        "other error fails the bench.",
        measured={
            "seconds": measured.seconds,
            "calls": measured.calls,
            "calls_a_second": rate,
            "empty_calls_a_second": measured.bare_a_second,
            "overloaded": overloaded,
            "rss_mib_by_tenth": rss,
            "percentiles_ms": {tool: _percentiles(taken) for tool, taken in sorted(measured.book.seconds.items())},
        },
        tables=[_latencies(measured), _throughput(measured, rate), _memory(measured, rss)],
    )


def _percentiles(taken: Sequence[float]) -> tuple[float, float, float]:
    cuts = statistics.quantiles(taken, n=100, method="inclusive")
    return cuts[49] * 1000, cuts[94] * 1000, cuts[98] * 1000


def _latencies(measured: Measured) -> Table:
    rows, empty = [], _percentiles(measured.book.seconds[EMPTY])
    for tool, taken in sorted(measured.book.seconds.items(), key=lambda each: statistics.median(each[1])):
        known = _percentiles(taken)
        label = "a tool that does nothing" if tool == EMPTY else f"`{tool}`"
        rows.append([label, f"{len(taken):,}", *(f"{each:.0f}" for each in known), f"{known[0] / empty[0]:.1f}×"])
    return Table(
        "How long a call takes in the crowd",
        "As the client sees it, waiting for its turn included; the clients share the machine with the butler. The "
        "ratio is against a tool that does nothing, called in the same crowd.",
        ["", "calls", "p50, ms", "p95, ms", "p99, ms", "p50 against nothing"],
        rows,
    )


def _throughput(measured: Measured, rate: float) -> Table:
    bare = measured.bare_a_second
    return Table(
        "Calls a second",
        "The same clients on nothing but the tool that does nothing, and on the mix.",
        ["", "calls/s", "ratio"],
        [["nothing", f"{bare:.0f}", "1.00"], ["the mix", f"{rate:.0f}", f"{rate / bare:.2f}"]],
    )


def _weight(measured: Measured, start: float) -> float:
    """The median weight in the tenth of the calls that begins there."""
    within = (measured.calls * start, measured.calls * (start + 0.1))
    return statistics.median(weight for at, weight in measured.weights if within[0] <= at <= within[1])


def _memory(measured: Measured, rss: dict[str, float]) -> Table:
    return Table(
        "The butler's memory",
        f"RSS of the process over {measured.calls:,} calls, after a first call of everything.",
        ["", *(f"{name} tenth, MiB" for name in rss), "growth"],
        [["RSS", *(f"{weight:.0f}" for weight in rss.values()), f"{rss['last'] / rss['first'] - 1:+.0%}"]],
    )


def main() -> int:
    """Measure, print, keep; fail where anything was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--calls", type=int, default=0, help="so many calls instead, for the memory they leave")
    parser.add_argument("--check", action="store_true", help="keep no result, only fail where anything was lost")
    chosen = parser.parse_args()
    measured = asyncio.run(measure(chosen.clients, chosen.seconds, chosen.calls))
    said = report(measured, chosen.clients, "endurance" if chosen.calls else "load")
    print(said.markdown())
    for each in measured.wrong:
        print(f"wrong: {each}", file=sys.stderr)
    if not chosen.check and not measured.wrong:
        print(f"written: {said.save().name}")
    return 1 if measured.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
