"""Bench of stores: facts one at a time, from many clients at once, and by import."""

import argparse
import asyncio
import random
import statistics
import time
from dataclasses import replace
from pathlib import Path

from butlers.app import Butler
from butlers.caller import Caller
from butlers.modules.memory.config import HintsConfig
from butlers.modules.memory.domain.model import NewFact
from butlers.modules.memory.onnx_model import load_minilm
from butlers.modules.memory.operations import export_import
from butlers.modules.memory.runtime import Memory
from embedding import model_seconds
from harness import bench_butler, caller_for, durations, sentence, store_fact
from report import Report, Table

CLIENTS = 16
_KNOWN_FACTS = (0, 30, 300, 2_000)


async def main(count: int) -> None:
    """Measure and publish."""
    rng = random.Random(9)
    async with bench_butler() as (butler, memory, environment):
        caller = caller_for("bench", butler)
        model = load_minilm(environment.home / "models")
        slots = asyncio.Semaphore(CLIENTS)

        async def store(number: int) -> None:
            fact = NewFact(subject=f"person {number}", predicate="note", content=sentence(rng))
            async with slots:
                await store_fact(memory, caller, fact)

        await store(-1)
        embedding = statistics.median([model_seconds(model, [sentence(rng)]) for _ in range(100)])
        single = statistics.median(await durations(store, count))
        started = time.perf_counter()
        await asyncio.gather(*(store(count + number) for number in range(count * 4)))
        concurrent = count * 4 / (time.perf_counter() - started)
        imported = await _import_rate(memory, butler, environment.home / "out.jsonl")
        hints = [await _hints_ratio(memory, butler, known, count) for known in _KNOWN_FACTS]
    rows = [
        ["one after the other", f"{1 / single:.0f}", f"{single / embedding:.2f}× one embedding"],
        [f"{CLIENTS} at once", f"{concurrent:.0f}", f"{concurrent * single:.2f}× one after the other"],
        ["import", f"{imported:.0f}", f"{imported * single:.2f}× one after the other"],
    ]
    note = "New facts a second, each with its vector, its search vector and its event, in durable transactions."
    table = Table("Stores", note, ["", "facts a second", "ratio"], rows)
    hint_rows = [
        [f"{known:,}", f"{on * 1000:.2f}", f"{off * 1000:.2f}", f"{on / off:.2f}×"]
        for known, (on, off) in zip(_KNOWN_FACTS, hints, strict=True)
    ]
    hints_note = (
        "Milliseconds of one store about a subject with so many live facts, with and without the similar facts in "
        "its answer; the two take turns."
    )
    columns = ["facts about the subject", "with hints", "without", "ratio"]
    hints_table = Table("Hints", hints_note, columns, hint_rows)
    measured: dict[str, object] = {
        "hints_ratio": {str(known): on / off for known, (on, off) in zip(_KNOWN_FACTS, hints, strict=True)},
        "single_over_embedding": single / embedding,
        "together": concurrent,
        "bulk": imported,
    }
    Report("storing", "Stores", "The rate at which facts are stored.", measured, [table, hints_table]).publish()


async def _hints_ratio(memory: Memory, butler: Butler, known: int, count: int) -> tuple[float, float]:
    """The median seconds of a store with hints and without, about a subject with so many facts."""
    rng = random.Random(known)
    without = replace(memory, config=memory.config.model_copy(update={"hints": HintsConfig(enabled=False)}))
    variants = {"with": memory, "without": without}
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for name, variant in variants.items():
        for number in range(known):
            await _timed_store(variant, caller_for(f"{name}-{known}", butler), rng, "user", f"known_{number}")
    for number in range(count):
        for name, variant in variants.items():
            subject = "user" if known else f"person {number}"
            caller = caller_for(f"{name}-{known}", butler)
            # One key after the other: the number of live facts stays what it was.
            predicate = f"known_{number % known}" if known else "note"
            seconds[name].append(await _timed_store(variant, caller, rng, subject, predicate))
    return statistics.median(seconds["with"]), statistics.median(seconds["without"])


async def _timed_store(memory: Memory, caller: Caller, rng: random.Random, subject: str, predicate: str) -> float:
    fact = NewFact(subject=subject, predicate=predicate, content=sentence(rng))
    started = time.perf_counter()
    await store_fact(memory, caller, fact)
    return time.perf_counter() - started


async def _import_rate(memory: Memory, butler: Butler, path: Path) -> float:
    """Facts a second when a tenant's export is imported and its vectors are computed again."""
    with path.open("w", encoding="utf-8") as out:
        header = await export_import.export_tenant(memory, caller_for("bench", butler), out.write)
    started = time.perf_counter()
    with path.open("rb") as file:
        await export_import.import_file(memory, caller_for("copy", butler), file)
    return header.memories / (time.perf_counter() - started)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=400)
    asyncio.run(main(parser.parse_args().count))
