"""Bench of overhead: tool calls over HTTP against the sum of their parts (model, SQL, protocol)."""

import argparse
import asyncio
import random
import statistics
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

from butlers.app import Butler
from butlers.caller import Caller
from butlers.modules.memory.domain.model import NewFact
from butlers.modules.memory.onnx_model import OnnxModel, load_minilm
from butlers.modules.memory.operations import context
from butlers.modules.memory.runtime import Memory
from harness import (
    ToolCall,
    bench_butler,
    caller_for,
    duration,
    empty_server,
    fill_facts,
    http_butler,
    recall,
    search,
    seed_vectors,
    sentence,
    store_fact,
)
from report import Report, Table
from statements import Statement, plain_connection, record_statements, replay

TENANT = "lone"
FACTS = 10_000
GOAL = 1.5
Arguments = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Operation:
    """A tool with its arguments over HTTP, and the same operation below the protocol."""

    tool: str
    arguments: Callable[[str], Arguments]
    run: Callable[[str], Awaitable[object]]


def operations(memory: Memory, caller: Caller) -> list[Operation]:
    """The operations an agent uses most."""

    def fact(text: str) -> NewFact:
        return NewFact(subject=text[:40], predicate="note", content=text)

    return [
        Operation(
            "memory_store_fact",
            lambda text: {"subject": text[:40], "predicate": "note", "content": text},
            lambda text: store_fact(memory, caller, fact(text)),
        ),
        Operation("memory_search", lambda text: {"query": text}, lambda text: search(memory, caller, text)),
        Operation("memory_recall", lambda text: {"topic": text}, lambda text: recall(memory, caller, text)),
        Operation(
            "memory_context",
            lambda text: {"trigger_prompt": text, "butler": "bench"},
            lambda text: context.build_context(memory, caller, text, "bench", token_budget=None),
        ),
    ]


async def main(repeats: int) -> None:
    """Measure and publish."""
    rng = random.Random(21)
    async with bench_butler(tenant=TENANT) as (butler, memory, environment):
        caller = caller_for(TENANT, butler)
        seeds = await seed_vectors(memory, rng, 1_000)
        await fill_facts(butler, memory, [(TENANT, FACTS)], seeds, mixed=False)
        tools = operations(memory, caller)
        recorded = {tool.tool: await _record(butler, tool, rng, repeats) for tool in tools}
        model = load_minilm(environment.home / "models")
        async with http_butler(butler) as call, empty_server() as empty:
            seconds = await _measure(butler, tools, recorded, model, call, empty, rng, repeats)
    table, measured = _summarize(seconds, {tool: len(calls[0]) for tool, calls in recorded.items()})
    about = (
        f"{FACTS:,} facts of one tenant. {repeats} calls of each tool take turns with the parts, with a new text "
        "every time. The parts: the tokenizer and one run of the model; the statements of the call, recorded and "
        "sent again on a plain connection; an MCP server with one empty tool, called by the same client."
    )
    Report("limits", "Overhead of a call", about, measured, [table], plots=["limits.svg"]).publish()


async def _record(butler: Butler, operation: Operation, rng: random.Random, repeats: int) -> list[list[Statement]]:
    """The statements of each call; the stored facts are deleted again."""
    await operation.run(sentence(rng))
    calls = []
    for _ in range(repeats):
        async with record_statements(butler.database) as statements:
            await operation.run(sentence(rng))
        calls.append(statements)
    if operation.tool == "memory_store_fact":
        owner = await asyncpg.connect(butler.location.admin_dsn)
        await owner.execute("delete from facts where tenant_id = $1 and predicate = 'note'", TENANT)
        await owner.execute("vacuum analyze facts")
        await owner.close()
    return calls


async def _measure(
    butler: Butler,
    tools: Sequence[Operation],
    recorded: dict[str, list[list[Statement]]],
    model: OnnxModel,
    call: ToolCall,
    empty: ToolCall,
    rng: random.Random,
    repeats: int,
) -> dict[str, list[float]]:
    """Seconds of each call and of each part; they take turns, so that a busy machine slows all of them."""
    seconds: dict[str, list[float]] = defaultdict(list)

    async def infer(text: str) -> None:
        model.vectors([text])

    async with plain_connection(butler) as connection:
        for number in range(-3, repeats):
            if number == 0:
                seconds.clear()
            seconds["model"].append(await duration(infer(sentence(rng))))
            seconds["protocol"].append(await duration(empty("nothing", {"query": sentence(rng)})))
            for tool in tools:
                name = tool.tool
                if number >= 0:
                    seconds[f"sql {name}"].append(await duration(replay(connection, recorded[name][number])))
                seconds[name].append(await duration(call(name, tool.arguments(sentence(rng)))))
    return seconds


def _summarize(seconds: dict[str, list[float]], statements: dict[str, int]) -> tuple[Table, dict[str, object]]:
    medians = {name: statistics.median(samples) * 1000 for name, samples in seconds.items()}
    rows, measured = [], {}
    for tool, count in statements.items():
        parts = {"model": medians["model"], "SQL": medians[f"sql {tool}"], "protocol": medians["protocol"]}
        total, ratio = medians[tool], medians[tool] / sum(parts.values())
        measured[tool] = {**parts, "whole": total, "ratio": ratio, "statements": count}
        rows.append([tool, *(f"{part:.1f}" for part in parts.values()), f"{total:.1f}", f"{ratio:.2f}×", str(count)])
    columns = ["", "model, ms", "SQL, ms", "protocol, ms", "call, ms", f"ratio (goal {GOAL}×)", "statements"]
    note = "Medians. The ratio is that of the call to the sum of its parts."
    return Table("A call over HTTP against its parts", note, columns, rows), dict(measured)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=60)
    asyncio.run(main(parser.parse_args().repeats))
