"""State machine test: any sequence of tool calls and restarts, for several tenants, against the memory model."""

import contextlib
import uuid
from collections import Counter
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from fastmcp import Client
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from butlers import app
from faults.memory_model import EXISTS, OK, MemoryModel
from memory.memory_fixtures import build_tenant_server

TENANTS = 3
EVERYTHING = {"scope": "*", "limit": 100}


class RestartableButler:
    """A butler that can be closed and opened again, with a client for each tenant."""

    def __init__(self, loop, place, environment, engine, archive) -> None:
        self.run = loop.run_until_complete
        self.archive = archive
        self._opening = (app.load_configuration(place), environment)
        self._engine = engine
        self._stack = contextlib.AsyncExitStack()
        self._clients: dict[str, Client[Any]] = {}

    async def open(self) -> None:
        self._butler = await self._stack.enter_async_context(app.open_butler(*self._opening))
        self._memory = replace(self._butler.modules[0].state, embedder=self._engine)
        self.butler = self._memory.butler

    async def close(self) -> None:
        self._clients.clear()
        await self._stack.aclose()

    async def call(self, tenant: str, tool: str, **arguments: Any) -> tuple[str, Any]:
        """Call a tool and return the error code, or OK, and the answer."""
        if tenant not in self._clients:
            client = Client(build_tenant_server(self._butler, self._memory, tenant).mcp)
            self._clients[tenant] = await self._stack.enter_async_context(client)
        answer = await self._clients[tenant].call_tool(tool, arguments, raise_on_error=False)
        if answer.is_error:
            return answer.content[0].text.partition(":")[0], None
        content = answer.structured_content or {}
        return OK, content["result"] if set(content) == {"result"} else content


WHO = st.integers(0, TENANTS - 1)
CONTENT = st.sampled_from(["green tea", "black coffee", "cold milk"])
NAME = st.sampled_from(["Ada", "ADA", "Grace", "Coco"])


class MemoryMachine(RuleBasedStateMachine):
    """Tenants that call every tool with their own ids and with those of others."""

    memories = Bundle("memories")
    entities = Bundle("entities")
    restartable: ClassVar[RestartableButler]

    def __init__(self) -> None:
        super().__init__()
        self.tenants = [f"t-{uuid.uuid4().hex}" for _ in range(TENANTS)]
        self.models = [MemoryModel() for _ in range(TENANTS)]
        self.touched: set[int] = set()

    def call(self, who: int, tool: str, **arguments: Any) -> tuple[str, Any]:
        self.touched.add(who)
        return self.restartable.run(self.restartable.call(self.tenants[who], tool, **arguments))

    def answer(self, who: int, tool: str, **arguments: Any) -> Any:
        code, answer = self.call(who, tool, **arguments)
        assert code == OK, (tool, arguments, code)
        return answer

    def content_of(self, who: int, content: str) -> str:
        """Return a content that names its tenant."""
        return f"{content} of tenant {who}"

    @rule(
        target=memories,
        who=WHO,
        predicate=st.sampled_from(["drink", "likes"]),
        content=CONTENT,
        scope=st.sampled_from(["global", "elsewhere"]),
        entity=st.none() | entities,
        sent=st.integers(1, 2),
    )
    def store_fact(self, who, predicate, content, scope, entity, sent):
        model, content = self.models[who], self.content_of(who, content)
        arguments = {"subject": "user", "predicate": predicate, "content": content, "scope": scope}
        arguments |= {"idempotency_key": uuid.uuid4().hex} | ({"entity_id": entity} if entity else {})
        answers = [self.call(who, "memory_store_fact", **arguments) for _ in range(sent)]
        code, answer = answers[0]
        assert answers == [(code, answer)] * sent, "a call repeated with its idempotency key gets the same answer"
        assert code == model.check_entity(entity)
        if code != OK:
            return "fact", str(uuid.uuid4())
        stored = {name: value for name, value in answer.items() if name not in {"similar", "hint"}}
        assert stored == model.store_fact(answer["id"], (scope, entity or "user", predicate), content, entity)
        return "fact", answer["id"]

    @rule(target=memories, who=WHO, kind=st.sampled_from(["rule", "episode"]), content=CONTENT)
    def store(self, who, kind, content):
        content = self.content_of(who, content)
        of_butler = {"butler": self.restartable.butler} if kind == "episode" else {}
        answer = self.answer(who, f"memory_store_{kind}", content=content, **of_butler)
        getattr(self.models[who], f"store_{kind}")(answer["id"], content)
        return kind, answer["id"]

    @rule(who=WHO, memory=memories, verb=st.sampled_from(["get", "confirm", "forget", "restore", "links", "history"]))
    def touch(self, who, memory, verb):
        kind, memory_id = memory
        model = self.models[who]
        code, answer = self.call(who, f"memory_{verb}", memory_type=kind, memory_id=memory_id)
        action = {"links": model.inspect, "history": model.inspect}.get(verb) or getattr(model, verb)
        assert code == action(kind, memory_id), (verb, kind)
        if code == OK and verb == "get":
            assert answer["content"] == model.find(kind, memory_id).content
        if code == OK and verb == "links":
            assert {(each["source_id"], each["target_id"]) for each in answer} == {
                each for each in model.links if memory_id in each
            }
        if code == OK and verb == "history":
            expected = Counter({event: n for (event, changed), n in model.events.items() if changed == memory_id})
            assert Counter(each["event_type"] for each in answer["events"]) == expected

    @rule(who=WHO, memory=memories, helpful=st.booleans(), times=st.sampled_from([1, 3, 5]))
    def mark(self, who, memory, helpful, times):
        _, rule_id = memory
        for _ in range(times):
            code, _ = self.call(who, f"memory_mark_{'helpful' if helpful else 'harmful'}", rule_id=rule_id)
            assert code == self.models[who].mark(rule_id, helpful=helpful)

    @rule(who=WHO, mode=st.sampled_from(["semantic", "hybrid", "blended"]))
    def search(self, who, mode):
        model = self.models[who]
        found = self.answer(who, "memory_search", query="what to drink", mode=mode, min_confidence=0, **EVERYTHING)
        assert {each["id"] for each in found} == set(model.live("fact", "rule", "episode"))
        recalled = self.answer(who, "memory_recall", topic="what to drink", **EVERYTHING)
        assert {each["id"] for each in recalled} == model.recall()

    @rule(who=WHO)
    def read_context(self, who):
        model = self.models[who]
        block = self.answer(who, "memory_context", trigger_prompt="what to drink", butler=self.restartable.butler)
        lines = [line for line in block.splitlines() if line.startswith("- ")]
        seen = list(model.live("fact", "rule", "episode").values())
        assert all(any(each.content in line for each in seen) for line in lines)
        assert bool(lines) or all(map(model.awaits_inversion, model.live("rule", "episode")))

    @rule(who=WHO, dry_run=st.booleans())
    def clean_up(self, who, dry_run):
        model = self.models[who]
        waiting = self.answer(who, "memory_run_consolidation", dry_run=True)["waiting"]
        assert waiting == len(model.live("episode"))
        assert self.answer(who, "memory_dead_letters") == {"dead_letters": [], "total": 0}
        expired = len(model.episodes) - len(model.live("episode"))
        done = self.answer(who, "memory_run_episode_cleanup", max_entries=0, dry_run=dry_run)
        assert done["expired_deleted"] == (expired if dry_run else model.clean_up())
        assert (done["capacity_deleted"], done["remaining"]) == (0, len(model.live("episode")))

    @rule(who=WHO, memory=memories, dry_run=st.booleans())
    def retract(self, who, memory, dry_run):
        _, episode_id = memory
        model = self.models[who]
        answer = self.answer(who, "memory_retract_from", episode_id=episode_id, dry_run=dry_run)
        assert [each["id"] for each in answer["found"]] == [each for each in model.episodes if each == episode_id]
        if not dry_run:
            assert model.retract(episode_id) == OK

    @rule(target=entities, who=WHO, name=NAME, aliases=st.lists(NAME, max_size=2))
    def create_entity(self, who, name, aliases):
        model = self.models[who]
        code, answer = self.call(who, "entity_create", canonical_name=name, entity_type="person", aliases=aliases)
        assert code == (EXISTS if model.find_entity(name) else OK)
        if code != OK:
            return str(uuid.uuid4())
        model.create_entity(answer["id"], name, aliases)
        return answer["id"]

    @rule(who=WHO, entity=entities, name=NAME, aliases=st.lists(NAME, max_size=2))
    def rename(self, who, entity, name, aliases):
        code, _ = self.call(who, "entity_update", entity_id=entity, canonical_name=name, aliases=aliases)
        assert code == self.models[who].rename(entity, name, aliases)

    @rule(who=WHO, entity=entities, name=NAME)
    def resolve(self, who, entity, name):
        model = self.models[who]
        found = self.answer(who, "entity_resolve", name=name)
        expected = {each for each, it in model.unmerged().items() if name.lower() in _names(it)}
        assert {each["entity_id"] for each in found} == expected
        code, answer = self.call(who, "entity_get", entity_id=entity)
        assert code == (OK if entity in model.entities else "not_found")
        if code == OK:
            live = [each for each in model.live("fact").values() if each.entity == entity]
            assert answer["live_facts"] == len(live)

    @rule(who=WHO, source=entities, into=entities)
    def merge(self, who, source, into):
        code, _ = self.call(who, "entity_merge", source_entity_id=source, target_entity_id=into)
        assert code == self.models[who].merge(source, into)

    @rule()
    def restart(self):
        self.restartable.run(self.restartable.close())
        self.restartable.run(self.restartable.open())

    @invariant()
    def the_database_matches_the_model(self):
        for who in sorted(self.touched):
            self.restartable.run(_assert_matches_model(self.restartable.archive, self.tenants[who], self.models[who]))
        self.touched.clear()

    def teardown(self):
        """Check every tenant's rows once more, and the counts."""
        for who, model in enumerate(self.models):
            self.restartable.run(_assert_matches_model(self.restartable.archive, self.tenants[who], model))
            counted = self.answer(who, "memory_stats")
            for kind, counts in model.counts().items():
                assert {name: counted[kind][name] for name in counts} == counts, kind


def _names(entity: Any) -> set[str]:
    return {entity.name.lower(), *(alias.lower() for alias in entity.aliases)}


async def _assert_matches_model(archive: Any, tenant: str, model: MemoryModel) -> None:
    async def rows(columns: str, table: str) -> dict[str, tuple[Any, ...]]:
        statement = f"select id::text, {columns} from {table} where tenant_id = $1"  # noqa: S608 — constants of this file
        return {row["id"]: tuple(row.values())[1:] for row in await archive.rows(statement, tenant)}

    validity = {"forgotten": "retracted"}
    assert await rows(
        "content, validity, supersedes_id::text, entity_id::text, scope, predicate, reference_count", "facts"
    ) == {
        each: (it.content, validity.get(it.state, it.state), it.supersedes, it.entity, it.key[0], it.key[2], it.reads)
        for each, it in model.facts.items()
    }
    assert await rows(
        "content, metadata ? 'forgotten' as forgotten, success_count, harmful_count, applied_count, maturity,"
        " metadata ? 'needs_inversion' as awaits_inversion, reference_count",
        "rules",
    ) == {
        each: (
            *(it.content, it.state == "forgotten", it.helped, it.harmed, it.helped + it.harmed, it.maturity),
            *(it.awaits_inversion, it.reads),
        )
        for each, it in model.rules.items()
    }
    assert await rows("content, metadata ? 'forgotten_until', reference_count", "episodes") == {
        each: (it.content, it.state == "forgotten", it.reads) for each, it in model.episodes.items()
    }
    entities = await rows("metadata ->> 'merged_into', canonical_name, aliases", "entities")
    assert {each: row[0] for each, row in entities.items()} == {
        each: it.merged_into for each, it in model.entities.items()
    }
    assert {each: (row[1], list(row[2])) for each, row in entities.items() if row[0] is None} == {
        each: (it.name, it.aliases) for each, it in model.unmerged().items()
    }
    events = Counter((row["event_type"], row["entity_id"]) for row in await archive.events(tenant))
    assert events == model.events
    links = "select source_id::text, target_id::text from memory_links where tenant_id = $1"
    assert {tuple(row.values()) for row in await archive.rows(links, tenant)} == model.links
    replaced = Counter(it.supersedes for it in model.facts.values() if it.supersedes)
    assert max(replaced.values(), default=0) <= 1, "a fact is superseded by one fact only"


@pytest.fixture
def restartable(loop, place, butler, environment, engine, archive):
    """A restartable butler on the database of this worker."""
    opened = RestartableButler(loop, place, environment, engine, archive)
    loop.run_until_complete(opened.open())
    yield opened
    loop.run_until_complete(opened.close())


def _run_machine(restartable: RestartableButler, examples: int, steps: int) -> None:
    MemoryMachine.restartable = restartable
    run_state_machine_as_test(
        MemoryMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            # No shrinking: it takes minutes.
            phases=(Phase.explicit, Phase.reuse, Phase.generate),
        ),
    )


def test_row_29_after_any_calls_and_restarts_each_tenant_has_what_the_rules_say_and_no_more(restartable):
    _run_machine(restartable, examples=3, steps=20)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_row_29_the_same_holds_after_very_many_calls(restartable):
    _run_machine(restartable, examples=20, steps=40)
