"""A model that says what was written down for it, and programs that take its place in processes of their own."""
# ruff: noqa: S608 — the tables and columns are the tests' own words

import asyncio
import contextlib
import inspect
import json
import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from butlers import app
from butlers.app import Butler
from butlers.caller import ADMIN, Caller
from butlers.contract import SessionResult, Usage
from butlers.environment import Environment
from butlers.modules.memory.domain.model import NewEpisode
from butlers.modules.memory.embedding import EmbeddingEngine
from butlers.modules.memory.operations import writing
from butlers.modules.memory.runtime import Memory
from database.stage import connected
from memory.stage import ASKED, Archive, write_butler

EPISODE = re.compile(r'<episode id="([0-9a-f-]{36})"')
KNOWN = re.compile(r"^- ([0-9a-f-]{36}) ", re.MULTILINE)
EVERY_SECOND = "* * * * * *"


def said(**lists: Sequence[Any]) -> str:
    """An answer as a model gives it: a word or two, and the JSON in a fence."""
    names = ("new_facts", "updated_facts", "new_rules", "confirmations")
    whole = {name: list(lists.pop(name, ())) for name in names}
    assert not lists
    return f"Here is what I found.\n\n```json\n{json.dumps(whole, indent=1)}\n```\n"


NOTHING = said()


def found(content: str = "blue", predicate: str = "color", subject: str = "user", **more: Any) -> dict[str, Any]:
    """An entry of `new_facts`."""
    return {"subject": subject, "predicate": predicate, "content": content, **more}


def updated(target: str, content: str = "green", **more: Any) -> dict[str, Any]:
    """An entry of `updated_facts`, in other words than its target's."""
    return {"target_id": target, "subject": "somebody", "predicate": "something", "content": content, **more}


def a_fact_each(prompt: str) -> str:
    """What a diligent model answers: one fact for each episode, under a key of that episode's own."""
    return said(
        new_facts=[found(f"seen in {each}", f"about {each}", evidence=[each]) for each in episodes_in(prompt)]
    )


def episodes_in(prompt: str) -> list[str]:
    """The ids of the episodes a prompt shows, in their order."""
    return EPISODE.findall(prompt)


def known_in(prompt: str, section: str) -> list[str]:
    """The ids a prompt lists under `## Known facts` or `## Known rules`, in their order."""
    return KNOWN.findall(prompt.split(f"## Known {section}\n", 1)[1].split("\n## ", 1)[0])


@dataclass(frozen=True)
class Asked:
    """What a session was started with."""

    caller: Caller
    prompt: str
    trigger_source: str
    internal: bool

    @property
    def episodes(self) -> list[str]:
        return episodes_in(self.prompt)


@dataclass
class Thinker:
    """A spawner whose answers are known: a text, an error to raise, or what a function makes of the prompt."""

    says: Any = NOTHING
    usage: Usage | None = field(default_factory=lambda: Usage(100, 20))
    missing: Exception | None = None
    asked: list[Asked] = field(default_factory=list)
    given_up: int = 0

    def check(self) -> None:
        if self.missing is not None:
            raise self.missing

    async def spawn(
        self, caller: Caller, prompt: str, *, trigger_source: str, internal: bool = False
    ) -> SessionResult:
        self.asked.append(Asked(caller, prompt, trigger_source, internal))
        try:
            answer = self.says(prompt) if callable(self.says) else self.says
            answer = await answer if inspect.isawaitable(answer) else answer
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        if isinstance(answer, Exception):
            raise answer
        return SessionResult(uuid4(), answer, self.usage)

    @property
    def read(self) -> list[str]:
        """Every episode it was shown, as often as it was."""
        return [each for asked in self.asked for each in asked.episodes]


class Pondering:
    """An answer that is not given before somebody says so."""

    def __init__(self, says: str | Callable[[str], Any]) -> None:
        self._says = says
        self.began, self.may_end = asyncio.Event(), asyncio.Event()

    async def __call__(self, prompt: str) -> Any:
        self.began.set()
        await self.may_end.wait()
        answer = self._says(prompt) if callable(self._says) else self._says
        return await answer if inspect.isawaitable(answer) else answer


def in_turn(*answers: Any) -> Callable[[str], Any]:
    """One answer after the other, the last for ever."""
    left = list(answers)

    def says(prompt: str) -> Any:
        answer = left.pop(0) if len(left) > 1 else left[0]
        return answer(prompt) if callable(answer) else answer

    return says


def minded(memory: Memory, spawner: Any, **consolidation: Any) -> Memory:
    """The same memory with that model, and with these keys of [modules.memory.consolidation]."""
    config = memory.config.consolidation.model_copy(update=consolidation)
    return replace(
        memory,
        spawner=spawner,
        config=memory.config.model_copy(update={"consolidation": config}),
        background=set(),
    )


async def happened(memory: Memory, caller: Caller, *contents: str, butler: str | None = None) -> list[str]:
    """The ids of new episodes, one later than the other."""
    teller = replace(caller, roles=frozenset({ADMIN}))
    return [
        (
            await writing.store_episode(
                memory, teller, NewEpisode(content=text, butler=butler or memory.butler), ASKED
            )
        )["id"]
        for text in contents
    ]


async def states(archive: Archive, tenant: str) -> list[Mapping[str, Any]]:
    """What consolidation knows of a tenant's episodes, oldest first."""
    return await archive.rows(
        "select id::text, butler, consolidation_status as status, consolidation_attempts as attempts,"
        " last_consolidation_error as error, next_consolidation_retry_at as retry_at, lease_token, leased_until"
        " from episodes where tenant_id = $1 order by created_at, id",
        tenant,
    )


async def statuses(archive: Archive, tenant: str) -> list[str]:
    """Only how far they are."""
    return [row["status"] for row in await states(archive, tenant)]


async def runs(archive: Archive, tenant: str) -> list[Mapping[str, Any]]:
    """The record of a tenant's batches, oldest first."""
    rows = await archive.rows("select * from consolidation_runs where tenant_id = $1 order by started_at, id", tenant)
    return [{**row, **{name: json.loads(row[name]) for name in ("errors", "parse_errors")}} for row in rows]


async def facts_of(archive: Archive, tenant: str, where: str = "validity = 'active'") -> list[Mapping[str, Any]]:
    """A tenant's facts, oldest first."""
    columns = (
        "id::text, subject, predicate, content, scope, permanence, importance, tags, metadata, validity,"
        " entity_id::text, source_butler, source_episode_id::text, supersedes_id::text, last_confirmed_at"
    )
    statement = f"select {columns} from facts where tenant_id = $1 and {where} order by created_at, predicate"
    rows = await archive.rows(statement, tenant)
    return [{**row, **{name: json.loads(row[name]) for name in ("tags", "metadata")}} for row in rows]


async def contents(archive: Archive, tenant: str) -> list[str]:
    """What a tenant's live facts say, in alphabetical order."""
    return sorted(row["content"] for row in await facts_of(archive, tenant))


async def linked(archive: Archive, tenant: str, relation: str = "derived_from") -> set[tuple[str, str]]:
    """A tenant's edges of one kind, as pairs of ids."""
    rows = await archive.rows(
        "select source_id::text, target_id::text from memory_links where tenant_id = $1 and relation = $2",
        tenant,
        relation,
    )
    return {(row["source_id"], row["target_id"]) for row in rows}


async def leases(archive: Archive, tenant: str) -> int:
    """How many of a tenant's episodes somebody has."""
    return await archive.count("episodes", tenant, "(lease_token is not null or leased_until is not null)")


async def effects_on(archive: Archive, tenant: str) -> list[Any]:
    """All a tenant remembers, and who has which of it."""
    return [*await archive.everything(tenant), *await states(archive, tenant)]


async def all_of(archive: Archive, tenant: str) -> list[Any]:
    """The same with the record of batches and sessions."""
    records = [
        await archive.rows(f"select md5(t::text) as row from {table} t where tenant_id = $1 order by 1", tenant)
        for table in ("consolidation_runs", "sessions")
    ]
    return [*await effects_on(archive, tenant), *records]


async def time_passes(archive: Archive, tenant: str) -> None:
    """The moment of the next attempt has come for everything of a tenant."""
    await archive.rows(
        "update episodes set next_consolidation_retry_at = now()"
        " where tenant_id = $1 and next_consolidation_retry_at is not null returning 1",
        tenant,
    )


@dataclass(frozen=True)
class Apart:
    """A butler with a database of its own, for what concerns all of its tenants at once."""

    butler: Butler
    memory: Memory
    archive: Archive

    def somebody(self) -> Caller:
        """A caller whose tenant nobody else has."""
        return self.butler.caller(f"t-{uuid4().hex}", actor="somebody")


@contextlib.asynccontextmanager
async def apart(at: Path, environment: Environment, engine: EmbeddingEngine) -> AsyncIterator[Apart]:
    """Such a butler, open."""
    folder = write_butler(at, f"apart{uuid4().hex[:10]}")
    async with contextlib.AsyncExitStack() as stack:
        butler = await stack.enter_async_context(app.open_butler(app.load_configuration(folder), environment))
        connection = await stack.enter_async_context(connected(str(butler.place.admin_dsn)))
        yield Apart(butler, replace(butler.modules[0].state, embedder=engine), Archive(connection))


_PROGRAM = """
import json, os, re, sys, time
log, seconds = sys.argv[1], float(sys.argv[2])
prompt = sys.stdin.read()
ids = re.findall(r'<episode id="([0-9a-f-]{36})"', prompt)
line = json.dumps({"pid": os.getpid(), "ids": ids, "prompt": prompt}) + "\\n"
with open(log, "a") as file:
    file.write(line)
time.sleep(seconds)
facts = [{"subject": "user", "predicate": "about " + i, "content": "seen in " + i, "evidence": [i]} for i in ids]
print(json.dumps({"new_facts": facts, "updated_facts": [], "new_rules": [], "confirmations": []}))
"""


@dataclass(frozen=True)
class Program:
    """A program that writes down each prompt, thinks for a while and answers a fact for each episode."""

    log: Path

    def read(self) -> list[dict[str, Any]]:
        """What it was asked so far: the process, the episodes, the prompt."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [json.loads(line) for line in lines]

    @property
    def episodes(self) -> list[str]:
        """Every episode it was shown, as often as it was."""
        return [each for asked in self.read() for each in asked["ids"]]


def write_thinking_butler(at: Path, name: str, *, seconds: float = 0.0, extra: str = "") -> tuple[Path, Program]:
    """The folder of a butler of that name whose runtime is such a program, and the program's own view."""
    program = Program(at / "asked.jsonl")
    script = at / "think.py"
    script.write_text(_PROGRAM)
    words = [sys.executable, "-I", "-S", str(script), str(program.log), str(seconds)]
    runtime = f'[butler.runtime]\ntype = "command"\ncommand = {json.dumps(words)}\n'
    return write_butler(at, name, f"{runtime}{extra}"), program
