"""Bench of growth: calls, disk and background work with 1,000 to 1,000,000 memories of one tenant.

A million memories take longer than all other sizes together and are measured only on request (`--sizes 1000000`).
Each point keeps the date of its measurement until it is measured again.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import asyncpg

from butlers.caller import Caller
from butlers.modules.memory.operations import cleanup, context, decay_sweep, index_upkeep
from butlers.modules.memory.runtime import Memory
from harness import (
    age_facts,
    bench_butler,
    caller_for,
    duration,
    durations,
    fill_facts,
    insert_expired_episodes,
    note,
    recall,
    search,
    seed_vectors,
    sentence,
    store_fact,
)
from report import RESULTS, Report, Table

TENANT = "growing"
SIZES = (1_000, 10_000, 100_000)
STORES = 60
_DISK = "select pg_table_size('facts'), pg_indexes_size('facts')"


@dataclass(frozen=True, slots=True)
class Point:
    """The measurements of one size; times in seconds, sizes in bytes."""

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


async def measure(size: int, repeats: int) -> Point:
    """Measure a tenant of that size."""
    rng = random.Random(size)
    async with bench_butler(tenant=TENANT) as (butler, memory, _):
        seeds = await seed_vectors(memory, rng, 1_000)
        await fill_facts(butler, memory, [(TENANT, size)], seeds, mixed=False)
        owner = await asyncpg.connect(butler.location.admin_dsn)
        caller = caller_for(TENANT, butler)
        graph = await duration(index_upkeep.maintain_indexes(memory, caller))
        latencies = {name: await _latencies(read, rng, repeats) for name, read in _reads(memory, caller).items()}
        stores = await durations(lambda _: store_fact(memory, caller, note(sentence(rng))), STORES)
        disk = await owner.fetchrow(_DISK)
        assert disk is not None
        # One UPDATE of all facts would insert each of them into the vector index again; in use they age slowly.
        await owner.execute("drop index facts_embedding")
        await age_facts(owner, [TENANT])
        sweep = await duration(decay_sweep.sweep(memory, caller))
        await insert_expired_episodes(memory, owner, TENANT, seeds[0], size)
        cleaned = await duration(cleanup.clean_up(memory, caller))
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


def _reads(memory: Memory, caller: Caller) -> dict[str, Callable[[str], Awaitable[object]]]:
    return {
        "search": lambda text: search(memory, caller, text),
        "recall": lambda text: recall(memory, caller, text),
        "context": lambda text: context.build_context(memory, caller, text, "bench", None),
    }


async def _latencies(read: Callable[[str], Awaitable[object]], rng: random.Random, repeats: int) -> list[float]:
    return (await durations(lambda _: read(sentence(rng)), 3 + repeats))[3:]


def _stored_points() -> dict[int, Point]:
    path = RESULTS / "growth.json"
    if not path.is_file():
        return {}
    points = json.loads(path.read_text(encoding="utf-8"))["measured"]["points"]
    return {point["memories"]: Point(**point) for point in points}


async def main(sizes: Sequence[int], repeats: int) -> None:
    """Measure the sizes and publish them with the points measured before."""
    points = _stored_points()
    for size in sizes:
        print(f"{size:,} memories", file=sys.stderr, flush=True)
        points[size] = await measure(size, repeats)
    ordered = [points[size] for size in sorted(points)]
    measured: dict[str, object] = {"points": [asdict(point) for point in ordered]}
    Report("growth", "Growth", _ABOUT, measured, _tables(ordered), ["growth.svg"]).publish()


_ABOUT = (
    "One tenant, alone in its database. Searches are hybrid, over all types, below the protocol. The sweep marks "
    "every fact as fading and writes an event for each, in a table without its vector index. The cleanup deletes as "
    "many expired episodes as there are facts."
)


def _tables(points: Sequence[Point]) -> list[Table]:
    smallest = points[0]

    def ms(value: float, base: float) -> str:
        return f"{value * 1000:.1f} ({value / base:.1f}×)"

    calls = Table(
        "Calls",
        f"Medians in ms. In brackets: the ratio to {smallest.memories:,} memories.",
        ["memories", "search", "search p95", "recall", "context", "stores a second", "measured"],
        [
            [
                f"{point.memories:,}",
                ms(point.search, smallest.search),
                ms(point.search_p95, smallest.search_p95),
                ms(point.recall, smallest.recall),
                ms(point.context, smallest.context),
                f"{point.stores_a_second:.0f}",
                point.measured,
            ]
            for point in points
        ],
    )
    work = Table(
        "Disk and background work",
        "Building the vector index, the sweep and the cleanup run while calls are served.",
        ["memories", "table, MiB", "indexes, MiB", "index upkeep, s", "sweep, s", "cleanup, s"],
        [
            [
                f"{point.memories:,}",
                f"{point.table / 2**20:.1f}",
                f"{point.indexes / 2**20:.1f}",
                f"{point.graph:.1f}",
                f"{point.sweep:.2f}",
                f"{point.cleanup:.2f}",
            ]
            for point in points
        ],
    )
    return [calls, work]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=lambda text: [int(size) for size in text.split(",")], default=SIZES)
    parser.add_argument("--repeats", type=int, default=40)
    asyncio.run(main(**vars(parser.parse_args())))
