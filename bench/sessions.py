"""Bench of sessions: the time that memory adds to the start and end of each runtime."""

import argparse
import asyncio
import contextlib
import os
import random
import statistics
import sys
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
from butlers.modules.memory.runtime import Memory
from harness import bench_butler, duration, fill_facts, seed_vectors, sentence, store_fact
from report import Report, Table

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
import models  # noqa: E402 — the tests' model server

FACTS = 2_000
PROMPT = "Which tea should I order for breakfast with my sister?"


async def main(repeats: int) -> None:
    """Measure and publish."""
    rows: list[list[str]] = []
    measured: dict[str, object] = {}
    async with (
        bench_butler("sessions") as (butler, memory, environment),
        app.open_server(butler, with_jobs=False),
        _model_server(environment.home),
    ):
        caller = butler.caller()
        await _fill(butler, memory, caller)
        for name, runtime in _runtimes(butler.config.folder):
            bare, with_memory = await _measure(butler, runtime, caller, repeats)
            share = (with_memory - bare) / bare
            measured[name] = {"bare_seconds": bare, "with_memory_seconds": with_memory, "added_share": share}
            rows.append([name, f"{bare * 1000:.0f}", f"{with_memory * 1000:.0f}", f"{share:+.0%}"])
    table = Table(
        "A session without and with memory",
        f"Medians of {repeats} sessions in turns, with {FACTS:,} facts. Without: the runtime alone, started and "
        "ended. With: the record, the block of memories, the credential, the runtime, the episode. The model answers "
        "at once, so this is the minimum. The CLI is measured where the tests have installed it.",
        ["runtime", "runtime alone, ms", "with memory, ms", "added"],
        rows,
    )
    about = "The work of a butler before and after each session of its runtime."
    Report("sessions", "Sessions", about, measured, [table]).publish()


@contextlib.asynccontextmanager
async def _model_server(home: Path) -> AsyncIterator[None]:
    """A model server for the CLI that answers at once."""
    async with models.messages([models.writes("Darjeeling.")]) as model:
        variables = {"HOME": str(home), "ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "any"}
        os.environ.update(variables, CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1")
        yield


async def _fill(butler: Butler, memory: Memory, caller: Caller) -> None:
    rng = random.Random(4)
    await fill_facts(butler, memory, [(caller.tenant, FACTS)], await seed_vectors(memory, rng, 300), mixed=False)
    fact = NewFact(subject="user", predicate="tea", content=sentence(rng))
    await store_fact(memory, caller, fact)


def _runtimes(folder: Path) -> list[tuple[str, Runtime]]:
    """A program that does nothing, the Python interpreter, and the Claude Code CLI where it is installed."""
    runtimes: list[tuple[str, Runtime]] = [
        ("`true`", CommandRuntime(["true"], folder)),
        ("Python, started and ended", CommandRuntime([sys.executable, "-c", "pass"], folder)),
    ]
    cli = next(ROOT.glob(".cache/claude-code/node_modules/@anthropic-ai/claude-code-*/claude"), None)
    if cli is not None:
        runtimes.append(("Claude Code CLI", ClaudeRuntime([str(cli)])))
    return runtimes


async def _measure(butler: Butler, runtime: Runtime, caller: Caller, repeats: int) -> tuple[float, float]:
    """Median seconds of the runtime alone, and of a session with memory."""
    spawner = SessionSpawner(
        runtime, butler.database, 60, folder=butler.config.folder, config=butler.config.butler.sessions
    )
    spawner.local_client, spawner.gateway = butler.spawner.local_client, butler.spawner.gateway
    await spawner.spawn(caller, PROMPT, trigger_source="bench")
    bare, with_memory = [], []
    # They take turns, so that a busy machine slows both.
    for _ in range(repeats):
        bare.append(await duration(runtime.run(SessionTask(uuid4(), PROMPT, 60))))
        with_memory.append(await duration(spawner.spawn(caller, PROMPT, trigger_source="bench")))
    return statistics.median(bare), statistics.median(with_memory)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=10)
    asyncio.run(main(parser.parse_args().repeats))
