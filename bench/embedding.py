"""What the embedding engine adds to the bare model, for one caller and for many at once."""

import argparse
import asyncio
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from butlers.modules.memory import minilm
from butlers.modules.memory.embedding import EmbeddingEngine
from butlers.modules.memory.onnx_model import load_minilm
from report import Report, Table
from world import sentence

CALLERS = 16


async def main(repeats: int) -> None:
    """Measure and keep."""
    cache = Path(tempfile.gettempdir()) / "butlers-bench-models"
    engine = EmbeddingEngine(cache)
    await engine.ready()
    bare = load_minilm(cache)
    rng = random.Random(3)
    loaded = _seconds(lambda: load_minilm(cache), 3)

    single, direct = [], []
    # In turns: whatever else the machine does then slows both down alike.
    for _ in range(repeats):
        text = sentence(rng)
        direct.append(_seconds(lambda text=text: bare.vectors([text]), 1))  # type: ignore[misc]
        single.append(await _awaited(engine, sentence(rng)))
    together, batches = [], []
    for _ in range(max(3, repeats // 10)):
        texts = [sentence(rng) for _ in range(CALLERS)]
        batches.append(_seconds(lambda texts=texts: bare.vectors(texts), 1) / CALLERS)  # type: ignore[misc]
        began = time.perf_counter()
        await asyncio.gather(*(engine.embed(sentence(rng)) for _ in range(CALLERS)))
        together.append((time.perf_counter() - began) / CALLERS)

    one, one_bare = statistics.median(single), statistics.median(direct)
    many, many_bare = statistics.median(together), statistics.median(batches)
    rows = [
        ["one text, one caller", _ms(one_bare), _ms(one), f"{one / one_bare:.2f}×", "at most 1.3×"],
        [f"a text, {CALLERS} callers at once", _ms(many_bare), _ms(many), f"{many_bare / many:.2f}", "at least 0.8"],
        ["batched against single, bare", _ms(one_bare), _ms(many_bare), f"{one_bare / many_bare:.2f}×", ""],
    ]
    table = Table(
        "A short text's vector",
        "The bare part is the tokenizer and one run of the ONNX session in the same process; the last column is what "
        f"the ratio should keep to. Loading the model takes {loaded:.2f} s, once, when it is first needed.",
        ["", "bare, ms", "engine, ms", "ratio", "goal"],
        rows,
    )
    measured = {
        "single": one / one_bare,
        "concurrent_throughput": many_bare / many,
        "model": f"{minilm.MODEL} {minilm.VERSION}",
        "cores": os.cpu_count(),
    }
    about = "`embed` gathers calls that come while the model is busy into one run; this is what that costs and gains."
    report = Report("embedding", "Embedding", about, measured, [table])
    report.save()
    print(report.markdown())


async def _awaited(engine: EmbeddingEngine, text: str) -> float:
    began = time.perf_counter()
    await engine.embed(text)
    return time.perf_counter() - began


def _seconds(work: Callable[[], object], times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - began) / times


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f}"


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--repeats", type=int, default=200)
    asyncio.run(main(arguments.parse_args().repeats))
