"""The first minute: a database that was empty a moment ago, filled as an agent fills it."""

import argparse
import asyncio
import random
import statistics
import time

import asyncpg

from butlers.app import Butler
from butlers.modules.memory.domain.model import MemoryType, NewFact, SearchMode
from butlers.modules.memory.operations import reading, writing
from butlers.modules.memory.operations.idempotency import Request
from butlers.modules.memory.runtime import Memory
from report import Report, Table
from world import caller_of, sentence, timed, world

STEPS, EACH = 5, 400
TENANT = "fresh"


async def main(repeats: int) -> None:
    """Store, search in between, and search once more when the server has looked at everything."""
    rng = random.Random(7)
    steps = []
    async with world(tenant=TENANT) as (butler, memory, _):
        for number in range(1, STEPS + 1):
            began = time.perf_counter()
            for _ in range(EACH):
                await _store(butler, memory, rng)
            rate = EACH / (time.perf_counter() - began)
            steps.append((number * EACH, rate, await _searched(butler, memory, rng, repeats)))
        owner = await asyncpg.connect(butler.place.admin_dsn)
        await owner.execute("vacuum analyze")
        await owner.close()
        settled = await _searched(butler, memory, rng, repeats)
    _report(steps, settled).save()
    print(_report(steps, settled).markdown())


async def _store(butler: Butler, memory: Memory, rng: random.Random) -> None:
    text = sentence(rng)
    fact = NewFact(subject=text[:60], predicate="note", content=text)
    await writing.store_fact(memory, caller_of(TENANT, butler), fact, Request("bench", {}))


async def _searched(butler: Butler, memory: Memory, rng: random.Random, repeats: int) -> float:
    async def search(_: int) -> object:
        return await reading.search(
            memory,
            caller_of(TENANT, butler),
            sentence(rng),
            types=tuple(MemoryType),
            scope=None,
            mode=SearchMode.HYBRID,
            limit=10,
            min_confidence=0.2,
        )

    await timed(search, 3)
    return statistics.median(await timed(search, repeats))


def _report(steps: list[tuple[int, float, float]], settled: float) -> Report:
    rows = [
        [f"{stored:,}", f"{rate:.0f}", f"{search * 1000:.1f}", f"{search / settled:.2f}×"]
        for stored, rate, search in steps
    ]
    table = Table(
        "As it fills",
        f"A hybrid search over all types takes {settled * 1000:.1f} ms among the same once the server has looked at "
        "every table (`vacuum analyze`); the ratio is to that.",
        ["memories", "stores a second", "search, ms", "against later"],
        [*rows],
    )
    about = (
        "One fact after the other, below the protocol, into a database that has just been made. Until the server has "
        "statistics of a table it takes it for next to empty."
    )
    measured: dict[str, object] = {
        "steps": [{"memories": stored, "stores_a_second": rate, "search": search} for stored, rate, search in steps],
        "settled": settled,
    }
    return Report("fresh", "The first minute", about, measured, [table])


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--repeats", type=int, default=20)
    asyncio.run(main(arguments.parse_args().repeats))
