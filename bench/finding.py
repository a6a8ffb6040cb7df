"""How quickly and how well memories are found, as tables grow and tenants share them."""

import argparse
import asyncio
import random
import statistics
import time
from dataclasses import dataclass
from typing import Any

import asyncpg
from pgvector.asyncpg import register_vector

from butlers.app import Butler
from butlers.modules.memory.domain.model import MemoryType, SearchMode
from butlers.modules.memory.operations import index_upkeep, reading
from butlers.modules.memory.runtime import Memory
from report import Report, Table
from world import caller_of, fill, seed_vectors, sentence, timed, world

KINDS = (MemoryType.FACT, MemoryType.RULE)
_EXACT = """
    select id from facts
     where tenant_id = $1 and validity = 'active' and scope = 'global'
     order by (embedding <=> $2) + 0, created_at desc, id limit 10
"""


@dataclass(frozen=True, slots=True)
class Place:
    """A butler with its memory, and somebody who asks."""

    butler: Butler
    memory: Memory
    rng: random.Random

    async def recall(self, tenant: str, topic: str | None = None) -> list[dict[str, Any]]:
        """One recall of something never asked before."""
        asked = topic or sentence(self.rng)
        caller = caller_of(tenant, self.butler)
        return await reading.recall(self.memory, caller, asked, scope=None, limit=10, types=KINDS)

    async def median(self, tenant: str, repeats: int) -> float:
        """Median seconds of a recall."""
        await self.recall(tenant)
        return statistics.median(await timed(lambda _: self.recall(tenant), repeats))


async def main(repeats: int, rows: int, recalls: int) -> None:
    """Measure and keep."""
    tables: list[Table] = []
    measured: dict[str, object] = {}
    async with world() as (butler, memory, _):
        place = Place(butler, memory, random.Random(5))
        seeds = await seed_vectors(memory, place.rng)
        await fill(butler, memory, [("lone", 10_000)], seeds, mixed=True)
        alone = await place.median("lone", repeats)
        others = [(f"other{number}", 10_000) for number in range((rows - 10_000) // 10_000)]
        taken = await fill(butler, memory, others, seeds, mixed=True)
        among = await place.median("lone", repeats)
        measured["lone_ratio"] = among / alone
        tables.append(_shared(alone, among, rows, taken))
    async with world() as (butler, memory, _):
        place = Place(butler, memory, random.Random(6))
        seeds = await seed_vectors(memory, place.rng)
        sizes = [("t100", 100), ("t1k", 1_000), ("t10k", 10_000), ("t100k", 100_000)]
        await fill(butler, memory, sizes, seeds, mixed=True)
        await index_upkeep.maintain_indexes(memory, caller_of("t100", butler))
        tables.append(await quality(place, measured))
        tables.append(await common_words(place, repeats, measured))
        tables.append(await bumps(place, recalls, measured))
    about = "All data is made up by the bench; vectors lie between real ones of the real model."
    report = Report("finding", "Finding", about, measured, tables)
    report.save()
    print(report.markdown())


def _shared(alone: float, among: float, rows: int, taken: float) -> Table:
    note = (
        f"A tenant of 10,000 facts by itself, and among {rows:,} rows of tenants as large that arrived mixed "
        f"(loaded in {taken:.0f} s)."
    )
    row = ["recall", _ms(alone), _ms(among), f"{among / alone:.2f}×", "at most 1.5×"]
    return Table("A tenant among many", note, ["", "alone, ms", "among, ms", "ratio", "goal"], [row])


async def quality(place: Place, measured: dict[str, object]) -> Table:
    """Whether semantic search finds what comparing everything finds."""
    owner = await asyncpg.connect(place.butler.place.admin_dsn)
    await register_vector(owner)
    rows = []
    for tenant in ("t100", "t10k", "t100k"):
        shares = []
        for _ in range(40):
            asked = sentence(place.rng)
            found = await reading.search(
                place.memory,
                caller_of(tenant, place.butler),
                asked,
                types=[MemoryType.FACT],
                scope=None,
                mode=SearchMode.SEMANTIC,
                limit=10,
                min_confidence=0.0,
            )
            exact = await owner.fetch(_EXACT, tenant, await place.memory.embedder.embed(asked))
            shares.append(len({each["id"] for each in found} & {row["id"] for row in exact}) / 10)
        measured[f"recall_at_10_{tenant}"] = statistics.mean(shares)
        rows.append([tenant.removeprefix("t"), f"{statistics.mean(shares):.3f}", "at least 0.99"])
    await owner.close()
    note = "Share of the ten nearest facts that a semantic search returns, against comparing every vector."
    return Table("Semantic search against an exact scan", note, ["facts of the tenant", "recall@10", "goal"], rows)


async def common_words(place: Place, repeats: int, measured: dict[str, object]) -> Table:
    """Keyword search with common words: how it grows, and whether letting them go loses answers."""
    owner = await asyncpg.connect(place.butler.place.admin_dsn)
    rows = []
    for tenant in ("t1k", "t10k", "t100k"):
        asked = await _questions(owner, place.rng, tenant, repeats)
        await _by_words(place, tenant, asked[0][1])
        began = time.perf_counter()
        found = [target in await _by_words(place, tenant, question) for target, question in asked]
        taken = (time.perf_counter() - began) / repeats
        complete = [target in await _by_all_words(owner, tenant, question) for target, question in asked]
        measured[f"keyword_hits_{tenant}"] = [sum(found) / repeats, sum(complete) / repeats]
        rows.append(
            [tenant.removeprefix("t"), _ms(taken), f"{sum(found) / repeats:.1%}", f"{sum(complete) / repeats:.1%}"]
        )
    await owner.close()
    note = (
        "Each question has five words of one fact, in another order, and five common words that are not its. Found: "
        "that fact is among the ten best; beside it the same when every match of every word is ranked."
    )
    return Table("Keyword search", note, ["facts of the tenant", "search, ms", "found", "all ranked"], rows)


async def _questions(owner: Any, rng: random.Random, tenant: str, count: int) -> list[tuple[Any, str]]:
    facts = await owner.fetch(
        "select id, content from facts where tenant_id = $1 order by id limit $2", tenant, count
    )
    asked = []
    for fact in facts:
        words = rng.sample(fact["content"].split(), 5) + sentence(rng).split()[:5]
        rng.shuffle(words)
        asked.append((fact["id"], " ".join(words)))
    return asked


async def _by_words(place: Place, tenant: str, question: str) -> set[Any]:
    found = await reading.search(
        place.memory,
        caller_of(tenant, place.butler),
        question,
        types=[MemoryType.FACT],
        scope=None,
        mode=SearchMode.KEYWORD,
        limit=10,
        min_confidence=0.0,
    )
    return {each["id"] for each in found}


async def _by_all_words(owner: Any, tenant: str, question: str) -> set[Any]:
    rows = await owner.fetch(
        """
        select id from facts, plainto_tsquery('english', $1) as whole, any_term_query($1) as any_of
         where tenant_id = $2 and validity = 'active' and search_vector @@ any_of
         order by search_vector @@ whole desc, ts_rank(search_vector, any_of) desc, created_at desc, id limit 10
        """,
        question,
        tenant,
    )
    return {row["id"] for row in rows}


async def bumps(place: Place, recalls: int, measured: dict[str, object]) -> Table:
    """Whether noting what was recalled stays cheap."""
    owner = await asyncpg.connect(place.butler.place.admin_dsn)
    before = await _beside_a_small_one(place)
    began = await _updates(owner)
    limit = asyncio.Semaphore(8)

    async def one() -> None:
        async with limit:
            await place.recall("t100k")

    started = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(recalls)))
    rate = recalls / (time.perf_counter() - started)
    ended = await _updates(owner)
    after = await _beside_a_small_one(place)
    await owner.close()
    share = (ended[1] - began[1]) / (ended[0] - began[0])
    measured |= {"hot_share": share, "recall_after_bumps": after / before}
    rows = [
        ["updates in place (HOT)", f"{share:.1%}", "at least 90 %"],
        ["recall afterwards against before", f"{after / before:.2f}×", "no slower"],
        ["recalls a second, 8 at once", f"{rate:.0f}", ""],
    ]
    note = "Before and after, a recall is timed in turns with one in the tenant of 1,000, which nobody touched."
    return Table(f"After {recalls:,} recalls on 100,000 facts", note, ["", "measured", "goal"], rows)


async def _beside_a_small_one(place: Place) -> float:
    """A recall among 100,000 facts as a multiple of one among 1,000, so that a busy machine slows both down."""
    large, small = [], []
    for _ in range(100):
        large += await timed(lambda _: place.recall("t100k"), 1)
        small += await timed(lambda _: place.recall("t1k"), 1)
    return statistics.median(large) / statistics.median(small)


async def _updates(owner: Any) -> tuple[int, int]:
    await asyncio.sleep(1.5)
    await owner.execute("select pg_stat_clear_snapshot()")
    row = await owner.fetchrow("select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'facts'")
    return row["n_tup_upd"], row["n_tup_hot_upd"]


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f}"


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--repeats", type=int, default=40)
    arguments.add_argument("--rows", type=int, default=200_000)
    arguments.add_argument("--recalls", type=int, default=2_000)
    told = arguments.parse_args()
    asyncio.run(main(told.repeats, told.rows, told.recalls))
