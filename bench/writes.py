"""Bench of stores: facts one at a time, from many clients at once, and by import."""

import argparse
import asyncio
import random
import statistics
import time
from pathlib import Path

from butlers.app import Butler
from butlers.modules.memory.domain.model import NewFact
from butlers.modules.memory.onnx_model import load_minilm
from butlers.modules.memory.operations import export_import
from butlers.modules.memory.runtime import Memory
from embedding import model_seconds
from harness import bench_butler, caller_for, durations, sentence, store_fact
from report import Report, Table

CLIENTS = 16


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
    rows = [
        ["one after the other", f"{1 / single:.0f}", f"{single / embedding:.2f}× one embedding"],
        [f"{CLIENTS} at once", f"{concurrent:.0f}", f"{concurrent * single:.2f}× one after the other"],
        ["import", f"{imported:.0f}", f"{imported * single:.2f}× one after the other"],
    ]
    note = "New facts a second, each with its vector, its search vector and its event, in durable transactions."
    table = Table("Stores", note, ["", "facts a second", "ratio"], rows)
    measured: dict[str, object] = {
        "single_over_embedding": single / embedding,
        "together": concurrent,
        "bulk": imported,
    }
    Report("storing", "Stores", "The rate at which facts are stored.", measured, [table]).publish()


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
