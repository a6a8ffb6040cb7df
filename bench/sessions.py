"""What memory adds to a session: the block before, the episode after, against the runtime's own start."""

import argparse
import asyncio
import contextlib
import os
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

from butlers import app
from butlers.app import Butler
from butlers.caller import Caller
from butlers.host.runtimes.claude import ClaudeRuntime
from butlers.host.runtimes.command import CommandRuntime
from butlers.host.runtimes.runtime import Runtime, SessionTask
from butlers.host.spawner import SessionSpawner
from butlers.modules.memory.domain.model import NewFact
from butlers.modules.memory.operations import writing
from butlers.modules.memory.operations.idempotency import Request
from butlers.modules.memory.runtime import Memory
from report import Report, Table
from world import fill, seed_vectors, sentence, world

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
import models  # noqa: E402 — the tests' stand-in for a model

FACTS = 2_000
PROMPT = "Which tea should I order for breakfast with my sister?"


async def main(repeats: int) -> None:
    """Measure and keep."""
    rows: list[list[str]] = []
    measured: dict[str, object] = {}
    async with (
        world("sessions") as (butler, memory, environment),
        app.open_server(butler, by_the_clock=False),
        _model(environment.home),
    ):
        caller = butler.caller()
        await _lived(butler, memory, caller)
        for name, runtime in _runtimes(butler.config.folder):
            bare, around = await _timed(butler, runtime, caller, repeats)
            share = (around - bare) / bare
            measured[name] = {"bare_seconds": bare, "with_memory_seconds": around, "added_share": share}
            rows.append([name, f"{bare * 1000:.0f}", f"{around * 1000:.0f}", f"{share:+.0%}"])
    table = Table(
        "A session, without and with memory around it",
        f"Medians of {repeats} sessions in turns, with {FACTS:,} facts. Without: the runtime alone, started "
        "and ended. With: the record, the block of memories, the credential, the runtime, the episode. The model "
        "answers at once, so this is the least it takes. The CLI is measured where the tests have installed it.",
        ["runtime", "alone, ms", "with memory, ms", "added"],
        rows,
    )
    about = "What a butler does around each session of its runtime."
    report = Report("sessions", "Sessions", about, measured, [table])
    report.save()
    print(report.markdown())


@contextlib.asynccontextmanager
async def _model(home: Path) -> AsyncIterator[None]:
    """A stand-in for the model the CLI asks, which answers at once."""
    async with models.messages([models.writes("Darjeeling.")]) as model:
        told = {"HOME": str(home), "ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "any"}
        os.environ.update(told, CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1")
        yield


async def _lived(butler: Butler, memory: Memory, caller: Caller) -> None:
    rng = random.Random(4)
    await fill(butler, memory, [(caller.tenant, FACTS)], await seed_vectors(memory, rng, 300), mixed=False)
    fact = NewFact(subject="user", predicate="tea", content=sentence(rng))
    await writing.store_fact(memory, caller, fact, Request("bench", {}))


def _runtimes(folder: Path) -> list[tuple[str, Runtime]]:
    """A program that does nothing, an interpreter that starts, and the real CLI where it is installed."""
    found: list[tuple[str, Runtime]] = [
        ("`true`", CommandRuntime(["true"], folder)),
        ("Python, started and ended", CommandRuntime([sys.executable, "-c", "pass"], folder)),
    ]
    cli = next(ROOT.glob(".cache/claude-code/node_modules/@anthropic-ai/claude-code-*/claude"), None)
    if cli is not None:
        found.append(("Claude Code CLI", ClaudeRuntime([str(cli)])))
    return found


async def _timed(butler: Butler, runtime: Runtime, caller: Caller, repeats: int) -> tuple[float, float]:
    around = SessionSpawner(
        runtime, butler.database, 60, folder=butler.config.folder, config=butler.config.butler.sessions
    )
    around.own, around.desk = butler.spawner.own, butler.spawner.desk
    await around.spawn(caller, PROMPT, trigger_source="bench")
    alone, whole = [], []
    # In turns: whatever else the machine does then slows both down alike.
    for _ in range(repeats):
        began = time.perf_counter()
        await runtime.run(SessionTask(uuid4(), PROMPT, 60))
        alone.append(time.perf_counter() - began)
        began = time.perf_counter()
        await around.spawn(caller, PROMPT, trigger_source="bench")
        whole.append(time.perf_counter() - began)
    return statistics.median(alone), statistics.median(whole)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--repeats", type=int, default=10)
    asyncio.run(main(arguments.parse_args().repeats))
