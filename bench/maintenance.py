"""Bench of maintenance: sweep, cleanup and re-embedding against one bare statement or the bare model."""

import argparse
import asyncio
import random
import statistics
import time
from pathlib import Path
from typing import Any

import asyncpg

from butlers.app import Butler
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.onnx_model import load_minilm
from butlers.modules.memory.operations import cleanup, decay_sweep, reembedding
from butlers.modules.memory.runtime import Memory
from harness import (
    Vectors,
    age_facts,
    bench_butler,
    caller_for,
    duration,
    fill_facts,
    insert_expired_episodes,
    search,
    seed_vectors,
    sentence,
)
from report import Report, Table

OTHER_TENANT_FACTS = 2_000
MILLION = 1_000_000
_BATCH = 32
_ABOUT = "Jobs that process whole tables, against the time of PostgreSQL or of the model for the same work."
_ABOUT_MILLION = (
    " The cleanup and the re-embedding ran right after two million facts had been aged and swept; their times "
    'without that are under "Maintenance".'
)


async def main(facts: int, episodes: int, texts: int) -> None:
    """Measure and publish."""
    async with bench_butler("upkeep") as (butler, memory, environment):
        owner = await asyncpg.connect(butler.location.admin_dsn)
        seeds = await seed_vectors(memory, random.Random(11), 500)
        tenants = [("bare", facts), ("job", facts), ("bystander", OTHER_TENANT_FACTS)]
        seconds = await fill_facts(butler, memory, tenants, seeds, mixed=False)
        print(f"inserted {2 * facts} facts in {seconds:.0f} s", flush=True)
        sweep = await _measure_sweep(butler, memory, owner)
        deletion = await _measure_cleanup(butler, memory, owner, seeds, episodes)
        reembed = await _measure_reembedding(butler, memory, owner, environment.home, texts)
        await owner.close()
    large = facts >= MILLION
    Report(
        "million" if large else "upkeep",
        "Maintenance of a million facts" if large else "Maintenance",
        _ABOUT + (_ABOUT_MILLION if large else ""),
        {
            "sweep": sweep["job"] / sweep["bare"],
            "search_beside_sweep": sweep["search"]["job"] / sweep["search"]["bare"],
            "cleanup": deletion["job"] / deletion["bare"],
            "reembedding": reembed["job"] / reembed["bare"],
            "facts": facts,
            "episodes": episodes,
        },
        [
            _work_table(sweep, facts, deletion, episodes),
            _search_table(sweep["search"]),
            _reembed_table(reembed, texts),
        ],
    ).publish()


def _work_table(sweep: dict[str, Any], facts: int, deletion: dict[str, float], episodes: int) -> Table:
    return Table(
        "Jobs against one bare statement",
        "Bare: one UPDATE or DELETE of as many rows of the same table, without events. The job works in batches, "
        "checks the state of each row and writes an event for each.",
        ["", "bare, s", "job, s", "ratio", "goal"],
        [
            [f"sweep of {facts:,} facts, all to fading", *_cells(sweep), "at most 2×"],
            [f"cleanup of {episodes:,} episodes", *_cells(deletion), "at most 2×"],
        ],
    )


def _search_table(searches: dict[str, float]) -> Table:
    return Table(
        "A search during a sweep",
        f"Hybrid search of another tenant with {OTHER_TENANT_FACTS:,} facts, before the sweep and during it.",
        ["", "before p50, ms", "during p50, ms", "ratio", "goal"],
        [["search", *_cells(searches, 1000), "at most 2×"]],
    )


def _reembed_table(rates: dict[str, float], texts: int) -> Table:
    ratio = f"{rates['job'] / rates['bare']:.2f}"
    return Table(
        "Re-embedding",
        f"{texts:,} facts embedded again, against their texts through the bare model in batches of {_BATCH}.",
        ["", "bare, texts/s", "job, texts/s", "ratio", "goal"],
        [["throughput", f"{rates['bare']:.0f}", f"{rates['job']:.0f}", ratio, "at least 0.7"]],
    )


def _cells(measured: dict[str, Any], scale: float = 1) -> list[str]:
    bare, job = measured["bare"] * scale, measured["job"] * scale
    return [f"{bare:.1f}", f"{job:.1f}", f"{job / bare:.2f}×"]


async def _measure_sweep(butler: Butler, memory: Memory, owner: "asyncpg.Connection[Any]") -> dict[str, Any]:
    await age_facts(owner, ["bare", "job"])
    before = await _search_seconds(butler, memory, 40)
    statement = """update facts set metadata = metadata || '{"status": "fading"}' where tenant_id = 'bare'"""
    bare = await duration(owner.execute(statement, timeout=7200))
    await owner.execute("checkpoint")
    started = time.perf_counter()
    sweep = asyncio.create_task(decay_sweep.sweep(memory, caller_for("job", butler)))
    during: list[float] = []
    while not sweep.done():
        during += await _search_seconds(butler, memory, 5)
        await asyncio.sleep(0.05)
    result = await sweep
    job = time.perf_counter() - started
    assert result["facts_fading"] == result["facts_seen"], result
    searches = {"bare": statistics.median(before), "job": statistics.median(during)}
    return {"bare": bare, "job": job, "search": searches}


async def _search_seconds(butler: Butler, memory: Memory, repeats: int) -> list[float]:
    """Seconds of each search of the other tenant; the question's vector is cached before."""
    caller, rng, seconds = caller_for("bystander", butler), random.Random(5), []
    for _ in range(repeats):
        question = sentence(rng)
        await memory.embedder.embed(question)
        seconds.append(await duration(search(memory, caller, question, types=[MemoryType.FACT])))
    return seconds


async def _measure_cleanup(
    butler: Butler, memory: Memory, owner: "asyncpg.Connection[Any]", seeds: Vectors, episodes: int
) -> dict[str, float]:
    for tenant in ("bare", "job"):
        await insert_expired_episodes(memory, owner, tenant, seeds[0], episodes)
    statement = "delete from episodes where tenant_id = 'bare' and expires_at < now()"
    bare = await duration(owner.execute(statement, timeout=3600))
    started = time.perf_counter()
    result = await cleanup.clean_up(memory, caller_for("job", butler))
    job = time.perf_counter() - started
    assert result["expired_deleted"] == episodes, result
    return {"bare": bare, "job": job}


async def _measure_reembedding(
    butler: Butler, memory: Memory, owner: "asyncpg.Connection[Any]", home: Path, texts: int
) -> dict[str, float]:
    caller = caller_for("renewed", butler)
    rng = random.Random(2)
    contents = [sentence(rng) for _ in range(texts)]
    await owner.executemany(
        "insert into facts (tenant_id, subject, predicate, content, search_vector)"
        " values ('renewed', 'person', $1, $2, to_tsvector('english', $2))",
        [(f"note_{number}", content) for number, content in enumerate(contents)],
    )
    model = load_minilm(home / "models")
    full = sorted((f"person note_{number} {content}" for number, content in enumerate(contents)), key=len)
    batches = [full[start : start + _BATCH] for start in range(0, len(full), _BATCH)]
    bare = texts / await duration(asyncio.to_thread(lambda: [model.vectors(batch) for batch in batches]))
    started = time.perf_counter()
    result = await reembedding.reembed(memory, caller)
    job = texts / (time.perf_counter() - started)
    assert result["facts"] == texts, result
    return {"bare": bare, "job": job}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--facts", type=int, default=50_000, help="in each of two tenants")
    parser.add_argument("--episodes", type=int, default=100_000)
    parser.add_argument("--texts", type=int, default=3_000)
    asyncio.run(main(**vars(parser.parse_args())))
