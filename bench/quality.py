"""How well questions find the memories that answer them, beside an exact comparison of vectors and BM25.

Two files of JSON Lines. A memory: `{"space": ..., "id": ..., "content": ..., "subject": ...}`; a question:
`{"space": ..., "id": ..., "question": ..., "answers": [ids]}`. A space is a world of its own: its memories are stored
under a tenant of its own, and its questions are asked there. `space` and `subject` may be missing.
"""

import argparse
import asyncio
import json
import math
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
import Stemmer

from butlers.caller import Caller
from butlers.modules.memory.domain.model import MemoryType, NewFact, SearchMode
from butlers.modules.memory.operations import reading, writing
from butlers.modules.memory.operations.idempotency import Request
from butlers.modules.memory.runtime import Memory
from report import BENCH, Report, Table
from world import caller_of, world

DEPTHS = (5, 10, 20)
DEEPEST = max(DEPTHS)
AT_ONCE = 8
FILES = ("memories.jsonl", "questions.jsonl")
Line = Mapping[str, Any]
Way = Callable[[str], Awaitable[Sequence[str]]]
Ranking = Sequence[str]


@dataclass(frozen=True, slots=True)
class Space:
    """The memories of one world, and what is asked there."""

    name: str
    memories: Sequence[Line]
    questions: Sequence[Line]


def spaces(memories: Path, questions: Path) -> list[Space]:
    """The worlds two files speak of."""
    kept, asked = _by_space(memories), _by_space(questions)
    return [Space(name, lines, asked.get(name, [])) for name, lines in kept.items()]


def _by_space(path: Path) -> dict[str, list[Line]]:
    found: dict[str, list[Line]] = defaultdict(list)
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip():
            told = json.loads(line)
            found[told.get("space", "")].append(told)
    return found


def graded(ranking: Ranking, answers: Sequence[str]) -> dict[str, float]:
    """How good a ranking is for a question with these answers."""
    wanted = set(answers)
    grades = {f"recall@{depth}": len(wanted & set(ranking[:depth])) / len(wanted) for depth in DEPTHS}
    first = next((place for place, each in enumerate(ranking[:DEEPEST], 1) if each in wanted), None)
    gained = sum(1 / math.log2(place + 1) for place, each in enumerate(ranking[:10], 1) if each in wanted)
    ideal = sum(1 / math.log2(place + 1) for place in range(1, min(len(wanted), 10) + 1))
    return {**grades, "MRR": 1 / first if first else 0.0, "nDCG@10": gained / ideal}


async def store(memory: Memory, caller: Caller, space: Space) -> dict[str, str]:
    """Store a world's memories as facts; their ids there, and what they are called in the files."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(line: Line) -> tuple[str, str]:
        fact = NewFact(subject=line.get("subject") or space.name, predicate=line["id"], content=line["content"])
        async with places:
            stored = await writing.store_fact(memory, caller, fact, Request("bench", {}))
        return stored["id"], line["id"]

    return dict(await asyncio.gather(*(one(line) for line in space.memories)))


async def ways(memory: Memory, caller: Caller, space: Space, called: Mapping[str, str]) -> dict[str, Way]:
    """Every way to ask, ours and the baselines."""

    def searching(mode: SearchMode) -> Way:
        async def ask(question: str) -> Sequence[str]:
            found = await reading.search(
                memory,
                caller,
                question,
                types=[MemoryType.FACT],
                scope=None,
                mode=mode,
                limit=DEEPEST,
                min_confidence=0.0,
            )
            return [called[str(each["id"])] for each in found]

        return ask

    def recalling(mode: SearchMode) -> Way:
        retrieval = memory.config.retrieval.model_copy(update={"recall_mode": mode.value})
        configured = replace(memory, config=memory.config.model_copy(update={"retrieval": retrieval}))

        async def ask(question: str) -> Sequence[str]:
            kinds = (MemoryType.FACT, MemoryType.RULE)
            found = await reading.recall(configured, caller, question, scope=None, limit=DEEPEST, types=kinds)
            return [called[str(each["id"])] for each in found]

        return ask

    return {
        "search, semantic": searching(SearchMode.SEMANTIC),
        "search, keyword": searching(SearchMode.KEYWORD),
        "search, hybrid": searching(SearchMode.HYBRID),
        "search, blended": searching(SearchMode.BLENDED),
        "recall": recalling(SearchMode.HYBRID),
        "recall, blended": recalling(SearchMode.BLENDED),
        "exact cosine": await _cosine(memory, space),
        "BM25": _bm25(space),
    }


async def _cosine(memory: Memory, space: Space) -> Way:
    """Every vector compared, of the content alone."""
    ids = [line["id"] for line in space.memories]
    vectors = np.asarray(await memory.embedder.embed_batch([line["content"] for line in space.memories]))

    async def ask(question: str) -> Sequence[str]:
        near = vectors @ np.asarray(await memory.embedder.embed(question))
        return [ids[place] for place in np.argsort(-near)[:DEEPEST]]

    return ask


def _bm25(space: Space) -> Way:
    ids = [line["id"] for line in space.memories]
    stemmer = Stemmer.Stemmer("english")
    index = bm25s.BM25()
    index.index(
        bm25s.tokenize([line["content"] for line in space.memories], stemmer=stemmer, show_progress=False),
        show_progress=False,
    )

    async def ask(question: str) -> Sequence[str]:
        words = bm25s.tokenize(question, stemmer=stemmer, show_progress=False)
        found, _ = index.retrieve(words, k=min(DEEPEST, len(ids)), show_progress=False)
        return [ids[place] for place in found[0]]

    return ask


def collections() -> list[Path]:
    """The folder of our own, and those of `BENCH_DATA` (or of `../shared/data`) that have both files."""
    more = Path(os.environ.get("BENCH_DATA") or BENCH.parents[1] / "shared" / "data")
    folders = [BENCH / "questions", *(sorted(more.iterdir()) if more.is_dir() else [])]
    return [each for each in folders if all((each / name).is_file() for name in FILES)]


async def main(folders: Sequence[Path]) -> None:
    """Measure and keep."""
    tables: list[Table] = []
    measured: dict[str, object] = {}
    for folder in folders:
        worlds = spaces(*(folder / name for name in FILES))
        means = await _means(worlds)
        measured[folder.name] = means
        tables.append(_table(folder.name, worlds, means))
    about = (
        "Memories are stored as facts, all of them with the defaults, and questions are asked as they are. Recall@k: "
        "the share of the memories that answer a question which are among the first k. The baselines see the content "
        "alone."
    )
    report = Report("quality", "Quality", about, measured, tables, plots=["quality.svg"])
    report.save()
    print(report.markdown())


async def _means(worlds: Sequence[Space]) -> dict[str, dict[str, float]]:
    grades: dict[str, list[dict[str, float]]] = defaultdict(list)
    async with world("quality") as (butler, memory, _):
        for number, space in enumerate(worlds):
            print(f"{space.name}: {len(space.memories)} memories, {len(space.questions)} questions", file=sys.stderr)
            caller = caller_of(f"space-{number}", butler)
            called = await store(memory, caller, space)
            for name, ask in (await ways(memory, caller, space, called)).items():
                for question in space.questions:
                    grades[name].append(graded(await ask(question["question"]), question["answers"]))
    return {
        name: {measure: statistics.mean(each[measure] for each in many) for measure in many[0]}
        for name, many in grades.items()
    }


def _table(name: str, worlds: Sequence[Space], means: dict[str, dict[str, float]]) -> Table:
    count = sum(len(space.memories) for space in worlds)
    asked = sum(len(space.questions) for space in worlds)
    rows = [[way, *(f"{value:.1%}" for value in values.values())] for way, values in means.items()]
    note = f"{count:,} memories in {len(worlds)} spaces, {asked:,} questions."
    return Table(f"Questions that find their answers: {name}", note, ["", *next(iter(means.values()))], rows)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folders", type=Path, nargs="*", help="Folders with memories.jsonl and questions.jsonl.")
    asyncio.run(main(arguments.parse_args().folders or collections()))
