"""Clients that call a butler's tools over HTTP at random, and the log of calls the database is checked against."""

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

from harness import sentence

OWN_KEYS, SHARED_KEYS = 20, 3
EMPTY_TOOL = "probe_whoami"
_CALLS_METRIC = re.compile(r'^butlers_tool_calls_total\{.*?outcome="(\w+)".*?\} (\S+)$', re.MULTILINE)
_CREATION_EVENTS = {"facts": "fact_created", "rules": "rule_created", "episodes": "episode_created"}


@dataclass
class CallLog:
    """The acknowledged calls of all clients, with their times and outcomes."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    outcomes: Counter[str] = field(default_factory=Counter)
    rejected_before_tool: int = 0
    errors: list[str] = field(default_factory=list)
    stored: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    latest: dict[tuple[str, str], str] = field(default_factory=dict)
    forgotten: set[str] = field(default_factory=set)
    helpful: Counter[str] = field(default_factory=Counter)
    read: Counter[str] = field(default_factory=Counter)

    @property
    def calls(self) -> int:
        """The number of answered calls."""
        return self.outcomes.total()


@dataclass
class Client:
    """One client with a key of its tenant; it makes one random call after the other."""

    number: int
    tenant: str
    key: str
    butler: str
    address: str
    http: httpx2.AsyncClient
    log: CallLog
    shared_rule: str = ""
    own_facts: dict[str, str] = field(default_factory=dict)
    _ids: Any = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.rng = random.Random(self.number)
        self.actions: list[Callable[[], Awaitable[None]]] = [
            action
            for action, weight in (
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

    async def act(self) -> None:
        """One random action."""
        await self.rng.choice(self.actions)()

    async def call(self, tool: str, **arguments: Any) -> Any:
        """The answer of a tool; None when the call failed."""
        message = {
            "jsonrpc": "2.0",
            "id": next(self._ids),
            "method": "tools/call",
            "params": {"name": tool, "arguments": arguments},
        }
        started = time.perf_counter()
        try:
            response = await self.http.post(
                self.address, json=message, headers={"Authorization": f"Bearer {self.key}"}
            )
        except httpx2.HTTPError as error:
            return self._record_error(tool, f"{type(error).__name__}: {error}")
        self.log.seconds[tool].append(time.perf_counter() - started)
        if response.status_code == httpx2.codes.SERVICE_UNAVAILABLE and "overloaded: " in response.text:
            # No connection was free to look up the key: the call reached no tool and was not counted.
            self.log.rejected_before_tool += 1
            return None
        if response.status_code != httpx2.codes.OK:
            return self._record_error(tool, f"{response.status_code}: {response.text}")
        result = response.json().get("result") or {"isError": True, "content": [{"text": response.text}]}
        if result.get("isError"):
            return self._record_error(tool, str(result["content"][0]["text"]))
        self.log.outcomes["ok"] += 1
        content = result["structuredContent"]
        return content["result"] if set(content) == {"result"} else content

    def _record_error(self, tool: str, message: str) -> None:
        code = message.partition(":")[0]
        self.log.outcomes[code] += 1
        if code != "overloaded":
            self.log.errors.append(f"{tool}: {message[:300]}")

    async def _store(self, kind: str, **arguments: Any) -> str | None:
        answer = await self.call(f"memory_store_{kind}", **arguments)
        if answer is None:
            return None
        self.log.stored[f"{kind}s"][answer["id"]] = arguments["content"]
        return str(answer["id"])

    async def store_own(self) -> None:
        """Store a fact under a key of this client: the last acknowledged content is the live one."""
        predicate = f"note_{self.rng.randrange(OWN_KEYS)}"
        subject = f"client {self.number}"
        if stored := await self._store(
            "fact", subject=subject, predicate=predicate, content=f"{sentence(self.rng)} {self.number}"
        ):
            self.own_facts[predicate] = stored
            self.log.latest[subject, predicate] = stored

    async def store_shared(self) -> None:
        """Store a fact under a key that all clients of the tenant write to."""
        predicate = f"shared_{self.rng.randrange(SHARED_KEYS)}"
        await self._store(
            "fact", subject="everybody", predicate=predicate, content=f"{sentence(self.rng)} {self.number}"
        )

    async def store_rule(self) -> None:
        """Store a rule."""
        await self._store("rule", content=sentence(self.rng))

    async def store_episode(self) -> None:
        """Store an episode."""
        await self._store("episode", content=sentence(self.rng), butler=self.butler)

    async def recall(self) -> None:
        """Recall facts and rules; each of them counts as read."""
        recalled = await self.call("memory_recall", topic=sentence(self.rng)) or []
        self.log.read.update(memory["id"] for memory in recalled)

    async def search(self) -> None:
        """Search all types."""
        await self.call("memory_search", query=sentence(self.rng))

    async def context(self) -> None:
        """Build the context block of a session."""
        await self.call("memory_context", trigger_prompt=sentence(self.rng), butler=self.butler)

    async def get(self) -> None:
        """Get a fact of this client; it counts as read."""
        if fact_id := self._random_fact():
            fact = await self.call("memory_get", memory_type="fact", memory_id=fact_id)
            self.log.read.update([fact_id] if fact else [])

    async def confirm(self) -> None:
        """Confirm a fact of this client."""
        if fact_id := self._random_fact():
            await self.call("memory_confirm", memory_type="fact", memory_id=fact_id)

    async def mark(self) -> None:
        """Mark the rule that all clients of the tenant mark as helpful."""
        if await self.call("memory_mark_helpful", rule_id=self.shared_rule):
            self.log.helpful[self.shared_rule] += 1

    async def forget(self) -> None:
        """Forget a fact of this client."""
        if (fact_id := self._random_fact()) and await self.call(
            "memory_forget", memory_type="fact", memory_id=fact_id
        ):
            self.log.forgotten.add(fact_id)
            predicate = next(name for name, stored in self.own_facts.items() if stored == fact_id)
            del self.own_facts[predicate], self.log.latest[f"client {self.number}", predicate]

    async def stats(self) -> None:
        """Get the statistics."""
        await self.call("memory_stats")

    async def resolve(self) -> None:
        """Resolve a name."""
        await self.call("entity_resolve", name=f"Somebody {self.rng.randrange(100)}", enable_fuzzy=True)

    async def empty(self) -> None:
        """Call the tool that does nothing, to measure the bare call."""
        await self.call(EMPTY_TOOL)

    def _random_fact(self) -> str | None:
        return self.rng.choice(list(self.own_facts.values())) if self.own_facts else None


async def find_errors(owner: "asyncpg.Connection[Any]", log: CallLog, counted: Counter[str]) -> list[str]:
    """The differences between the database, the metrics and the log; empty when there are none."""
    errors = list(log.errors[:10])
    stored = {table: await _stored_rows(owner, table) for table in _CREATION_EVENTS}
    for table, acknowledged in log.stored.items():
        lost = [
            row_id for row_id, text in acknowledged.items() if stored[table].get(row_id, {}).get("content") != text
        ]
        errors += [f"{len(lost)} acknowledged {table} are lost, such as {lost[0]}"] if lost else []
    facts = stored["facts"]
    stale = [fact_id for fact_id in log.latest.values() if facts[fact_id]["validity"] != "active"]
    errors += [f"{len(stale)} last stored facts are not active"] if stale else []
    restored = [fact_id for fact_id in log.forgotten if facts[fact_id]["validity"] != "retracted"]
    errors += [f"{len(restored)} forgotten facts are not retracted"] if restored else []
    supersessions = Counter(row["supersedes_id"] for row in facts.values() if row["supersedes_id"])
    active = Counter(row["key"] for row in facts.values() if row["validity"] == "active")
    errors += ["a fact was superseded twice"] if max(supersessions.values(), default=0) > 1 else []
    errors += ["a key has two active facts"] if max(active.values(), default=0) > 1 else []
    marks = {rule_id: row["marks"] for rule_id, row in stored["rules"].items() if row["marks"]}
    errors += [f"marks are {marks}, acknowledged {dict(log.helpful)}"] if marks != dict(log.helpful) else []
    reads = {row_id: row["reference_count"] for rows in stored.values() for row_id, row in rows.items()}
    miscounted = {row_id for row_id, count in reads.items() if count != log.read[row_id]}
    errors += [f"{len(miscounted)} memories have a wrong reference count"] if miscounted else []
    for table, event in _CREATION_EVENTS.items():
        events = await owner.fetchval("select count(*) from memory_events where event_type = $1", event)
        rows = len(stored[table])
        errors += [f"{rows} {table}, but {events} {event}"] if events != rows else []
    return errors + ([f"metrics count {counted}, clients {log.outcomes}"] if counted != log.outcomes else [])


async def _stored_rows(owner: "asyncpg.Connection[Any]", table: str) -> dict[str, dict[str, Any]]:
    columns = {
        "facts": "validity, supersedes_id, concat_ws('|', tenant_id, scope, subject, predicate) as key",
        "rules": "success_count as marks",
        "episodes": "1",
    }[table]
    statement = f"select id::text, content, reference_count, {columns} from {table}"  # noqa: S608 — constants
    return {row["id"]: dict(row) for row in await owner.fetch(statement)}


def parse_outcomes(page: str) -> Counter[str]:
    """The number of calls on the /metrics page by outcome."""
    counted: Counter[str] = Counter()
    for outcome, count in _CALLS_METRIC.findall(page):
        counted[outcome] += int(float(count))
    return counted
