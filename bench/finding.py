"""Bench of searches: latency among many tenants, recall against an exact scan, keyword search, cost of recalls."""

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
from butlers.modules.memory.operations import index_upkeep
from butlers.modules.memory.runtime import Memory
from harness import bench_butler, caller_for, durations, fill_facts, recall, search, seed_vectors, sentence
from report import Report, Table, milliseconds

_EXACT = """
    select id from facts
     where tenant_id = $1 and validity = 'active' and scope = 'global'
     order by (embedding <=> $2) + 0, created_at desc, id limit 10
"""
_EVERY_MATCH = """
    select id from facts, plainto_tsquery('english', $1) as all_words, any_term_query($1) as any_of
     where tenant_id = $2 and validity = 'active' and search_vector @@ any_of
     order by search_vector @@ all_words desc, ts_rank(search_vector, any_of) desc, created_at desc, id limit 10
"""


@dataclass(frozen=True, slots=True)
class Setup:
    """A butler with its memory, and a source of random questions."""

    butler: Butler
    memory: Memory
    rng: random.Random

    async def recall(self, tenant: str) -> list[dict[str, Any]]:
        """One recall with a new question."""
        return await recall(self.memory, caller_for(tenant, self.butler), sentence(self.rng))

    async def recall_seconds(self, tenant: str, repeats: int) -> float:
        """Median seconds of a recall."""
        await self.recall(tenant)
        return statistics.median(await durations(lambda _: self.recall(tenant), repeats))

    async def find_facts(self, tenant: str, question: str, mode: SearchMode) -> set[Any]:
        """The ids of the ten best facts."""
        caller = caller_for(tenant, self.butler)
        results = await search(self.memory, caller, question, types=[MemoryType.FACT], mode=mode, min_confidence=0.0)
        return {result["id"] for result in results}


async def main(repeats: int, rows: int, recalls: int) -> None:
    """Measure and publish."""
    tables: list[Table] = []
    measured: dict[str, object] = {}
    async with bench_butler() as (butler, memory, _):
        setup = Setup(butler, memory, random.Random(5))
        seeds = await seed_vectors(memory, setup.rng)
        await fill_facts(butler, memory, [("lone", 10_000)], seeds, mixed=True)
        alone = await setup.recall_seconds("lone", repeats)
        others = [(f"other{number}", 10_000) for number in range((rows - 10_000) // 10_000)]
        load_seconds = await fill_facts(butler, memory, others, seeds, mixed=True)
        shared = await setup.recall_seconds("lone", repeats)
        measured["lone_ratio"] = shared / alone
        tables.append(_shared_table(alone, shared, rows, load_seconds))
    async with bench_butler() as (butler, memory, _):
        setup = Setup(butler, memory, random.Random(6))
        seeds = await seed_vectors(memory, setup.rng)
        sizes = [("t100", 100), ("t1k", 1_000), ("t10k", 10_000), ("t100k", 100_000)]
        await fill_facts(butler, memory, sizes, seeds, mixed=True)
        await index_upkeep.maintain_indexes(memory, caller_for("t100", butler))
        tables.append(await semantic_recall(setup, measured))
        tables.append(await keyword_hits(setup, repeats, measured))
        tables.append(await recall_updates(setup, recalls, measured))
    about = "The bench generates all data. The vectors lie between vectors of the model."
    Report("finding", "Search", about, measured, tables).publish()


def _shared_table(alone: float, shared: float, rows: int, load_seconds: float) -> Table:
    note = (
        f"A tenant of 10,000 facts alone in the database, and among {rows:,} rows of tenants of the same size, "
        f"inserted in random order in {load_seconds:.0f} s."
    )
    row = ["recall", milliseconds(alone), milliseconds(shared), f"{shared / alone:.2f}×", "at most 1.5×"]
    return Table("A tenant among many", note, ["", "alone, ms", "among many, ms", "ratio", "goal"], [row])


async def semantic_recall(setup: Setup, measured: dict[str, object]) -> Table:
    """The share of an exact scan's results that semantic search finds."""
    owner = await asyncpg.connect(setup.butler.location.admin_dsn)
    await register_vector(owner)
    rows = []
    for tenant in ("t100", "t10k", "t100k"):
        shares = []
        for _ in range(40):
            question = sentence(setup.rng)
            found = await setup.find_facts(tenant, question, SearchMode.SEMANTIC)
            exact = await owner.fetch(_EXACT, tenant, await setup.memory.embedder.embed(question))
            shares.append(len(found & {row["id"] for row in exact}) / 10)
        measured[f"recall_at_10_{tenant}"] = statistics.mean(shares)
        rows.append([tenant.removeprefix("t"), f"{statistics.mean(shares):.3f}", "at least 0.99"])
    await owner.close()
    note = "Share of the ten nearest facts, by comparison of every vector, that a semantic search returns."
    return Table("Semantic search against an exact scan", note, ["facts of the tenant", "recall@10", "goal"], rows)


async def keyword_hits(setup: Setup, repeats: int, measured: dict[str, object]) -> Table:
    """Keyword search with common words: its time, and its hits against ranking every match."""
    owner = await asyncpg.connect(setup.butler.location.admin_dsn)
    rows = []
    for tenant in ("t1k", "t10k", "t100k"):
        questions = await _keyword_questions(owner, setup.rng, tenant, repeats)
        await setup.find_facts(tenant, questions[0][1], SearchMode.KEYWORD)
        started = time.perf_counter()
        hits = [fact in await setup.find_facts(tenant, text, SearchMode.KEYWORD) for fact, text in questions]
        seconds = (time.perf_counter() - started) / repeats
        exact_hits = [
            fact in {row["id"] for row in await owner.fetch(_EVERY_MATCH, text, tenant)} for fact, text in questions
        ]
        shares = [sum(hits) / repeats, sum(exact_hits) / repeats]
        measured[f"keyword_hits_{tenant}"] = shares
        rows.append([tenant.removeprefix("t"), milliseconds(seconds), *(f"{share:.1%}" for share in shares)])
    await owner.close()
    note = (
        "Each question has five words of one fact, in another order, and five common words that are not in it. "
        "Found: the fact is among the ten best. All ranked: the same when every match of every word is ranked."
    )
    return Table("Keyword search", note, ["facts of the tenant", "search, ms", "found", "all ranked"], rows)


async def _keyword_questions(owner: Any, rng: random.Random, tenant: str, count: int) -> list[tuple[Any, str]]:
    facts = await owner.fetch(
        "select id, content from facts where tenant_id = $1 order by id limit $2", tenant, count
    )
    questions = []
    for fact in facts:
        words = rng.sample(fact["content"].split(), 5) + sentence(rng).split()[:5]
        rng.shuffle(words)
        questions.append((fact["id"], " ".join(words)))
    return questions


async def recall_updates(setup: Setup, recalls: int, measured: dict[str, object]) -> Table:
    """The cost of counting references: the share of HOT updates, and recalls before and after."""
    owner = await asyncpg.connect(setup.butler.location.admin_dsn)
    ratio_before = await _ratio_to_small_tenant(setup)
    updates_before = await _update_counts(owner)
    slots = asyncio.Semaphore(8)

    async def recall_once() -> None:
        async with slots:
            await setup.recall("t100k")

    started = time.perf_counter()
    await asyncio.gather(*(recall_once() for _ in range(recalls)))
    rate = recalls / (time.perf_counter() - started)
    updates_after = await _update_counts(owner)
    ratio_after = await _ratio_to_small_tenant(setup)
    await owner.close()
    share = (updates_after[1] - updates_before[1]) / (updates_after[0] - updates_before[0])
    measured |= {"hot_share": share, "recall_after_bumps": ratio_after / ratio_before}
    rows = [
        ["updates in place (HOT)", f"{share:.1%}", "at least 90 %"],
        ["recall after against before", f"{ratio_after / ratio_before:.2f}×", "no slower"],
        ["recalls a second, 8 at once", f"{rate:.0f}", ""],
    ]
    note = "Before and after, a recall takes turns with one in the unchanged tenant of 1,000 facts."
    return Table(f"After {recalls:,} recalls on 100,000 facts", note, ["", "measured", "goal"], rows)


async def _ratio_to_small_tenant(setup: Setup) -> float:
    """The time of a recall among 100,000 facts over one among 1,000, in turns, so that a busy machine slows both."""
    large, small = [], []
    for _ in range(100):
        large += await durations(lambda _: setup.recall("t100k"), 1)
        small += await durations(lambda _: setup.recall("t1k"), 1)
    return statistics.median(large) / statistics.median(small)


async def _update_counts(owner: Any) -> tuple[int, int]:
    """All updates of facts, and the HOT ones among them."""
    await asyncio.sleep(1.5)
    await owner.execute("select pg_stat_clear_snapshot()")
    row = await owner.fetchrow("select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'facts'")
    return row["n_tup_upd"], row["n_tup_hot_upd"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--recalls", type=int, default=2_000)
    asyncio.run(main(**vars(parser.parse_args())))
