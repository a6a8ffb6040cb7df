"""How long it takes to find out whom a name means, among 1,000 entities and among 100,000.

The yardstick is the small number: each way to match goes through an index, so a hundred times as many entities may
cost a few times as much and not a hundred times.
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
from report import Report, Table, spread
from world import caller_of, timed, world

SMALL, LARGE = 1_000, 100_000
MOST_TIMES = 4.0
_ASKED = 40
_MILLI = 1000.0
_SYLLABLES = (
    "an ar be bel bri ca chlo co da del di el en er fa fer ga gri ha hen i in ja jo ka kar la le li lo lu ma mar me "
    "mi na nel ni no o ol pa pe ra ri ro sa sel si so ste ta ter ti to u va ver vi wa wen xa ya ye za zo"
).split()
_INDEXES = ("entities_by_any_name", "entities_by_ngram", "entities_by_similarity")
Named = tuple[str, str]
Samples = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Tier:
    """A way to match: what is asked when somebody of that name and alias is meant."""

    name: str
    asked: Callable[[Named], str]
    fuzzy: bool = False


TIERS = (
    Tier("exact", lambda who: who[0].upper()),
    Tier("alias", lambda who: who[1].upper()),
    Tier("prefix", lambda who: who[0][:6]),
    Tier("substring", lambda who: who[0][2:8]),
    Tier("fuzzy", lambda who: who[0][:5] + who[0][6:], fuzzy=True),
)


def names(count: int) -> list[Named]:
    """Made-up people, each with a name and a nickname of its own."""
    rng = random.Random(11)

    def word() -> str:
        return "".join(rng.choices(_SYLLABLES, k=rng.choice((2, 3, 3)))).title()

    made: dict[str, Named] = {}
    while len(made) < count:
        name = f"{word()} {word()}"
        made.setdefault(name.lower(), (name, f"{word()}{len(made)}"))
    return list(made.values())


@dataclass(frozen=True, slots=True)
class Crowd:
    """A butler that knows so many people."""

    butler: Butler
    memory: Memory
    people: Sequence[Named]


@contextlib.asynccontextmanager
async def crowd(count: int) -> AsyncIterator[Crowd]:
    """So many people in a database of their own."""
    async with world() as (butler, memory, _):
        people = names(count)
        await fill(butler, people)
        yield Crowd(butler, memory, people)


async def measured(repeats: int) -> dict[int, Samples]:
    """Seconds of each resolve by the way to match, at both sizes; by turns, so that a busy machine slows both."""
    samples: dict[int, Samples] = {size: {tier.name: [] for tier in TIERS} for size in (SMALL, LARGE)}
    async with crowd(SMALL) as small, crowd(LARGE) as large:
        for _ in range(repeats):
            for tier in TIERS:
                for size, known in ((SMALL, small), (LARGE, large)):
                    samples[size][tier.name] += await resolved(known, tier)
    return samples


async def fill(butler: Butler, people: Sequence[Named]) -> None:
    """Write the entities past the operations; the indexes are built once they are all there."""
    owner = await asyncpg.connect(butler.place.admin_dsn)
    definitions = [await owner.fetchval("select pg_get_indexdef($1::text::regclass)", each) for each in _INDEXES]
    for index in _INDEXES:
        await owner.execute(f"drop index {index}")
    rows = [("bench", name, "person", [alias]) for name, alias in people]
    columns = ("tenant_id", "canonical_name", "entity_type", "aliases")
    await owner.copy_records_to_table("entities", records=rows, columns=columns, timeout=600)
    for definition in definitions:
        await owner.execute(definition, timeout=600)
    await owner.execute("vacuum analyze entities", timeout=600)
    await owner.close()


async def resolved(known: Crowd, tier: Tier) -> list[float]:
    """Seconds of each question, once it has been asked before; who is meant has to be among the answers."""
    caller = caller_of("bench", known.butler)
    chosen = random.Random(3).sample(known.people, _ASKED)

    async def ask(number: int) -> None:
        who = chosen[number]
        found = await entities.resolve(
            known.memory, caller, tier.asked(who), None, ResolutionHints(), fuzzy=tier.fuzzy
        )
        assert found, tier.asked(who)
        if tier.name in {"exact", "alias"}:
            assert found[0].candidate.canonical_name == who[0]

    await timed(ask, len(chosen))
    return await timed(ask, len(chosen))


async def report(repeats: int) -> Report:
    """Measure both sizes, each in a database of its own."""
    samples = await measured(repeats)
    return Report(
        name="entities",
        title="Whom a name means",
        about=f"Medians of {repeats * _ASKED} calls of `entity_resolve` below the protocol, each a transaction of "
        f"its own that looks for all kinds of matches, in a database of {SMALL:,} entities and one of {LARGE:,}. "
        f"At the most {MOST_TIMES:g} times as long is what is allowed.",
        measured={
            "small_round_medians": _by_round(samples[SMALL]),
            "large_round_medians": _by_round(samples[LARGE]),
        },
        tables=[_table(samples[SMALL], samples[LARGE])],
    )


def _by_round(samples: Samples) -> Samples:
    """The median of each round, in place of every single call."""
    return {
        name: [spread(taken[start : start + _ASKED])[0] for start in range(0, len(taken), _ASKED)]
        for name, taken in samples.items()
    }


def _table(small: Samples, large: Samples) -> Table:
    rows = []
    for tier in TIERS:
        little, much = spread(small[tier.name])[0], spread(large[tier.name])[0]
        worst = sorted(large[tier.name])[int(len(large[tier.name]) * 0.95)]
        rows.append(
            (
                tier.name,
                f"{little * _MILLI:.2f}",
                f"{much * _MILLI:.2f}",
                f"{worst * _MILLI:.2f}",
                f"{much / little:.1f}",
            )
        )
    return Table(
        "Resolving by kind of match",
        "Each row asks for names that match in this way; the fuzzy row also looks for names spelled alike.",
        ("match", f"ms at {SMALL:,}", f"ms at {LARGE:,}", f"95 of 100 at {LARGE:,}", "times as long"),
        rows,
    )


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    found = asyncio.run(report(parser.parse_args().repeats))
    print(found.markdown())
    print(f"written: {found.save().name}")


if __name__ == "__main__":
    main()
