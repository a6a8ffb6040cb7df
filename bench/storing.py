"""How quickly memories are stored: one at a time, by many at once, and in bulk."""

import argparse
import asyncio
import random
import statistics
import time
from pathlib import Path

from butlers.app import Butler
from butlers.modules.memory.domain.model import NewFact
from butlers.modules.memory.onnx_model import OnnxModel, load_minilm
from butlers.modules.memory.operations import export_import, writing
from butlers.modules.memory.operations.idempotency import Request
from butlers.modules.memory.runtime import Memory
from report import Report, Table
from world import caller_of, sentence, timed, world

CLIENTS = 16


async def main(count: int) -> None:
    """Measure and keep."""
    rng = random.Random(9)
    async with world() as (butler, memory, environment):
        caller = caller_of("bench", butler)
        bare = load_minilm(environment.home / "models")

        async def store(number: int) -> None:
            fact = NewFact(subject=f"person {number}", predicate="note", content=sentence(rng))
            await writing.store_fact(memory, caller, fact, Request("bench", {}))

        await store(-1)
        embedding = statistics.median([_seconds(bare, sentence(rng)) for _ in range(100)])
        single = statistics.median(await timed(store, count))
        began = time.perf_counter()
        places = asyncio.Semaphore(CLIENTS)

        async def one(number: int) -> None:
            async with places:
                await store(number)

        await asyncio.gather(*(one(count + number) for number in range(count * 4)))
        together = count * 4 / (time.perf_counter() - began)
        bulk = await _bulk(memory, butler, environment.home / "out.jsonl")
    rows = [
        ["one after the other", f"{1 / single:.0f}", f"{single / embedding:.2f}× one embedding"],
        [f"{CLIENTS} at once", f"{together:.0f}", f"{together * single:.2f}× one after the other"],
        ["in bulk (import)", f"{bulk:.0f}", f"{bulk * single:.2f}× one after the other"],
    ]
    note = "New facts a second, each with its vector, its search vector and its event, in durable transactions."
    table = Table("Stores", note, ["", "facts a second", "ratio"], rows)
    measured: dict[str, object] = {"single_over_embedding": single / embedding, "together": together, "bulk": bulk}
    report = Report("storing", "Storing", "What it takes to remember.", measured, [table])
    report.save()
    print(report.markdown())


async def _bulk(memory: Memory, butler: Butler, path: Path) -> float:
    """Facts a second when a whole tenant is taken in, its vectors made anew."""
    with path.open("w", encoding="utf-8") as out:
        header = await export_import.export_tenant(memory, caller_of("bench", butler), out.write)
    began = time.perf_counter()
    with path.open("rb") as file:
        await export_import.import_file(memory, caller_of("copy", butler), file)
    return header.memories / (time.perf_counter() - began)


def _seconds(bare: OnnxModel, text: str) -> float:
    began = time.perf_counter()
    bare.vectors([text])
    return time.perf_counter() - began


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--count", type=int, default=400)
    asyncio.run(main(arguments.parse_args().count))
