"""Bench of the embedding engine against the bare model, for one caller and for many at once."""

import argparse
import asyncio
import os
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from butlers.modules.memory import minilm
from butlers.modules.memory.embedding import EmbeddingEngine
from butlers.modules.memory.onnx_model import OnnxModel, load_minilm
from harness import duration, sentence
from report import Report, Table, milliseconds

CALLERS = 16


async def main(repeats: int) -> None:
    """Measure and publish."""
    cache = Path(tempfile.gettempdir()) / "butlers-bench-models"
    engine = EmbeddingEngine(cache)
    await engine.ready()
    started = time.perf_counter()
    model = load_minilm(cache)
    load_seconds = time.perf_counter() - started
    rng = random.Random(3)

    single, single_bare = [], []
    # Engine and model take turns, so that a busy machine slows both.
    for _ in range(repeats):
        single_bare.append(model_seconds(model, [sentence(rng)]))
        single.append(await duration(engine.embed(sentence(rng))))
    batched, batched_bare = [], []
    for _ in range(max(3, repeats // 10)):
        batched_bare.append(model_seconds(model, [sentence(rng) for _ in range(CALLERS)]) / CALLERS)
        together = asyncio.gather(*(engine.embed(sentence(rng)) for _ in range(CALLERS)))
        batched.append(await duration(together) / CALLERS)

    one, one_bare = statistics.median(single), statistics.median(single_bare)
    many, many_bare = statistics.median(batched), statistics.median(batched_bare)
    rows = [
        ["one text, one caller", _ms(one_bare), _ms(one), f"{one / one_bare:.2f}×", "at most 1.3×"],
        [
            f"one text, {CALLERS} callers at once",
            _ms(many_bare),
            _ms(many),
            f"{many_bare / many:.2f}",
            "at least 0.8",
        ],
        ["batched against single, bare", _ms(one_bare), _ms(many_bare), f"{one_bare / many_bare:.2f}×", ""],
    ]
    table = Table(
        "The vector of a short text",
        "Bare: the tokenizer and one run of the ONNX session in the same process. "
        f"Loading the model takes {load_seconds:.2f} s, once, at first use.",
        ["", "bare, ms", "engine, ms", "ratio", "goal"],
        rows,
    )
    measured = {
        "single": one / one_bare,
        "concurrent_throughput": many_bare / many,
        "model": f"{minilm.MODEL} {minilm.VERSION}",
        "cores": os.cpu_count(),
    }
    about = "`embed` batches the calls that arrive while the model is busy. The bench measures its cost and its gain."
    Report("embedding", "Embedding", about, measured, [table]).publish()


def model_seconds(model: OnnxModel, texts: Sequence[str]) -> float:
    """Seconds of one run of the bare model."""
    started = time.perf_counter()
    model.vectors(texts)
    return time.perf_counter() - started


def _ms(seconds: float) -> str:
    return milliseconds(seconds, 2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=200)
    asyncio.run(main(parser.parse_args().repeats))
