"""What growing costs: one tenant of 1,000, 10,000, 100,000 and a million memories, each in a database of its own.

The largest takes longer than all the others together, and so is measured only when it is asked for
(`--sizes 1000000`); every point is kept with its day until it is measured again.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import asyncpg

from butlers.app import Butler
from butlers.modules.memory.domain.model import MemoryType, NewFact, SearchMode
from butlers.modules.memory.operations import cleanup, context, decay_sweep, index_upkeep, reading, writing
from butlers.modules.memory.operations.idempotency import Request
from butlers.modules.memory.runtime import Memory
from report import RESULTS, Report, Table
from world import aged, caller_of, expired_episodes, fill, seed_vectors, sentence, timed, world

TENANT = "growing"
SIZES = (1_000, 10_000, 100_000)
STORES = 60
_DISK = "select pg_table_size('facts'), pg_indexes_size('facts')"


@dataclass(frozen=True, slots=True)
class Point:
    """A tenant of one size, measured; times in seconds, sizes in bytes."""

    memories: int
    search: float
    search_p95: float
    recall: float
    context: float
    stores_a_second: float
    table: int
    indexes: int
    graph: float
    sweep: float
    cleanup: float
    measured: str


async def point(size: int, repeats: int) -> Point:
    """Measure a tenant of that size."""
    rng = random.Random(size)
    async with world(tenant=TENANT) as (butler, memory, _):
        seeds = await seed_vectors(memory, rng, 1_000)
        await fill(butler, memory, [(TENANT, size)], seeds, mixed=False)
        owner = await asyncpg.connect(butler.place.admin_dsn)
        caller = caller_of(TENANT, butler)
        graph = await _seconds(index_upkeep.maintain_indexes(memory, caller))
        latencies = {name: await _latencies(work, rng, repeats) for name, work in _reads(butler, memory).items()}
        stores = await timed(lambda _: _store(butler, memory, rng), STORES)
        disk = await owner.fetchrow(_DISK)
        assert disk is not None
        # They grow old over months, and here in one statement, which would write each of them into the graph anew.
        await owner.execute("drop index facts_embedding")
        await aged(owner, [TENANT])
        sweep = await _seconds(decay_sweep.sweep(memory, caller))
        await expired_episodes(memory, owner, TENANT, seeds[0], size)
        cleaned = await _seconds(cleanup.clean_up(memory, caller))
        await owner.close()
    return Point(
        memories=size,
        search=statistics.median(latencies["search"]),
        search_p95=statistics.quantiles(latencies["search"], n=20)[-1],
        recall=statistics.median(latencies["recall"]),
        context=statistics.median(latencies["context"]),
        stores_a_second=1 / statistics.median(stores),
        table=disk[0],
        indexes=disk[1],
        graph=graph,
        sweep=sweep,
        cleanup=cleaned,
        measured=datetime.now(UTC).strftime("%Y-%m-%d"),
    )


def _reads(butler: Butler, memory: Memory) -> dict[str, Callable[[str], Awaitable[object]]]:
    caller = caller_of(TENANT, butler)
    kinds = (MemoryType.FACT, MemoryType.RULE)

    async def search(text: str) -> object:
        return await reading.search(
            memory,
            caller,
            text,
            types=tuple(MemoryType),
            scope=None,
            mode=SearchMode.HYBRID,
            limit=10,
            min_confidence=0.2,
        )

    return {
        "search": search,
        "recall": lambda text: reading.recall(memory, caller, text, scope=None, limit=10, types=kinds),
        "context": lambda text: context.build_context(memory, caller, text, "bench", None),
    }


async def _latencies(work: Callable[[str], Awaitable[object]], rng: random.Random, repeats: int) -> list[float]:
    for _ in range(3):
        await work(sentence(rng))
    return await timed(lambda _: work(sentence(rng)), repeats)


async def _store(butler: Butler, memory: Memory, rng: random.Random) -> None:
    text = sentence(rng)
    fact = NewFact(subject=text[:60], predicate="note", content=text)
    await writing.store_fact(memory, caller_of(TENANT, butler), fact, Request("bench", {}))


async def _seconds(work: Awaitable[Any]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


def _earlier() -> dict[int, Point]:
    path = RESULTS / "growth.json"
    if not path.is_file():
        return {}
    kept = json.loads(path.read_text(encoding="utf-8"))["measured"]
    return {each["memories"]: Point(**each) for each in kept["points"]}


async def main(sizes: Sequence[int], repeats: int) -> None:
    """Measure and keep."""
    points = _earlier()
    for size in sizes:
        print(f"{size:,} memories", file=sys.stderr, flush=True)
        points[size] = await point(size, repeats)
    known = [points[size] for size in sorted(points)]
    report = Report(
        "growth", "Growth", _ABOUT, {"points": [asdict(each) for each in known]}, _tables(known), ["growth.svg"]
    )
    report.save()
    print(report.markdown())


_ABOUT = (
    "One tenant, alone in its database. Searches are hybrid, over all types, below the protocol; the sweep lets "
    "every fact fade, with an event for each, in a table without its graph; the cleanup deletes as many expired "
    "episodes as there are facts."
)


def _tables(points: Sequence[Point]) -> list[Table]:
    least = points[0]

    def ms(value: float, base: float) -> str:
        return f"{value * 1000:.1f} ({value / base:.1f}×)"

    calls = Table(
        "Calls",
        f"Medians in ms; in brackets the ratio to {least.memories:,} memories.",
        ["memories", "search", "search, 95 of 100", "recall", "context", "stores a second", "measured"],
        [
            [
                f"{each.memories:,}",
                ms(each.search, least.search),
                ms(each.search_p95, least.search_p95),
                ms(each.recall, least.recall),
                ms(each.context, least.context),
                f"{each.stores_a_second:.0f}",
                each.measured,
            ]
            for each in points
        ],
    )
    work = Table(
        "Room and work",
        "Building the graph of the vector index, sweeping and cleaning up go on beside calls.",
        ["memories", "table, MiB", "indexes, MiB", "index upkeep, s", "sweep, s", "cleanup, s"],
        [
            [
                f"{each.memories:,}",
                f"{each.table / 2**20:.1f}",
                f"{each.indexes / 2**20:.1f}",
                f"{each.graph:.1f}",
                f"{each.sweep:.2f}",
                f"{each.cleanup:.2f}",
            ]
            for each in points
        ],
    )
    return [calls, work]


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--sizes", type=lambda text: [int(each) for each in text.split(",")], default=SIZES)
    arguments.add_argument("--repeats", type=int, default=40)
    told = arguments.parse_args()
    asyncio.run(main(told.sizes, told.repeats))
