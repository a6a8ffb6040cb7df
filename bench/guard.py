"""Counts that noise can't move, against those that were committed: `make bench-guard` fails when one got worse.

Statements a call (each is a round trip), rows read for a row returned, bytes allocated for a call, WAL records a
store, bytes on disk a fact, updates in place, modules imported for a start. `--accept` keeps today's counts.
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
from rich.console import Console
from rich.table import Table

from butlers.app import Butler
from butlers.caller import Caller
from butlers.modules.memory.domain.model import MemoryType, NewEpisode, NewFact, NewRule, SearchMode
from butlers.modules.memory.operations import context, reading, writing
from butlers.modules.memory.operations.idempotency import Request
from butlers.modules.memory.runtime import Memory
from statements import recorded
from world import caller_of, fill, seed_vectors, sentence, world

KEPT = Path(__file__).with_name("guard.json")
TENANT = "guarded"
FACTS = 2_000
CALLS = 20
RECALLS = 300
_READ = "select coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::bigint from pg_stat_user_tables"
_WAL = "select wal_records from pg_stat_wal"
_HOT = "select n_tup_hot_upd, n_tup_upd from pg_stat_user_tables where relname = 'facts'"
_DISK = "select pg_total_relation_size('facts')::float8 / (select count(*) from facts)"
_IMPORTED = "import sys; import butlers.app, butlers.cli; print(len(sys.modules))"


@dataclass(frozen=True, slots=True)
class Count:
    """Something counted, and by what share it may be worse than what was committed."""

    value: float
    slack: float = 0.0
    more_is_better: bool = False

    def worse_than(self, kept: float) -> bool:
        """Whether it got worse."""
        if self.more_is_better:
            return self.value < kept * (1 - self.slack)
        return self.value > kept * (1 + self.slack)


class Works:
    """One call of each kind, each time with another text."""

    def __init__(self, memory: Memory, caller: Caller, rng: random.Random) -> None:
        self._memory = memory
        self._caller = caller
        self._rng = rng
        self._request = Request("guard", {})

    @property
    def all(self) -> dict[str, Callable[[], Awaitable[object]]]:
        """The calls, by the name of their tool."""
        found: dict[str, Callable[[], Awaitable[object]]] = {
            "store_fact": self.store_fact,
            "store_fact again": lambda: self.store_fact("the same subject"),
            "store_rule": self.store_rule,
            "store_episode": self.store_episode,
            "recall": self.recall,
            "context": lambda: context.build_context(self._memory, self._caller, self._text(), "bench", None),
        }
        for mode in SearchMode:
            found[f"search, {mode.value}"] = lambda mode=mode: self.search(mode)  # type: ignore[misc]
        return found

    async def store_fact(self, subject: str | None = None) -> object:
        text = self._text()
        fact = NewFact(subject=subject or text[:60], predicate="note", content=text)
        return await writing.store_fact(self._memory, self._caller, fact, self._request)

    async def store_rule(self) -> object:
        return await writing.store_rule(self._memory, self._caller, NewRule(content=self._text()), self._request)

    async def store_episode(self) -> object:
        episode = NewEpisode(content=self._text(), butler="bench")
        return await writing.store_episode(self._memory, self._caller, episode, self._request)

    async def recall(self) -> list[dict[str, Any]]:
        kinds = (MemoryType.FACT, MemoryType.RULE)
        return await reading.recall(self._memory, self._caller, self._text(), scope=None, limit=10, types=kinds)

    async def search(self, mode: SearchMode) -> list[dict[str, Any]]:
        return await reading.search(
            self._memory,
            self._caller,
            self._text(),
            types=tuple(MemoryType),
            scope=None,
            mode=mode,
            limit=10,
            min_confidence=0.2,
        )

    def _text(self) -> str:
        return sentence(self._rng)


async def counted() -> dict[str, Count]:
    """Every count."""
    rng = random.Random(33)
    async with world(tenant=TENANT) as (butler, memory, _):
        await fill(butler, memory, [(TENANT, FACTS)], await seed_vectors(memory, rng, 200), mixed=False)
        owner = await asyncpg.connect(butler.place.admin_dsn)
        works = Works(memory, caller_of(TENANT, butler), rng)
        for work in works.all.values():
            await work()
            await work()
        counts: dict[str, Count] = {"disk: bytes a fact": Count(await owner.fetchval(_DISK), 0.1)}
        for name, work in works.all.items():
            async with recorded(butler.database) as said:
                await work()
            counts[f"statements: {name}"] = Count(len(said))
            counts[f"allocated KiB: {name}"] = Count(await _allocated(work), 0.3)
        for name in ("search, semantic", "search, keyword", "search, hybrid", "recall"):
            counts[f"rows read for a row returned: {name}"] = Count(await _read(butler, owner, works.all[name]), 0.2)
        counts["WAL records: store_fact"] = Count(await _records(butler, owner, works.store_fact), 0.2)
        counts["updates in place: recall"] = Count(await _in_place(butler, owner, works.recall), 0.05, True)
        await owner.close()
    counts["modules imported for a start"] = Count(_imported(), 0.05)
    return counts


async def _allocated(work: Callable[[], Awaitable[object]]) -> float:
    """KiB a call has at the most at one time: the least of several, since other tasks only add to it."""
    seen = []
    for _ in range(5):
        tracemalloc.start()
        await work()
        seen.append(tracemalloc.get_traced_memory()[1] / 1024)
        tracemalloc.stop()
    return min(seen)


async def _told(butler: Butler, owner: Any, query: str) -> Any:
    """What the server's statistics say once they know of every call so far."""
    await butler.database.fetch_across_tenants("select pg_stat_force_next_flush()")
    await owner.execute("select pg_stat_force_next_flush(), pg_stat_clear_snapshot()")
    return await owner.fetchrow(query)


async def _read(butler: Butler, owner: Any, work: Callable[[], Awaitable[Any]]) -> float:
    before = await _told(butler, owner, _READ)
    returned = [len(await work()) for _ in range(CALLS)]
    after = await _told(butler, owner, _READ)
    return float(after[0] - before[0]) / sum(returned)


async def _records(butler: Butler, owner: Any, work: Callable[[], Awaitable[object]]) -> float:
    before = await _told(butler, owner, _WAL)
    for _ in range(CALLS):
        await work()
    after = await _told(butler, owner, _WAL)
    return float(after[0] - before[0]) / CALLS


async def _in_place(butler: Butler, owner: Any, work: Callable[[], Awaitable[object]]) -> float:
    before = await _told(butler, owner, _HOT)
    for _ in range(RECALLS):
        await work()
    after = await _told(butler, owner, _HOT)
    return float(after[0] - before[0]) / float(after[1] - before[1])


def _imported() -> int:
    told = subprocess.run([sys.executable, "-c", _IMPORTED], capture_output=True, text=True, check=True)
    return int(told.stdout)


def main(*, accept: bool) -> int:
    """Count and compare; 1 when something got worse."""
    counts = asyncio.run(counted())
    if accept:
        kept = {name: round(count.value, 3) for name, count in counts.items()}
        KEPT.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    table = Table("", "now", "committed", "may be worse by", "")
    worse = []
    for name, count in counts.items():
        known = kept.get(name)
        if known is None or count.worse_than(known):
            worse.append(name)
        verdict = "new: --accept it" if known is None else ("WORSE" if name in worse else "")
        table.add_row(name, f"{count.value:.2f}", f"{known or 0:.2f}", f"{count.slack:.0%}", verdict)
    Console(width=120).print(table)
    if gone := set(kept) - set(counts):
        worse += gone
        print(f"no longer counted: {', '.join(sorted(gone))}; --accept if that is meant")
    return 1 if worse else 0


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--accept", action="store_true", help="Keep the counts as the committed ones.")
    sys.exit(main(accept=arguments.parse_args().accept))
