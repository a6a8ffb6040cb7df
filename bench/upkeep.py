"""What looking after a memory costs: the sweep, the cleanup and re-embedding, each against its bare part."""

import argparse
import asyncio
import random
import statistics
import time
from typing import Any

import asyncpg
import numpy as np

from butlers.app import Butler
from butlers.modules.memory.domain.model import MemoryType, SearchMode
from butlers.modules.memory.onnx_model import load_minilm
from butlers.modules.memory.operations import cleanup, decay_sweep, reading, reembedding
from butlers.modules.memory.runtime import Memory
from report import Report, Table
from world import aged, caller_of, expired_episodes, fill, seed_vectors, sentence, world

BYSTANDERS = 2_000
MILLION = 1_000_000
_AFTERWARDS = (
    " The cleanup and the re-embedding were measured right after two million facts had been made old and swept; what "
    'they take without that is under "Upkeep".'
)


async def main(facts: int, episodes: int, texts: int) -> None:
    """Measure and keep."""
    async with world("upkeep") as (butler, memory, environment):
        owner = await asyncpg.connect(butler.place.admin_dsn)
        rng = random.Random(11)
        seeds = await seed_vectors(memory, rng, 500)
        tenants = [("bare", facts), ("ours", facts), ("bystander", BYSTANDERS)]
        taken = await fill(butler, memory, tenants, seeds, mixed=False)
        print(f"filled with {2 * facts} facts in {taken:.0f} s", flush=True)
        sweeping = await _sweep(butler, memory, owner)
        cleaning = await _cleanup(butler, memory, owner, seeds, episodes)
        renewing = await _reembed(butler, memory, owner, environment.home, texts)
        await owner.close()
    rows = [
        [f"sweep of {facts:,} facts, all to fading", *_row(sweeping), "at most 2×"],
        [f"cleanup of {episodes:,} episodes", *_row(cleaning), "at most 2×"],
    ]
    work = Table(
        "Against one bare statement",
        "The bare part is one UPDATE or DELETE of as many rows of the same table, without events. "
        "Ours goes in batches, guards the state each row leaves and writes an event for each.",
        ["", "bare, s", "ours, s", "ratio", "goal"],
        rows,
    )
    searches = Table(
        "A search beside a sweep",
        f"Hybrid search of another tenant with {BYSTANDERS:,} facts, before the sweep and while it runs.",
        ["", "usual p50, ms", "beside it p50, ms", "ratio", "goal"],
        [["search", *_row(sweeping["search"], 1000), "at most 2×"]],
    )
    throughput = Table(
        "Re-embedding",
        f"{texts:,} facts embedded anew, against their texts through the bare model in batches of 32.",
        ["", "bare, texts/s", "ours, texts/s", "ratio", "goal"],
        [
            [
                "throughput",
                f"{renewing['bare']:.0f}",
                f"{renewing['ours']:.0f}",
                f"{renewing['ours'] / renewing['bare']:.2f}",
                "at least 0.7",
            ]
        ],
    )
    measured = {
        "sweep": sweeping["ours"] / sweeping["bare"],
        "search_beside_sweep": sweeping["search"]["ours"] / sweeping["search"]["bare"],
        "cleanup": cleaning["ours"] / cleaning["bare"],
        "reembedding": renewing["ours"] / renewing["bare"],
        "facts": facts,
        "episodes": episodes,
    }
    about = (
        "Jobs that go through whole tables, measured against what PostgreSQL or the model takes for the bare work."
    )
    large = facts >= MILLION
    name, title = ("million", "Upkeep of a million") if large else ("upkeep", "Upkeep")
    about += _AFTERWARDS if large else ""
    report = Report(name, title, about, measured, [work, searches, throughput])
    report.save()
    print(report.markdown())


def _row(measured: dict[str, Any], scale: float = 1) -> list[str]:
    bare, ours = measured["bare"] * scale, measured["ours"] * scale
    return [f"{bare:.1f}", f"{ours:.1f}", f"{ours / bare:.2f}×"]


async def _sweep(butler: Butler, memory: Memory, owner: "asyncpg.Connection[Any]") -> dict[str, Any]:
    await aged(owner, ["bare", "ours"])
    usual = await _searches(butler, memory, 40)
    started = time.perf_counter()
    await owner.execute(
        """update facts set metadata = metadata || '{"status": "fading"}' where tenant_id = 'bare'""", timeout=7200
    )
    bare = time.perf_counter() - started
    await owner.execute("checkpoint")
    ours_of = caller_of("ours", butler)
    started = time.perf_counter()
    sweeping = asyncio.create_task(decay_sweep.sweep(memory, ours_of))
    beside: list[float] = []
    while not sweeping.done():
        beside += await _searches(butler, memory, 5)
        await asyncio.sleep(0.05)
    done = await sweeping
    ours = time.perf_counter() - started
    assert done["facts_fading"] == done["facts_seen"], done
    search = {"bare": statistics.median(usual), "ours": statistics.median(beside)}
    return {"bare": bare, "ours": ours, "search": search}


async def _searches(butler: Butler, memory: Memory, times: int) -> list[float]:
    caller, rng, taken = caller_of("bystander", butler), random.Random(5), []
    for _ in range(times):
        question = sentence(rng)
        await memory.embedder.embed(question)
        started = time.perf_counter()
        await reading.search(
            memory,
            caller,
            question,
            types=[MemoryType.FACT],
            scope=None,
            mode=SearchMode.HYBRID,
            limit=10,
            min_confidence=0.2,
        )
        taken.append(time.perf_counter() - started)
    return taken


async def _cleanup(
    butler: Butler, memory: Memory, owner: "asyncpg.Connection[Any]", seeds: "np.ndarray[Any, Any]", episodes: int
) -> dict[str, float]:
    for tenant in ("bare", "ours"):
        await expired_episodes(memory, owner, tenant, seeds[0], episodes)
    started = time.perf_counter()
    await owner.execute("delete from episodes where tenant_id = 'bare' and expires_at < now()", timeout=3600)
    bare = time.perf_counter() - started
    started = time.perf_counter()
    done = await cleanup.clean_up(memory, caller_of("ours", butler))
    ours = time.perf_counter() - started
    assert done["expired_deleted"] == episodes, done
    return {"bare": bare, "ours": ours}


async def _reembed(
    butler: Butler, memory: Memory, owner: "asyncpg.Connection[Any]", home: Any, texts: int
) -> dict[str, float]:
    caller = caller_of("renewed", butler)
    rng = random.Random(2)
    contents = [sentence(rng) for _ in range(texts)]
    await owner.executemany(
        "insert into facts (tenant_id, subject, predicate, content, search_vector)"
        " values ('renewed', 'person', $1, $2, to_tsvector('english', $2))",
        [(f"note_{place}", content) for place, content in enumerate(contents)],
    )
    model = load_minilm(home / "models")
    said = sorted((f"person note_{place} {content}" for place, content in enumerate(contents)), key=len)
    started = time.perf_counter()
    await asyncio.to_thread(lambda: [model.vectors(said[at : at + 32]) for at in range(0, len(said), 32)])
    bare = texts / (time.perf_counter() - started)
    started = time.perf_counter()
    done = await reembedding.reembed(memory, caller)
    ours = texts / (time.perf_counter() - started)
    assert done["facts"] == texts, done
    return {"bare": bare, "ours": ours}


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--facts", type=int, default=50_000, help="in each of two tenants")
    arguments.add_argument("--episodes", type=int, default=100_000)
    arguments.add_argument("--texts", type=int, default=3_000)
    asyncio.run(main(**vars(arguments.parse_args())))
