"""Regression guard on counts that noise does not change, against the committed ones in guard.json.

Statements a call (each is a round trip), rows read for a row returned, bytes allocated for a call, WAL records a
store, bytes on disk a fact, updates in place, modules imported at start. `make bench-guard` fails when a count got
worse; `--accept` writes today's counts to guard.json.
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
from rich.console import Console
from rich.table import Table

from butlers.app import Butler
from butlers.caller import Caller
from butlers.modules.memory.domain.model import NewEpisode, NewFact, NewRule, SearchMode
from butlers.modules.memory.operations import context, receipts, writing
from butlers.modules.memory.operations.idempotency import Request
from butlers.modules.memory.runtime import Memory
from harness import bench_butler, caller_for, fill_facts, recall, search, seed_vectors, sentence, store_fact
from statements import record_statements

COMMITTED = Path(__file__).with_name("guard.json")
TENANT = "guarded"
FACTS = 2_000
CALLS = 20
RECALLS = 300
Call = Callable[[], Awaitable[Any]]
_ROWS_READ = "select coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::bigint from pg_stat_user_tables"
_WAL_RECORDS = "select wal_records from pg_stat_wal"
_HOT_UPDATES = "select n_tup_hot_upd, n_tup_upd from pg_stat_user_tables where relname = 'facts'"
_BYTES_PER_FACT = "select pg_total_relation_size('facts')::float8 / (select count(*) from facts)"
_COUNT_MODULES = "import sys; import butlers.app, butlers.cli; print(len(sys.modules))"


@dataclass(frozen=True, slots=True)
class Count:
    """A count, and the share by which it may be worse than the committed one."""

    value: float
    slack: float = 0.0
    more_is_better: bool = False

    def is_worse_than(self, committed: float) -> bool:
        """Whether the count is worse than the committed one allows."""
        if self.more_is_better:
            return self.value < committed * (1 - self.slack)
        return self.value > committed * (1 + self.slack)


class Calls:
    """One call of each tool, each time with a new text."""

    def __init__(self, memory: Memory, caller: Caller, rng: random.Random) -> None:
        self._memory = memory
        self._caller = caller
        self._rng = rng
        self._request = Request("guard", {})
        self._session = replace(caller, session_id=str(uuid4()))

    @property
    def by_name(self) -> dict[str, Call]:
        """The calls by the name of their tool."""
        calls: dict[str, Call] = {
            "store_fact": self.store_fact,
            "store_fact again": lambda: self.store_fact("the same subject"),
            "store_rule": self.store_rule,
            "store_episode": self.store_episode,
            "recall": self.recall,
            "context": lambda: self.context(self._caller),
            # With a receipt, which is written after the answer.
            "recall, in a session": lambda: recall(self._memory, self._session, self._text()),
            "context, in a session": lambda: self.context(self._session),
        }
        for mode in SearchMode:
            calls[f"search, {mode.value}"] = lambda mode=mode: self.search(mode)  # type: ignore[misc]
        return calls

    async def store_fact(self, subject: str | None = None) -> object:
        text = self._text()
        fact = NewFact(subject=subject or text[:60], predicate="note", content=text)
        return await store_fact(self._memory, self._caller, fact)

    async def store_rule(self) -> object:
        return await writing.store_rule(self._memory, self._caller, NewRule(content=self._text()), self._request)

    async def store_episode(self) -> object:
        episode = NewEpisode(content=self._text(), butler="bench")
        return await writing.store_episode(self._memory, self._caller, episode, self._request)

    async def context(self, caller: Caller) -> str:
        return await context.build_context(self._memory, caller, self._text(), "bench", None)

    async def recall(self) -> list[dict[str, Any]]:
        return await recall(self._memory, self._caller, self._text())

    async def search(self, mode: SearchMode) -> list[dict[str, Any]]:
        return await search(self._memory, self._caller, self._text(), mode=mode)

    def _text(self) -> str:
        return sentence(self._rng)


async def measure() -> dict[str, Count]:
    """All counts by name."""
    rng = random.Random(33)
    async with bench_butler(tenant=TENANT) as (butler, memory, _):
        await fill_facts(butler, memory, [(TENANT, FACTS)], await seed_vectors(memory, rng, 200), mixed=False)
        owner = await asyncpg.connect(butler.location.admin_dsn)
        calls = Calls(memory, caller_for(TENANT, butler), rng)
        for call in calls.by_name.values():
            for _ in range(2):
                await call()
                await receipts.settle(memory)
        counts: dict[str, Count] = {"disk: bytes a fact": Count(await owner.fetchval(_BYTES_PER_FACT), 0.1)}
        for name, call in calls.by_name.items():
            async with record_statements(butler.database) as statements:
                await call()
                sent = len(statements)
                await receipts.settle(memory)
            counts[f"statements: {name}"] = Count(sent)
            counts[f"allocated KiB: {name}"] = Count(await _allocated_kib(memory, call), 0.3)
        for name in ("search, semantic", "search, keyword", "search, hybrid", "recall"):
            rows_read = await _rows_read_per_row(butler, owner, calls.by_name[name])
            counts[f"rows read for a row returned: {name}"] = Count(rows_read, 0.2)
        counts["WAL records: store_fact"] = Count(await _wal_records_per_call(butler, owner, calls.store_fact), 0.2)
        hot_share = await _hot_update_share(butler, owner, calls.recall)
        counts["updates in place: recall"] = Count(hot_share, 0.05, more_is_better=True)
        await owner.close()
    counts["modules imported for a start"] = Count(_imported_modules(), 0.05)
    return counts


async def _allocated_kib(memory: Memory, call: Call) -> float:
    """Peak KiB of a call; the minimum of several, since other tasks only add to it.

    Receipts are settled after each call, so that all statements go through one connection.
    """
    peaks = []
    for _ in range(5):
        tracemalloc.start()
        await call()
        peaks.append(tracemalloc.get_traced_memory()[1] / 1024)
        tracemalloc.stop()
        await receipts.settle(memory)
    return min(peaks)


async def _statistics(butler: Butler, owner: Any, query: str) -> Any:
    """The row of a query on the server's statistics, which include every call so far."""
    await butler.database.fetch_across_tenants("select pg_stat_force_next_flush()")
    await owner.execute("select pg_stat_force_next_flush(), pg_stat_clear_snapshot()")
    return await owner.fetchrow(query)


async def _rows_read_per_row(butler: Butler, owner: Any, call: Call) -> float:
    before = await _statistics(butler, owner, _ROWS_READ)
    returned = [len(await call()) for _ in range(CALLS)]
    after = await _statistics(butler, owner, _ROWS_READ)
    return float(after[0] - before[0]) / sum(returned)


async def _wal_records_per_call(butler: Butler, owner: Any, call: Call) -> float:
    before = await _statistics(butler, owner, _WAL_RECORDS)
    for _ in range(CALLS):
        await call()
    after = await _statistics(butler, owner, _WAL_RECORDS)
    return float(after[0] - before[0]) / CALLS


async def _hot_update_share(butler: Butler, owner: Any, call: Call) -> float:
    before = await _statistics(butler, owner, _HOT_UPDATES)
    for _ in range(RECALLS):
        await call()
    after = await _statistics(butler, owner, _HOT_UPDATES)
    return float(after[0] - before[0]) / float(after[1] - before[1])


def _imported_modules() -> int:
    result = subprocess.run([sys.executable, "-c", _COUNT_MODULES], capture_output=True, text=True, check=True)
    return int(result.stdout)


def main(*, accept: bool) -> int:
    """Compare the counts with the committed ones; returns 1 when one got worse."""
    counts = asyncio.run(measure())
    if accept:
        accepted = {name: round(count.value, 3) for name, count in counts.items()}
        COMMITTED.write_text(json.dumps(accepted, indent=2) + "\n", encoding="utf-8")
    committed = json.loads(COMMITTED.read_text(encoding="utf-8"))
    table = Table("", "now", "committed", "allowed slack", "")
    worse = []
    for name, count in counts.items():
        before = committed.get(name)
        if before is None or count.is_worse_than(before):
            worse.append(name)
        verdict = "new: run with --accept" if before is None else ("WORSE" if name in worse else "")
        table.add_row(name, f"{count.value:.2f}", f"{before or 0:.2f}", f"{count.slack:.0%}", verdict)
    Console(width=120).print(table)
    if removed := set(committed) - set(counts):
        worse += removed
        print(f"no longer counted: {', '.join(sorted(removed))}; run with --accept if this is intended")
    return 1 if worse else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--accept", action="store_true", help="Write the counts to guard.json.")
    sys.exit(main(accept=parser.parse_args().accept))
