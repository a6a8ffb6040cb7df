"""Scripted models for consolidation: in this process, and as a program in its own process."""
# ruff: noqa: S608 — the tables and columns are constants of the tests

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
from butlers.contract import SessionResult, StartCallback, Usage
from butlers.environment import Environment
from butlers.modules.memory.domain.model import NewEpisode
from butlers.modules.memory.embedding import EmbeddingEngine
from butlers.modules.memory.operations import writing
from butlers.modules.memory.runtime import Memory
from database.butler_processes import connected
from memory.memory_fixtures import REQUEST, Archive, write_butler

EPISODE_ID = re.compile(r'<episode id="([0-9a-f-]{36})"')
BUTLER_NAME = re.compile(r"The butler is called (\w+)\.")
KNOWN_ID = re.compile(r"^- ([0-9a-f-]{36}) ", re.MULTILINE)
EVERY_SECOND = "* * * * * *"


def model_output(**lists: Sequence[Any]) -> str:
    """Return a model's output: a sentence and the JSON in a code fence."""
    names = ("new_facts", "updated_facts", "new_rules", "confirmations")
    actions = {name: list(lists.pop(name, ())) for name in names}
    assert not lists
    return f"Here is what I found.\n\n```json\n{json.dumps(actions, indent=1)}\n```\n"


NO_ACTIONS = model_output()


def new_fact(content: str = "blue", predicate: str = "color", subject: str = "user", **more: Any) -> dict[str, Any]:
    """Return an entry of `new_facts`."""
    return {"subject": subject, "predicate": predicate, "content": content, **more}


def fact_update(target: str, content: str = "green", **more: Any) -> dict[str, Any]:
    """Return an entry of `updated_facts` with another key than its target's."""
    return {"target_id": target, "subject": "somebody", "predicate": "something", "content": content, **more}


def fact_per_episode(prompt: str) -> str:
    """Return an output with one fact for each episode, each under its own key."""
    return model_output(
        new_facts=[new_fact(f"seen in {each}", f"about {each}", evidence=[each]) for each in episode_ids_in(prompt)]
    )


def episode_ids_in(prompt: str) -> list[str]:
    """Return the ids of the episodes in a prompt, in order."""
    return EPISODE_ID.findall(prompt)


def known_ids_in(prompt: str, section: str) -> list[str]:
    """Return the ids a prompt lists under `## Known facts` or `## Known rules`, in order."""
    return KNOWN_ID.findall(prompt.split(f"## Known {section}\n", 1)[1].split("\n## ", 1)[0])


@dataclass(frozen=True)
class SessionRequest:
    """Arguments of one `spawn` call."""

    caller: Caller
    prompt: str
    trigger_source: str
    internal: bool

    @property
    def episodes(self) -> list[str]:
        return episode_ids_in(self.prompt)


@dataclass
class ScriptedModel:
    """A spawner with scripted answers: a text, an error to raise, or a function of the prompt."""

    answer: Any = NO_ACTIONS
    usage: Usage | None = field(default_factory=lambda: Usage(100, 20))
    unavailable: Exception | None = None
    starts: bool = True
    """Whether a session gets its turn before it answers or fails."""
    requests: list[SessionRequest] = field(default_factory=list)
    cancelled: int = 0

    def check(self) -> None:
        if self.unavailable is not None:
            raise self.unavailable

    async def spawn(
        self,
        caller: Caller,
        prompt: str,
        *,
        trigger_source: str,
        internal: bool = False,
        on_start: StartCallback | None = None,
    ) -> SessionResult:
        self.requests.append(SessionRequest(caller, prompt, trigger_source, internal))
        if on_start is not None and self.starts:
            await on_start()
        try:
            answer = self.answer(prompt) if callable(self.answer) else self.answer
            answer = await answer if inspect.isawaitable(answer) else answer
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(answer, Exception):
            raise answer
        return SessionResult(uuid4(), answer, self.usage)

    @property
    def episodes_shown(self) -> list[str]:
        """The ids of the episodes in all prompts, with repetitions."""
        return [each for request in self.requests for each in request.episodes]


class PausedAnswer:
    """An answer that waits until `may_finish` is set."""

    def __init__(self, answer: str | Callable[[str], Any]) -> None:
        self._answer = answer
        self.started, self.may_finish = asyncio.Event(), asyncio.Event()

    async def __call__(self, prompt: str) -> Any:
        self.started.set()
        await self.may_finish.wait()
        answer = self._answer(prompt) if callable(self._answer) else self._answer
        return await answer if inspect.isawaitable(answer) else answer


def answers_in_turn(*answers: Any) -> Callable[[str], Any]:
    """Return a function that gives one answer after the other and repeats the last."""
    left = list(answers)

    def next_answer(prompt: str) -> Any:
        answer = left.pop(0) if len(left) > 1 else left[0]
        return answer(prompt) if callable(answer) else answer

    return next_answer


def with_model(memory: Memory, spawner: Any, **consolidation: Any) -> Memory:
    """Return the memory with another spawner and other keys of [modules.memory.consolidation]."""
    config = memory.config.consolidation.model_copy(update=consolidation)
    return replace(
        memory, spawner=spawner, config=memory.config.model_copy(update={"consolidation": config}), background=set()
    )


async def store_episodes(memory: Memory, caller: Caller, *fact_contents: str, butler: str | None = None) -> list[str]:
    """Store episodes one after the other and return their ids."""
    admin = replace(caller, roles=frozenset({ADMIN}))
    return [
        (
            await writing.store_episode(
                memory, admin, NewEpisode(content=text, butler=butler or memory.butler), REQUEST
            )
        )["id"]
        for text in fact_contents
    ]


async def episode_states(archive: Archive, tenant: str) -> list[Mapping[str, Any]]:
    """Return the consolidation columns of a tenant's episodes, oldest first."""
    return await archive.rows(
        "select id::text, butler, consolidation_status as status, consolidation_attempts as attempts,"
        " last_consolidation_error as error, next_consolidation_retry_at as retry_at, lease_token, leased_until"
        " from episodes where tenant_id = $1 order by created_at, id",
        tenant,
    )


async def episode_statuses(archive: Archive, tenant: str) -> list[str]:
    """Return the consolidation status of a tenant's episodes, oldest first."""
    return [row["status"] for row in await episode_states(archive, tenant)]


async def runs_of(archive: Archive, tenant: str) -> list[Mapping[str, Any]]:
    """Return a tenant's consolidation runs, oldest first."""
    rows = await archive.rows("select * from consolidation_runs where tenant_id = $1 order by started_at, id", tenant)
    return [{**row, **{name: json.loads(row[name]) for name in ("errors", "parse_errors")}} for row in rows]


async def facts_of(archive: Archive, tenant: str, where: str = "validity = 'active'") -> list[Mapping[str, Any]]:
    """Return a tenant's facts, oldest first."""
    columns = (
        "id::text, subject, predicate, content, scope, permanence, importance, tags, metadata, validity,"
        " entity_id::text, source_butler, source_episode_id::text, supersedes_id::text, last_confirmed_at"
    )
    statement = f"select {columns} from facts where tenant_id = $1 and {where} order by created_at, predicate"
    rows = await archive.rows(statement, tenant)
    return [{**row, **{name: json.loads(row[name]) for name in ("tags", "metadata")}} for row in rows]


async def fact_contents(archive: Archive, tenant: str) -> list[str]:
    """Return the contents of a tenant's active facts, sorted."""
    return sorted(row["content"] for row in await facts_of(archive, tenant))


async def links_of(archive: Archive, tenant: str, relation: str = "derived_from") -> set[tuple[str, str]]:
    """Return a tenant's links of one relation, as pairs of ids."""
    rows = await archive.rows(
        "select source_id::text, target_id::text from memory_links where tenant_id = $1 and relation = $2",
        tenant,
        relation,
    )
    return {(row["source_id"], row["target_id"]) for row in rows}


async def count_leases(archive: Archive, tenant: str) -> int:
    """Return the number of a tenant's leased episodes."""
    return await archive.count("episodes", tenant, "(lease_token is not null or leased_until is not null)")


async def memory_rows(archive: Archive, tenant: str) -> list[Any]:
    """Return hashes of all memory rows of a tenant, and the consolidation columns of its episodes."""
    return [*await archive.everything(tenant), *await episode_states(archive, tenant)]


async def all_rows(archive: Archive, tenant: str) -> list[Any]:
    """Return the same with consolidation runs and sessions."""
    records = [
        await archive.rows(f"select md5(t::text) as row from {table} t where tenant_id = $1 order by 1", tenant)
        for table in ("consolidation_runs", "sessions")
    ]
    return [*await memory_rows(archive, tenant), *records]


async def make_retries_due(archive: Archive, tenant: str) -> None:
    """Make all pending retries of a tenant due now."""
    await archive.rows(
        "update episodes set next_consolidation_retry_at = now()"
        " where tenant_id = $1 and next_consolidation_retry_at is not null returning 1",
        tenant,
    )


@dataclass(frozen=True)
class SeparateButler:
    """A butler with its own database, for tests of all its tenants at once."""

    butler: Butler
    memory: Memory
    archive: Archive

    def new_caller(self) -> Caller:
        """Return a caller in a new tenant."""
        return self.butler.caller(f"t-{uuid4().hex}", actor="somebody")


@contextlib.asynccontextmanager
async def separate_butler(
    at: Path, environment: Environment, engine: EmbeddingEngine
) -> AsyncIterator[SeparateButler]:
    """Open a butler with its own database."""
    folder = write_butler(at, f"apart{uuid4().hex[:10]}")
    async with contextlib.AsyncExitStack() as stack:
        butler = await stack.enter_async_context(app.open_butler(app.load_configuration(folder), environment))
        connection = await stack.enter_async_context(connected(str(butler.location.admin_dsn)))
        yield SeparateButler(butler, replace(butler.modules[0].state, embedder=engine), Archive(connection))


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
class ScriptedProgram:
    """A program that logs each prompt, waits and answers one fact for each episode."""

    log: Path

    def calls(self) -> list[dict[str, Any]]:
        """Return its calls so far, each with pid, episode ids and prompt."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [json.loads(line) for line in lines]

    @property
    def episodes(self) -> list[str]:
        """The ids of the episodes in all prompts, with repetitions."""
        return [each for call in self.calls() for each in call["ids"]]


def write_scripted_butler(
    at: Path, name: str, *, seconds: float = 0.0, extra: str = ""
) -> tuple[Path, ScriptedProgram]:
    """Write the folder of a butler whose runtime is such a program; return the folder and the program."""
    program = ScriptedProgram(at / "calls.jsonl")
    script = at / "think.py"
    script.write_text(_PROGRAM)
    command = [sys.executable, "-I", "-S", str(script), str(program.log), str(seconds)]
    runtime = f'[butler.runtime]\ntype = "command"\ncommand = {json.dumps(command)}\n'
    return write_butler(at, name, f"{runtime}{extra}"), program
