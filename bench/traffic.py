"""Clients that call a butler's tools over HTTP all at once, and the book they keep of what they were promised."""

import itertools
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import httpx2

from world import sentence

OWN_KEYS, SHARED_KEYS = 20, 3
EMPTY = "probe_whoami"
_COUNTED = re.compile(r'^butlers_tool_calls_total\{.*?outcome="(\w+)".*?\} (\S+)$', re.MULTILINE)
_CREATED = {"facts": "fact_created", "rules": "rule_created", "episodes": "episode_created"}


@dataclass
class Book:
    """What was acknowledged, and how long each call took."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    outcomes: Counter[str] = field(default_factory=Counter)
    turned_away: int = 0
    wrong: list[str] = field(default_factory=list)
    stored: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    latest: dict[tuple[str, str], str] = field(default_factory=dict)
    forgotten: set[str] = field(default_factory=set)
    helpful: Counter[str] = field(default_factory=Counter)
    read: Counter[str] = field(default_factory=Counter)

    @property
    def calls(self) -> int:
        """How many were answered."""
        return self.outcomes.total()


@dataclass
class Caller:
    """One client with a key of its tenant; it does one thing after the other, chosen by chance."""

    number: int
    tenant: str
    key: str
    butler: str
    address: str
    http: httpx2.AsyncClient
    book: Book
    shared_rule: str = ""
    own: dict[str, str] = field(default_factory=dict)
    _ids: Any = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.chance = random.Random(self.number)
        self.doings: list[Callable[[], Awaitable[None]]] = [
            doing
            for doing, weight in (
                (self.store_own, 12),
                (self.store_shared, 4),
                (self.store_rule, 2),
                (self.store_episode, 4),
                (self.recall, 14),
                (self.search, 12),
                (self.get, 14),
                (self.context, 4),
                (self.confirm, 8),
                (self.mark, 8),
                (self.forget, 2),
                (self.stats, 2),
                (self.resolve, 4),
                (self.empty, 10),
            )
            for _ in range(weight)
        ]

    async def once(self) -> None:
        """Do one thing."""
        await self.chance.choice(self.doings)()

    async def call(self, tool: str, **arguments: Any) -> Any:
        """What a tool answers; None where it refused."""
        message = {
            "jsonrpc": "2.0",
            "id": next(self._ids),
            "method": "tools/call",
            "params": {"name": tool, "arguments": arguments},
        }
        began = time.perf_counter()
        try:
            answer = await self.http.post(self.address, json=message, headers={"Authorization": f"Bearer {self.key}"})
        except httpx2.HTTPError as error:
            return self._refused(tool, f"{type(error).__name__}: {error}")
        self.book.seconds[tool].append(time.perf_counter() - began)
        if answer.status_code == httpx2.codes.SERVICE_UNAVAILABLE and "overloaded: " in answer.text:
            # No connection was left to look the key up with: no tool was reached, so none was counted.
            self.book.turned_away += 1
            return None
        if answer.status_code != httpx2.codes.OK:
            return self._refused(tool, f"{answer.status_code}: {answer.text}")
        result = answer.json().get("result") or {"isError": True, "content": [{"text": answer.text}]}
        if result.get("isError"):
            return self._refused(tool, str(result["content"][0]["text"]))
        self.book.outcomes["ok"] += 1
        said = result["structuredContent"]
        return said["result"] if set(said) == {"result"} else said

    def _refused(self, tool: str, why: str) -> None:
        code = why.partition(":")[0]
        self.book.outcomes[code] += 1
        if code != "overloaded":
            self.book.wrong.append(f"{tool}: {why[:300]}")

    async def _store(self, kind: str, **arguments: Any) -> str | None:
        answer = await self.call(f"memory_store_{kind}", **arguments)
        if answer is None:
            return None
        self.book.stored[f"{kind}s"][answer["id"]] = arguments["content"]
        return str(answer["id"])

    async def store_own(self) -> None:
        """Write under a key nobody else writes to: the last acknowledged content is what is true."""
        predicate = f"note_{self.chance.randrange(OWN_KEYS)}"
        subject = f"client {self.number}"
        if stored := await self._store(
            "fact", subject=subject, predicate=predicate, content=f"{sentence(self.chance)} {self.number}"
        ):
            self.own[predicate] = stored
            self.book.latest[subject, predicate] = stored

    async def store_shared(self) -> None:
        """Write under a key that all of the tenant write to."""
        predicate = f"shared_{self.chance.randrange(SHARED_KEYS)}"
        await self._store(
            "fact", subject="everybody", predicate=predicate, content=f"{sentence(self.chance)} {self.number}"
        )

    async def store_rule(self) -> None:
        """A new rule."""
        await self._store("rule", content=sentence(self.chance))

    async def store_episode(self) -> None:
        """A new episode."""
        await self._store("episode", content=sentence(self.chance), butler=self.butler)

    async def recall(self) -> None:
        """Facts and rules, each of them noted as read."""
        found = await self.call("memory_recall", topic=sentence(self.chance)) or []
        self.book.read.update(each["id"] for each in found)

    async def search(self) -> None:
        """Whatever matches."""
        await self.call("memory_search", query=sentence(self.chance))

    async def context(self) -> None:
        """The block for a session."""
        await self.call("memory_context", trigger_prompt=sentence(self.chance), butler=self.butler)

    async def get(self) -> None:
        """One of its own facts, noted as read."""
        if wanted := self._some():
            found = await self.call("memory_get", memory_type="fact", memory_id=wanted)
            self.book.read.update([wanted] if found else [])

    async def confirm(self) -> None:
        """One of its own facts still holds."""
        if wanted := self._some():
            await self.call("memory_confirm", memory_type="fact", memory_id=wanted)

    async def mark(self) -> None:
        """The rule that everybody of the tenant marks: its counter has to add up."""
        if await self.call("memory_mark_helpful", rule_id=self.shared_rule):
            self.book.helpful[self.shared_rule] += 1

    async def forget(self) -> None:
        """One of its own facts is gone."""
        if (wanted := self._some()) and await self.call("memory_forget", memory_type="fact", memory_id=wanted):
            self.book.forgotten.add(wanted)
            predicate = next(name for name, each in self.own.items() if each == wanted)
            del self.own[predicate], self.book.latest[f"client {self.number}", predicate]

    async def stats(self) -> None:
        """The counts."""
        await self.call("memory_stats")

    async def resolve(self) -> None:
        """Somebody's name."""
        await self.call("entity_resolve", name=f"Somebody {self.chance.randrange(100)}", enable_fuzzy=True)

    async def empty(self) -> None:
        """A tool that does nothing: what a call costs by itself."""
        await self.call(EMPTY)

    def _some(self) -> str | None:
        return self.chance.choice(list(self.own.values())) if self.own else None


async def settled(owner: "asyncpg.Connection[Any]", book: Book, since: Counter[str]) -> list[str]:
    """Everything in the database that is not as the clients were told; empty when all is well."""
    wrong = list(book.wrong[:10])
    kept = {table: await _kept(owner, table) for table in _CREATED}
    for table, promised in book.stored.items():
        lost = [each for each, content in promised.items() if kept[table].get(each, {}).get("content") != content]
        wrong += [f"{len(lost)} acknowledged {table} are lost, {lost[0]} among them"] if lost else []
    facts = kept["facts"]
    stale = [each for each in book.latest.values() if facts[each]["validity"] != "active"]
    wrong += [f"{len(stale)} facts stored last are not the live ones"] if stale else []
    back = [each for each in book.forgotten if facts[each]["validity"] != "retracted"]
    wrong += [f"{len(back)} forgotten facts are back"] if back else []
    replaced = Counter(row["supersedes_id"] for row in facts.values() if row["supersedes_id"])
    live = Counter(row["key"] for row in facts.values() if row["validity"] == "active")
    wrong += ["a fact was superseded twice"] if max(replaced.values(), default=0) > 1 else []
    wrong += ["a key has two live facts"] if max(live.values(), default=0) > 1 else []
    marked = {each: row["marks"] for each, row in kept["rules"].items() if row["marks"]}
    wrong += [f"marks are {marked}, acknowledged were {dict(book.helpful)}"] if marked != dict(book.helpful) else []
    read = {each: row["reference_count"] for rows in kept.values() for each, row in rows.items()}
    miscounted = {each for each, times in read.items() if times != book.read[each]}
    wrong += [f"{len(miscounted)} memories were read more or less often than noted"] if miscounted else []
    for table, event in _CREATED.items():
        events = await owner.fetchval("select count(*) from memory_events where event_type = $1", event)
        wrong += [f"{len(kept[table])} {table}, but {events} {event}"] if events != len(kept[table]) else []
    return wrong + ([f"metrics count {since}, clients {book.outcomes}"] if since != book.outcomes else [])


async def _kept(owner: "asyncpg.Connection[Any]", table: str) -> dict[str, dict[str, Any]]:
    columns = {
        "facts": "validity, supersedes_id, concat_ws('|', tenant_id, scope, subject, predicate) as key",
        "rules": "success_count as marks",
        "episodes": "1",
    }[table]
    statement = f"select id::text, content, reference_count, {columns} from {table}"  # noqa: S608 — our own words
    return {row["id"]: dict(row) for row in await owner.fetch(statement)}


def outcomes(page: str) -> Counter[str]:
    """The calls that /metrics has counted, by outcome."""
    counted: Counter[str] = Counter()
    for outcome, times in _COUNTED.findall(page):
        counted[outcome] += int(float(times))
    return counted
