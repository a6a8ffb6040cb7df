"""Bench of retrieval quality: questions with known answers, against exact cosine similarity and BM25.

A collection is two JSON Lines files. A memory: `{"space": ..., "id": ..., "content": ..., "subject": ...}`; a
question: `{"space": ..., "id": ..., "question": ..., "answers": [ids]}`. Each space has its own tenant, where its
memories are stored and its questions are asked. `space` and `subject` are optional. Memories with a `session` are
stored as episodes as well, in their order.
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
from functools import partial
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import bm25s
import numpy as np
import Stemmer

from butlers.caller import Caller
from butlers.modules.memory.domain.model import MemoryType, NewEpisode, NewFact, SearchMode
from butlers.modules.memory.operations import writing
from butlers.modules.memory.operations.idempotency import Request
from butlers.modules.memory.runtime import Memory
from harness import bench_butler, caller_for, recall, search, store_fact
from report import BENCH, Report, Table

DEPTHS = (5, 10, 20)
MAX_DEPTH = max(DEPTHS)
CONCURRENT_STORES = 8
FILES = ("memories.jsonl", "questions.jsonl")
Line = Mapping[str, Any]
Ranking = Sequence[str]
Retriever = Callable[[str], Awaitable[Ranking]]


@dataclass(frozen=True, slots=True)
class Space:
    """The memories and questions of one tenant."""

    name: str
    memories: Sequence[Line]
    questions: Sequence[Line]


def read_spaces(folder: Path) -> list[Space]:
    """The spaces of a collection."""
    memories, questions = (_read_by_space(folder / name) for name in FILES)
    return [Space(name, lines, questions.get(name, [])) for name, lines in memories.items()]


def _read_by_space(path: Path) -> dict[str, list[Line]]:
    spaces: dict[str, list[Line]] = defaultdict(list)
    for text in path.read_text(encoding="utf-8").splitlines():
        if text.strip():
            line = json.loads(text)
            spaces[line.get("space", "")].append(line)
    return spaces


def score(ranking: Ranking, answers: Sequence[str]) -> dict[str, float]:
    """Recall, MRR and nDCG of a ranking for a question with these answers."""
    relevant = set(answers)
    recalls = {f"recall@{depth}": len(relevant & set(ranking[:depth])) / len(relevant) for depth in DEPTHS}
    first = next((rank for rank, memory in enumerate(ranking[:MAX_DEPTH], 1) if memory in relevant), None)
    gain = sum(1 / math.log2(rank + 1) for rank, memory in enumerate(ranking[:10], 1) if memory in relevant)
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(len(relevant), 10) + 1))
    return {**recalls, "MRR": 1 / first if first else 0.0, "nDCG@10": gain / ideal}


async def store_memories(memory: Memory, caller: Caller, space: Space) -> dict[str, str]:
    """Store a space's memories as facts; returns the ids of the file by the ids of the facts."""
    slots = asyncio.Semaphore(CONCURRENT_STORES)

    async def store(line: Line) -> tuple[str, str]:
        fact = NewFact(subject=line.get("subject") or space.name, predicate=line["id"], content=line["content"])
        async with slots:
            stored = await store_fact(memory, caller, fact)
        return stored["id"], line["id"]

    return dict(await asyncio.gather(*(store(line) for line in space.memories)))


async def store_episodes(memory: Memory, caller: Caller, space: Space) -> dict[str, str]:
    """Store a space's memories as episodes of their sessions, one after the other: the order counts."""
    file_ids = {}
    for line in space.memories:
        session = uuid5(NAMESPACE_OID, f"{space.name} {line['session']}")
        text = f"{line['subject']}: {line['content']}" if line.get("subject") else line["content"]
        episode = NewEpisode(content=text, butler=memory.butler, session_id=session)
        stored = await writing.store_episode(memory, caller, episode, Request("bench", {}))
        file_ids[str(stored["id"])] = line["id"]
    return file_ids


def episode_retrievers(memory: Memory, caller: Caller, file_ids: Mapping[str, str]) -> dict[str, Retriever]:
    """The searches of episodes, by mode."""
    return {
        f"episodes, {mode.value}": _search_with(memory, caller, file_ids, MemoryType.EPISODE, mode)
        for mode in SearchMode
    }


def _search_with(
    memory: Memory, caller: Caller, file_ids: Mapping[str, str], memory_type: MemoryType, mode: SearchMode
) -> Retriever:
    async def retrieve(question: str) -> Ranking:
        results = await search(
            memory, caller, question, types=[memory_type], mode=mode, limit=MAX_DEPTH, min_confidence=0.0
        )
        return [file_ids[str(result["id"])] for result in results]

    return retrieve


async def retrievers(
    memory: Memory, caller: Caller, space: Space, file_ids: Mapping[str, str]
) -> dict[str, Retriever]:
    """The searches and recalls of the butler, and the baselines."""

    search_with = partial(_search_with, memory, caller, file_ids, MemoryType.FACT)

    def recall_with(mode: SearchMode) -> Retriever:
        retrieval = memory.config.retrieval.model_copy(update={"recall_mode": mode.value})
        configured = replace(memory, config=memory.config.model_copy(update={"retrieval": retrieval}))

        async def retrieve(question: str) -> Ranking:
            results = await recall(configured, caller, question, MAX_DEPTH)
            return [file_ids[str(result["id"])] for result in results]

        return retrieve

    return {
        "search, semantic": search_with(SearchMode.SEMANTIC),
        "search, keyword": search_with(SearchMode.KEYWORD),
        "search, hybrid": search_with(SearchMode.HYBRID),
        "search, blended": search_with(SearchMode.BLENDED),
        "recall": recall_with(SearchMode.HYBRID),
        "recall, blended": recall_with(SearchMode.BLENDED),
        "exact cosine": await _cosine(memory, space),
        "BM25": _bm25(space),
    }


async def _cosine(memory: Memory, space: Space) -> Retriever:
    """Exact cosine similarity of the content alone."""
    ids = [line["id"] for line in space.memories]
    vectors = np.asarray(await memory.embedder.embed_batch([line["content"] for line in space.memories]))

    async def retrieve(question: str) -> Ranking:
        similarities = vectors @ np.asarray(await memory.embedder.embed(question))
        return [ids[index] for index in np.argsort(-similarities)[:MAX_DEPTH]]

    return retrieve


def _bm25(space: Space) -> Retriever:
    ids = [line["id"] for line in space.memories]
    stemmer = Stemmer.Stemmer("english")
    bm25 = bm25s.BM25()
    bm25.index(
        bm25s.tokenize([line["content"] for line in space.memories], stemmer=stemmer, show_progress=False),
        show_progress=False,
    )

    async def retrieve(question: str) -> Ranking:
        words = bm25s.tokenize(question, stemmer=stemmer, show_progress=False)
        indexes, _ = bm25.retrieve(words, k=min(MAX_DEPTH, len(ids)), show_progress=False)
        return [ids[index] for index in indexes[0]]

    return retrieve


def collections() -> list[Path]:
    """The folders with both files: `questions`, and those in `BENCH_DATA` or `../shared/data`."""
    data = Path(os.environ.get("BENCH_DATA") or BENCH.parents[1] / "shared" / "data")
    folders = [BENCH / "questions", *(sorted(data.iterdir()) if data.is_dir() else [])]
    return [folder for folder in folders if all((folder / name).is_file() for name in FILES)]


async def main(folders: Sequence[Path]) -> None:
    """Measure and publish."""
    tables: list[Table] = []
    measured: dict[str, object] = {}
    for folder in folders:
        spaces = read_spaces(folder)
        means = await _mean_scores(spaces)
        measured[folder.name] = means
        tables.append(_table(folder.name, spaces, means))
    about = (
        "Memories are stored as facts with the defaults; questions are asked unchanged. Recall@k: the share of a "
        "question's answers that are among the first k results. The baselines see the content alone."
    )
    Report("quality", "Quality", about, measured, tables, plots=["quality.svg"]).publish()


async def _mean_scores(spaces: Sequence[Space]) -> dict[str, dict[str, float]]:
    """The mean of each score by the name of the retriever."""
    scores: dict[str, list[dict[str, float]]] = defaultdict(list)
    async with bench_butler("quality") as (butler, memory, _):
        for number, space in enumerate(spaces):
            print(f"{space.name}: {len(space.memories)} memories, {len(space.questions)} questions", file=sys.stderr)
            caller = caller_for(f"space-{number}", butler)
            file_ids = await store_memories(memory, caller, space)
            for name, retrieve in (await retrievers(memory, caller, space, file_ids)).items():
                for question in space.questions:
                    scores[name].append(score(await retrieve(question["question"]), question["answers"]))
            if all("session" in line for line in space.memories):
                episode_ids = await store_episodes(memory, caller, space)
                for name, retrieve in episode_retrievers(memory, caller, episode_ids).items():
                    for question in space.questions:
                        scores[name].append(score(await retrieve(question["question"]), question["answers"]))
    return {
        name: {measure: statistics.mean(row[measure] for row in rows) for measure in rows[0]}
        for name, rows in scores.items()
    }


def _table(name: str, spaces: Sequence[Space], means: dict[str, dict[str, float]]) -> Table:
    memories = sum(len(space.memories) for space in spaces)
    questions = sum(len(space.questions) for space in spaces)
    rows = [[retriever, *(f"{value:.1%}" for value in values.values())] for retriever, values in means.items()]
    note = f"{memories:,} memories in {len(spaces)} spaces, {questions:,} questions."
    return Table(f"Scores of the collection {name}", note, ["", *next(iter(means.values()))], rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="*", help="Folders with memories.jsonl and questions.jsonl.")
    asyncio.run(main(parser.parse_args().folders or collections()))
