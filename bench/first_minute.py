"""Bench of a new database's first minute: stores and searches before the server has statistics."""

import argparse
import asyncio
import random
import statistics
import time

import asyncpg

from butlers.caller import Caller
from butlers.modules.memory.runtime import Memory
from harness import bench_butler, caller_for, durations, note, search, sentence, store_fact
from report import Report, Table, milliseconds

STEPS, STORES_PER_STEP = 5, 400
TENANT = "fresh"


async def main(repeats: int) -> None:
    """Store and search in turns, then search once more after `vacuum analyze`."""
    rng = random.Random(7)
    steps = []
    async with bench_butler(tenant=TENANT) as (butler, memory, _):
        caller = caller_for(TENANT, butler)
        for number in range(1, STEPS + 1):
            started = time.perf_counter()
            for _ in range(STORES_PER_STEP):
                await store_fact(memory, caller, note(sentence(rng)))
            rate = STORES_PER_STEP / (time.perf_counter() - started)
            steps.append((number * STORES_PER_STEP, rate, await _search_seconds(memory, caller, rng, repeats)))
        owner = await asyncpg.connect(butler.location.admin_dsn)
        await owner.execute("vacuum analyze")
        await owner.close()
        settled = await _search_seconds(memory, caller, rng, repeats)
    _report(steps, settled).publish()


async def _search_seconds(memory: Memory, caller: Caller, rng: random.Random, repeats: int) -> float:
    seconds = await durations(lambda _: search(memory, caller, sentence(rng)), 3 + repeats)
    return statistics.median(seconds[3:])


def _report(steps: list[tuple[int, float, float]], settled: float) -> Report:
    table = Table(
        "Searches while the database fills",
        f"A hybrid search over all types takes {milliseconds(settled)} ms among the same memories once the server "
        "has statistics of every table (`vacuum analyze`). The ratio is to that.",
        ["memories", "stores a second", "search, ms", "ratio"],
        [
            [f"{stored:,}", f"{rate:.0f}", milliseconds(seconds), f"{seconds / settled:.2f}×"]
            for stored, rate, seconds in steps
        ],
    )
    about = (
        "Facts stored one after the other, below the protocol, in a new database. Until the server has statistics of "
        "a table, its planner assumes that the table is almost empty."
    )
    measured: dict[str, object] = {
        "steps": [
            {"memories": stored, "stores_a_second": rate, "search": seconds} for stored, rate, seconds in steps
        ],
        "settled": settled,
    }
    return Report("fresh", "The first minute", about, measured, [table])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    asyncio.run(main(parser.parse_args().repeats))
