"""How far a call is from the limit: the whole over HTTP against its bare parts, in turns."""

import argparse
import asyncio
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

from butlers.app import Butler
from butlers.caller import Caller
from butlers.modules.memory.domain.model import MemoryType, NewFact, SearchMode
from butlers.modules.memory.onnx_model import OnnxModel, load_minilm
from butlers.modules.memory.operations import context, reading, writing
from butlers.modules.memory.operations.idempotency import Request
from butlers.modules.memory.runtime import Memory
from report import Report, Table
from statements import Statement, plain_connection, recorded, replay
from world import Call, caller_of, empty_server, fill, seed_vectors, sentence, served, world

TENANT = "lone"
FACTS = 10_000
GOAL = 1.5
KINDS = (MemoryType.FACT, MemoryType.RULE)
Arguments = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Operation:
    """A tool, how it is called from outside, and the same below the protocol."""

    tool: str
    arguments: Callable[[str], Arguments]
    below: Callable[[str], Awaitable[object]]


def operations(memory: Memory, caller: Caller) -> list[Operation]:
    """What an agent does all day."""

    def fact(text: str) -> NewFact:
        return NewFact(subject=text[:40], predicate="note", content=text)

    async def search(text: str) -> object:
        return await reading.search(
            memory,
            caller,
            text,
            types=tuple(MemoryType),
            scope=None,
            mode=SearchMode.HYBRID,
            limit=10,
            min_confidence=0.2,
        )

    return [
        Operation(
            "memory_store_fact",
            lambda text: {"subject": text[:40], "predicate": "note", "content": text},
            lambda text: writing.store_fact(memory, caller, fact(text), Request("bench", {})),
        ),
        Operation("memory_search", lambda text: {"query": text}, search),
        Operation(
            "memory_recall",
            lambda text: {"topic": text},
            lambda text: reading.recall(memory, caller, text, scope=None, limit=10, types=KINDS),
        ),
        Operation(
            "memory_context",
            lambda text: {"trigger_prompt": text, "butler": "bench"},
            lambda text: context.build_context(memory, caller, text, "bench", token_budget=None),
        ),
    ]


async def main(repeats: int) -> None:
    """Measure and keep."""
    rng = random.Random(21)
    async with world(tenant=TENANT) as (butler, memory, environment):
        caller = caller_of(TENANT, butler)
        seeds = await seed_vectors(memory, rng, 1_000)
        await fill(butler, memory, [(TENANT, FACTS)], seeds, mixed=False)
        works = operations(memory, caller)
        sent = {work.tool: await _sent(butler, work, rng, repeats) for work in works}
        bare = load_minilm(environment.home / "models")
        async with served(butler) as call, empty_server() as empty:
            taken = await _in_turns(butler, works, sent, bare, call, empty, rng, repeats)
    tables, measured = _told(taken, {tool: len(calls[0]) for tool, calls in sent.items()})
    about = (
        f"{FACTS:,} facts of one tenant, {repeats} calls of each kind in turns with the parts, a new text every "
        "time. The parts: the tokenizer and one run of the model; the call's own statements, recorded and sent again "
        "on a bare connection; an MCP server with one empty tool, called by the same client."
    )
    report = Report("limits", "The limit", about, measured, tables, plots=["limits.svg"])
    report.save()
    print(report.markdown())


async def _sent(butler: Butler, work: Operation, rng: random.Random, repeats: int) -> list[list[Statement]]:
    """The statements of so many calls; what they stored is taken out again."""
    await work.below(sentence(rng))
    calls = []
    for _ in range(repeats):
        async with recorded(butler.database) as said:
            await work.below(sentence(rng))
        calls.append(said)
    if work.tool == "memory_store_fact":
        owner = await asyncpg.connect(butler.place.admin_dsn)
        await owner.execute("delete from facts where tenant_id = $1 and predicate = 'note'", TENANT)
        await owner.execute("vacuum analyze facts")
        await owner.close()
    return calls


async def _in_turns(
    butler: Butler,
    works: Sequence[Operation],
    sent: dict[str, list[list[Statement]]],
    bare: OnnxModel,
    call: Call,
    empty: Call,
    rng: random.Random,
    repeats: int,
) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = defaultdict(list)

    async def note(name: str, work: Awaitable[object]) -> None:
        began = time.perf_counter()
        await work
        taken[name].append(time.perf_counter() - began)

    async def infer(text: str) -> None:
        bare.vectors([text])

    async with plain_connection(butler) as connection:
        for number in range(-3, repeats):
            if number == 0:
                taken.clear()
            await note("model", infer(sentence(rng)))
            await note("protocol", empty("nothing", {"query": sentence(rng)}))
            for work in works:
                if number >= 0:
                    await note(f"sql {work.tool}", replay(connection, sent[work.tool][number]))
                await note(work.tool, call(work.tool, work.arguments(sentence(rng))))
    return taken


def _told(taken: dict[str, list[float]], statements: dict[str, int]) -> tuple[list[Table], dict[str, object]]:
    typical = {name: statistics.median(times) * 1000 for name, times in taken.items()}
    rows, measured = [], {}
    for tool, count in statements.items():
        parts = {"model": typical["model"], "SQL": typical[f"sql {tool}"], "protocol": typical["protocol"]}
        whole, ratio = typical[tool], typical[tool] / sum(parts.values())
        measured[tool] = {**parts, "whole": whole, "ratio": ratio, "statements": count}
        rows.append([tool, *(f"{part:.1f}" for part in parts.values()), f"{whole:.1f}", f"{ratio:.2f}×", str(count)])
    columns = ["", "model, ms", "SQL, ms", "protocol, ms", "whole, ms", f"ratio (goal {GOAL}×)", "statements"]
    note = "Medians. The ratio is the whole against the sum of its parts."
    return [Table("A call over HTTP against its parts", note, columns, rows)], dict(measured)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--repeats", type=int, default=60)
    asyncio.run(main(arguments.parse_args().repeats))
