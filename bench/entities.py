"""Bench of entity resolution among 1,000 and among 100,000 entities.

Each kind of match uses an index, so a hundred times as many entities may cost a few times as much.
"""

import argparse
import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

import asyncpg

from butlers.app import Butler
from butlers.modules.memory.domain.entity_resolution import ResolutionHints
from butlers.modules.memory.operations import entities
from butlers.modules.memory.runtime import Memory
from harness import bench_butler, caller_for, durations
from report import Report, Table, milliseconds, spread

SMALL, LARGE = 1_000, 100_000
MAX_RATIO = 4.0
_QUERIES = 40
_SYLLABLES = (
    "an ar be bel bri ca chlo co da del di el en er fa fer ga gri ha hen i in ja jo ka kar la le li lo lu ma mar me "
    "mi na nel ni no o ol pa pe ra ri ro sa sel si so ste ta ter ti to u va ver vi wa wen xa ya ye za zo"
).split()
_INDEXES = ("entities_by_any_name", "entities_by_ngram", "entities_by_similarity")
Person = tuple[str, str]
"""A name and an alias."""
Samples = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class MatchKind:
    """A kind of match, with the query that finds a person this way."""

    name: str
    query_for: Callable[[Person], str]
    fuzzy: bool = False


KINDS = (
    MatchKind("exact", lambda person: person[0].upper()),
    MatchKind("alias", lambda person: person[1].upper()),
    MatchKind("prefix", lambda person: person[0][:6]),
    MatchKind("substring", lambda person: person[0][2:8]),
    MatchKind("fuzzy", lambda person: person[0][:5] + person[0][6:], fuzzy=True),
)


def generate_people(count: int) -> list[Person]:
    """People with unique names and aliases."""
    rng = random.Random(11)

    def word() -> str:
        return "".join(rng.choices(_SYLLABLES, k=rng.choice((2, 3, 3)))).title()

    people: dict[str, Person] = {}
    while len(people) < count:
        name = f"{word()} {word()}"
        people.setdefault(name.lower(), (name, f"{word()}{len(people)}"))
    return list(people.values())


@dataclass(frozen=True, slots=True)
class Population:
    """A butler with a number of people in its database."""

    butler: Butler
    memory: Memory
    people: Sequence[Person]


@contextlib.asynccontextmanager
async def open_population(count: int) -> AsyncIterator[Population]:
    """A new butler with that many people."""
    async with bench_butler() as (butler, memory, _):
        people = generate_people(count)
        await insert_people(butler, people)
        yield Population(butler, memory, people)


async def insert_people(butler: Butler, people: Sequence[Person]) -> None:
    """Insert the entities by COPY and build the indexes afterwards."""
    owner = await asyncpg.connect(butler.location.admin_dsn)
    definitions = [await owner.fetchval("select pg_get_indexdef($1::text::regclass)", index) for index in _INDEXES]
    for index in _INDEXES:
        await owner.execute(f"drop index {index}")
    rows = [("bench", name, "person", [alias]) for name, alias in people]
    columns = ("tenant_id", "canonical_name", "entity_type", "aliases")
    await owner.copy_records_to_table("entities", records=rows, columns=columns, timeout=600)
    for definition in definitions:
        await owner.execute(definition, timeout=600)
    await owner.execute("vacuum analyze entities", timeout=600)
    await owner.close()


async def measure(repeats: int) -> dict[int, Samples]:
    """Seconds of each resolve by kind of match at both sizes, in turns, so that a busy machine slows both."""
    samples: dict[int, Samples] = {size: {kind.name: [] for kind in KINDS} for size in (SMALL, LARGE)}
    async with open_population(SMALL) as small, open_population(LARGE) as large:
        for _ in range(repeats):
            for kind in KINDS:
                for size, population in ((SMALL, small), (LARGE, large)):
                    samples[size][kind.name] += await resolve_seconds(population, kind)
    return samples


async def resolve_seconds(population: Population, kind: MatchKind) -> list[float]:
    """Seconds of each resolve with a warm cache; fails when the person is not found."""
    caller = caller_for("bench", population.butler)
    chosen = random.Random(3).sample(population.people, _QUERIES)

    async def resolve(number: int) -> None:
        person = chosen[number]
        query = kind.query_for(person)
        matches = await entities.resolve(population.memory, caller, query, None, ResolutionHints(), fuzzy=kind.fuzzy)
        assert matches, query
        if kind.name in {"exact", "alias"}:
            assert matches[0].candidate.canonical_name == person[0]

    await durations(resolve, len(chosen))
    return await durations(resolve, len(chosen))


def report(samples: dict[int, Samples], repeats: int) -> Report:
    """The report on both sizes."""
    return Report(
        name="entities",
        title="Entity resolution",
        about=f"Medians of {repeats * _QUERIES} calls of `entity_resolve` below the protocol, in a database of "
        f"{SMALL:,} entities and one of {LARGE:,}. Each call is one transaction that tries all kinds of matches. "
        f"The goal is a ratio of at most {MAX_RATIO:g}.",
        measured={
            "small_round_medians": _round_medians(samples[SMALL]),
            "large_round_medians": _round_medians(samples[LARGE]),
        },
        tables=[_table(samples[SMALL], samples[LARGE])],
    )


def _round_medians(samples: Samples) -> Samples:
    return {
        name: [spread(seconds[start : start + _QUERIES])[0] for start in range(0, len(seconds), _QUERIES)]
        for name, seconds in samples.items()
    }


def _table(small: Samples, large: Samples) -> Table:
    rows = []
    for kind in KINDS:
        small_median, large_median = spread(small[kind.name])[0], spread(large[kind.name])[0]
        p95 = sorted(large[kind.name])[int(len(large[kind.name]) * 0.95)]
        cells = (milliseconds(seconds, 2) for seconds in (small_median, large_median, p95))
        rows.append((kind.name, *cells, f"{large_median / small_median:.1f}"))
    return Table(
        "Resolves by kind of match",
        "The names of each row match in this way. The fuzzy row also looks for similar spellings.",
        ("match", f"ms at {SMALL:,}", f"ms at {LARGE:,}", f"p95 ms at {LARGE:,}", "ratio"),
        rows,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    report(asyncio.run(measure(options.repeats)), options.repeats).publish()
