"""Bench of match bands: what strong, fair and weak say on questions with and without an answer.

The collections are those of the bench of quality. A question is unanswerable if its category is adversarial (its
words fit, but about somebody else) or if it is asked in another space (a foreign question). `--calibrate` also prints
how often a result answers its question, by its fit: the bounds of the bands are read off that.
"""

import argparse
import asyncio
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from butlers.caller import Caller
from butlers.modules.memory.domain.matching import Match, fit_of, match_of
from butlers.modules.memory.domain.model import MemoryType, SearchMode
from butlers.modules.memory.runtime import Memory
from harness import bench_butler, caller_for, search
from quality import Line, Space, collections, read_spaces, store_memories
from report import Report, Table

SHOWN = 3
"""Results that somebody looks at."""
FOREIGN_QUESTIONS = 100
ADVERSARIAL = "adversarial"
STEP = 0.05


@dataclass(frozen=True, slots=True)
class Result:
    """A result of a question: how well it fits, and whether it answers."""

    similarity: float
    coverage: float
    is_answer: bool

    @property
    def match(self) -> Match:
        """Its band."""
        return match_of(self.similarity, self.coverage)


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its first results."""

    kind: str
    results: Sequence[Result]

    def has(self, *bands: Match) -> bool:
        """Whether one of the results is in one of the bands."""
        return any(result.match in bands for result in self.results)

    def has_answer(self, *bands: Match) -> bool:
        """Whether one of the results answers the question and is in one of the bands."""
        return any(result.is_answer and result.match in bands for result in self.results)


async def ask(memory: Memory, caller: Caller, line: Line, kind: str, file_ids: dict[str, str]) -> Asked:
    """Ask a question in blended mode; only its own space has its answers."""
    answers = set() if kind != "answerable" else set(line["answers"])
    found = await search(
        memory,
        caller,
        line["question"],
        types=[MemoryType.FACT],
        mode=SearchMode.BLENDED,
        limit=SHOWN,
        min_confidence=0.0,
    )
    return Asked(
        kind,
        [Result(each["similarity"] or 0.0, each["coverage"], file_ids[str(each["id"])] in answers) for each in found],
    )


async def ask_all(spaces: Sequence[Space]) -> list[Asked]:
    """Ask every question in its space, and some questions of the other spaces."""
    asked = []
    async with bench_butler("matching") as (butler, memory, _):
        for number, space in enumerate(spaces):
            print(f"{space.name}: {len(space.memories)} memories", file=sys.stderr, flush=True)
            caller = caller_for(f"space-{number}", butler)
            file_ids = await store_memories(memory, caller, space)
            others = [line for other in spaces if other is not space for line in other.questions]
            for line in space.questions:
                kind = ADVERSARIAL if ADVERSARIAL in line.get("category", "") else "answerable"
                asked.append(await ask(memory, caller, line, kind, file_ids))
            foreign = others[:: max(1, len(others) // FOREIGN_QUESTIONS)]
            asked += [await ask(memory, caller, line, "foreign", file_ids) for line in foreign]
    return asked


def _share(values: Iterable[bool]) -> float:
    return statistics.mean(map(float, values))


def shares(asked: Sequence[Asked]) -> dict[str, float]:
    """The shares that say what the bands are worth."""
    of = {kind: [each for each in asked if each.kind == kind] for kind in ("answerable", ADVERSARIAL, "foreign")}
    results = [result for each in of["answerable"] for result in each.results]
    measured = {
        f"answer among {band.value} results": _share(r.is_answer for r in results if r.match is band)
        for band in Match
        if any(r.match is band for r in results)
    }
    measured["answerable: strong or fair answer"] = _share(
        each.has_answer(Match.STRONG, Match.FAIR) for each in of["answerable"]
    )
    measured["answerable: any answer"] = _share(each.has_answer(*Match) for each in of["answerable"])
    for kind in (ADVERSARIAL, "foreign"):
        if of[kind]:
            measured[f"{kind}: nothing strong"] = _share(not each.has(Match.STRONG) for each in of[kind])
            measured[f"{kind}: nothing strong or fair"] = _share(
                not each.has(Match.STRONG, Match.FAIR) for each in of[kind]
            )
    return measured


def calibration(asked: Sequence[Asked]) -> Table:
    """How often a result answers its question, by how well it fits."""
    rows = []
    for step in range(int(1 / STEP)):
        low = step * STEP

        def fits(result: Result, low: float = low) -> bool:
            return low <= fit_of(result.similarity, result.coverage) < low + STEP

        of = {
            kind: [result for each in asked if each.kind == kind for result in each.results if fits(result)]
            for kind in ("answerable", ADVERSARIAL, "foreign")
        }
        if any(of.values()):
            answers = f"{_share(r.is_answer for r in of['answerable']):.0%}" if of["answerable"] else ""
            rows.append([f"{low:.2f}", *(str(len(found)) for found in of.values()), answers])
    return Table(
        "Results by fit",
        "The fit is two parts similarity and one part coverage. The columns count the first three results of each "
        "kind of question.",
        ["fit from", "answerable", ADVERSARIAL, "foreign", "answers"],
        rows,
    )


async def main(folders: Sequence[Path], *, calibrate: bool) -> None:
    """Measure and publish."""
    asked: list[Asked] = []
    rows = []
    measured: dict[str, object] = {}
    for folder in folders:
        of_folder = await ask_all(read_spaces(folder))
        found = shares(of_folder)
        measured[folder.name] = found
        rows += [[folder.name, name, f"{value:.1%}"] for name, value in found.items()]
        asked += of_folder
    tables = [
        Table("Shares", f"Among the first {SHOWN} results of a blended search.", ["collection", "", "share"], rows)
    ]
    if calibrate:
        tables.append(calibration(asked))
    about = (
        "Each result of a search says how well it fits: strong, fair or weak. Adversarial questions use the words of "
        "a memory and ask about somebody else; foreign questions are asked where nothing answers them."
    )
    Report("matching", "Match bands", about, measured, tables).publish()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="*", help="Folders with memories.jsonl and questions.jsonl.")
    parser.add_argument("--calibrate", action="store_true", help="Also print the results by fit.")
    arguments = parser.parse_args()
    asyncio.run(main(arguments.folders or collections(), calibrate=arguments.calibrate))
