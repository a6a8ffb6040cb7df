"""Any sequence of tools, for several tenants, with restarts in between, against the plain book of the rules."""

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
from faults.ledger import EXISTS, OK, Ledger
from memory.stage import served

TENANTS = 3
SEEN = {"scope": "*", "limit": 100}


class House:
    """A butler that can be closed and opened again, and the tools of whoever asks."""

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
        """The code of an answer, and what it says."""
        if tenant not in self._clients:
            client = Client(served(self._butler, self._memory, tenant).mcp)
            self._clients[tenant] = await self._stack.enter_async_context(client)
        answer = await self._clients[tenant].call_tool(tool, arguments, raise_on_error=False)
        if answer.is_error:
            return answer.content[0].text.partition(":")[0], None
        said = answer.structured_content or {}
        return OK, said["result"] if set(said) == {"result"} else said


WHO = st.integers(0, TENANTS - 1)
CONTENT = st.sampled_from(["green tea", "black coffee", "cold milk"])
NAME = st.sampled_from(["Ada", "ADA", "Grace", "Coco"])


class Everything(RuleBasedStateMachine):
    """Tenants that do whatever the tools offer, with what is theirs and with what is another's."""

    memories = Bundle("memories")
    entities = Bundle("entities")
    house: ClassVar[House]

    def __init__(self) -> None:
        super().__init__()
        self.tenants = [f"t-{uuid.uuid4().hex}" for _ in range(TENANTS)]
        self.ledgers = [Ledger() for _ in range(TENANTS)]
        self.touched: set[int] = set()

    def call(self, who: int, tool: str, **arguments: Any) -> tuple[str, Any]:
        self.touched.add(who)
        return self.house.run(self.house.call(self.tenants[who], tool, **arguments))

    def answer(self, who: int, tool: str, **arguments: Any) -> Any:
        code, said = self.call(who, tool, **arguments)
        assert code == OK, (tool, arguments, code)
        return said

    def mine(self, who: int, content: str) -> str:
        """A content that says whose it is."""
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
        ledger, content = self.ledgers[who], self.mine(who, content)
        said = {"subject": "user", "predicate": predicate, "content": content, "scope": scope}
        said |= {"idempotency_key": uuid.uuid4().hex} | ({"entity_id": entity} if entity else {})
        answers = [self.call(who, "memory_store_fact", **said) for _ in range(sent)]
        code, answer = answers[0]
        assert answers == [(code, answer)] * sent, "sent again with its key, it is answered as before"
        assert code == ledger.about(entity)
        if code != OK:
            return "fact", str(uuid.uuid4())
        assert answer == ledger.store_fact(answer["id"], (scope, entity or "user", predicate), content, entity)
        return "fact", answer["id"]

    @rule(target=memories, who=WHO, kind=st.sampled_from(["rule", "episode"]), content=CONTENT)
    def store(self, who, kind, content):
        content = self.mine(who, content)
        of_butler = {"butler": self.house.butler} if kind == "episode" else {}
        answer = self.answer(who, f"memory_store_{kind}", content=content, **of_butler)
        getattr(self.ledgers[who], f"store_{kind}")(answer["id"], content)
        return kind, answer["id"]

    @rule(who=WHO, memory=memories, verb=st.sampled_from(["get", "confirm", "forget", "restore", "links", "history"]))
    def touch(self, who, memory, verb):
        kind, memory_id = memory
        ledger = self.ledgers[who]
        code, answer = self.call(who, f"memory_{verb}", memory_type=kind, memory_id=memory_id)
        expected = {"links": ledger.look, "history": ledger.look}.get(verb) or getattr(ledger, verb)
        assert code == expected(kind, memory_id), (verb, kind)
        if code == OK and verb == "get":
            assert answer["content"] == ledger.found(kind, memory_id).content
        if code == OK and verb == "links":
            assert {(each["source_id"], each["target_id"]) for each in answer} == {
                each for each in ledger.links if memory_id in each
            }
        if code == OK and verb == "history":
            told = Counter({event: count for (event, about), count in ledger.events.items() if about == memory_id})
            assert Counter(each["event_type"] for each in answer["events"]) == told

    @rule(who=WHO, memory=memories, helpful=st.booleans(), times=st.sampled_from([1, 3, 5]))
    def mark(self, who, memory, helpful, times):
        _, rule_id = memory
        for _ in range(times):
            code, _ = self.call(who, f"memory_mark_{'helpful' if helpful else 'harmful'}", rule_id=rule_id)
            assert code == self.ledgers[who].mark(rule_id, helpful=helpful)

    @rule(who=WHO, mode=st.sampled_from(["semantic", "hybrid", "blended"]))
    def find(self, who, mode):
        ledger = self.ledgers[who]
        found = self.answer(who, "memory_search", query="what to drink", mode=mode, min_confidence=0, **SEEN)
        assert {each["id"] for each in found} == set(ledger.live("fact", "rule", "episode"))
        recalled = self.answer(who, "memory_recall", topic="what to drink", **SEEN)
        assert {each["id"] for each in recalled} == ledger.recalled()

    @rule(who=WHO)
    def brief(self, who):
        ledger = self.ledgers[who]
        block = self.answer(who, "memory_context", trigger_prompt="what to drink", butler=self.house.butler)
        lines = [line for line in block.splitlines() if line.startswith("- ")]
        seen = list(ledger.live("fact", "rule", "episode").values())
        assert all(any(each.content in line for each in seen) for line in lines)
        assert bool(lines) or all(map(ledger.is_to_be_a_warning, ledger.live("rule", "episode")))

    @rule(who=WHO, dry_run=st.booleans())
    def tidy(self, who, dry_run):
        ledger = self.ledgers[who]
        waiting = self.answer(who, "memory_run_consolidation", dry_run=True)["waiting"]
        assert waiting == len(ledger.live("episode"))
        assert self.answer(who, "memory_dead_letters") == {"dead_letters": []}
        over = len(ledger.episodes) - len(ledger.live("episode"))
        done = self.answer(who, "memory_run_episode_cleanup", max_entries=0, dry_run=dry_run)
        assert done["expired_deleted"] == (over if dry_run else ledger.clean())
        assert (done["capacity_deleted"], done["remaining"]) == (0, len(ledger.live("episode")))

    @rule(who=WHO, memory=memories, dry_run=st.booleans())
    def retract(self, who, memory, dry_run):
        _, episode_id = memory
        ledger = self.ledgers[who]
        answer = self.answer(who, "memory_retract_from", episode_id=episode_id, dry_run=dry_run)
        assert [each["id"] for each in answer["found"]] == [each for each in ledger.episodes if each == episode_id]
        if not dry_run:
            assert ledger.retract(episode_id) == OK

    @rule(target=entities, who=WHO, name=NAME, aliases=st.lists(NAME, max_size=2))
    def create_entity(self, who, name, aliases):
        ledger = self.ledgers[who]
        code, answer = self.call(who, "entity_create", canonical_name=name, entity_type="person", aliases=aliases)
        assert code == (EXISTS if ledger.named(name) else OK)
        if code != OK:
            return str(uuid.uuid4())
        ledger.create_entity(answer["id"], name, aliases)
        return answer["id"]

    @rule(who=WHO, entity=entities, name=NAME, aliases=st.lists(NAME, max_size=2))
    def rename(self, who, entity, name, aliases):
        code, _ = self.call(who, "entity_update", entity_id=entity, canonical_name=name, aliases=aliases)
        assert code == self.ledgers[who].rename(entity, name, aliases)

    @rule(who=WHO, entity=entities, name=NAME)
    def meet(self, who, entity, name):
        ledger = self.ledgers[who]
        found = self.answer(who, "entity_resolve", name=name)
        called = {each for each, it in ledger.living().items() if name.lower() in _names(it)}
        assert {each["entity_id"] for each in found} == called
        code, answer = self.call(who, "entity_get", entity_id=entity)
        assert code == (OK if entity in ledger.entities else "not_found")
        if code == OK:
            live = [each for each in ledger.live("fact").values() if each.entity == entity]
            assert answer["live_facts"] == len(live)

    @rule(who=WHO, source=entities, into=entities)
    def merge(self, who, source, into):
        code, _ = self.call(who, "entity_merge", source_entity_id=source, target_entity_id=into)
        assert code == self.ledgers[who].merge(source, into)

    @rule()
    def restart(self):
        self.house.run(self.house.close())
        self.house.run(self.house.open())

    @invariant()
    def the_database_is_as_the_book_says(self):
        for who in sorted(self.touched):
            self.house.run(_assert_as_told(self.house.archive, self.tenants[who], self.ledgers[who]))
        self.touched.clear()

    def teardown(self):
        """Nobody's rows were changed by another, and the counts are right."""
        for who, ledger in enumerate(self.ledgers):
            self.house.run(_assert_as_told(self.house.archive, self.tenants[who], ledger))
            counted = self.answer(who, "memory_stats")
            for kind, counts in ledger.counts().items():
                assert {name: counted[kind][name] for name in counts} == counts, kind


def _names(entity: Any) -> set[str]:
    return {entity.name.lower(), *(alias.lower() for alias in entity.aliases)}


async def _assert_as_told(archive: Any, tenant: str, ledger: Ledger) -> None:
    async def rows(columns: str, table: str) -> dict[str, tuple[Any, ...]]:
        statement = f"select id::text, {columns} from {table} where tenant_id = $1"  # noqa: S608 — our own words
        return {row["id"]: tuple(row.values())[1:] for row in await archive.rows(statement, tenant)}

    words = {"forgotten": "retracted"}
    assert await rows(
        "content, validity, supersedes_id::text, entity_id::text, scope, predicate, reference_count", "facts"
    ) == {
        each: (it.content, words.get(it.state, it.state), it.supersedes, it.entity, it.key[0], it.key[2], it.reads)
        for each, it in ledger.facts.items()
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
        for each, it in ledger.rules.items()
    }
    assert await rows("content, metadata ? 'forgotten_until', reference_count", "episodes") == {
        each: (it.content, it.state == "forgotten", it.reads) for each, it in ledger.episodes.items()
    }
    known = await rows("metadata ->> 'merged_into', canonical_name, aliases", "entities")
    assert {each: row[0] for each, row in known.items()} == {
        each: it.merged_into for each, it in ledger.entities.items()
    }
    assert {each: (row[1], list(row[2])) for each, row in known.items() if row[0] is None} == {
        each: (it.name, it.aliases) for each, it in ledger.living().items()
    }
    trail = Counter((row["event_type"], row["entity_id"]) for row in await archive.events(tenant))
    assert trail == ledger.events
    edges = "select source_id::text, target_id::text from memory_links where tenant_id = $1"
    assert {tuple(row.values()) for row in await archive.rows(edges, tenant)} == ledger.links
    replaced = Counter(it.supersedes for it in ledger.facts.values() if it.supersedes)
    assert max(replaced.values(), default=0) <= 1, "a chain is a line"


@pytest.fixture
def house(loop, place, butler, environment, engine, archive):
    """A butler of the machine's own, on the database of this worker."""
    made = House(loop, place, environment, engine, archive)
    loop.run_until_complete(made.open())
    yield made
    loop.run_until_complete(made.close())


def _carry_out(house: House, examples: int, steps: int) -> None:
    Everything.house = house
    run_state_machine_as_test(
        Everything,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            # A failure is shown as it was found: making it smaller takes minutes.
            phases=(Phase.explicit, Phase.reuse, Phase.generate),
        ),
    )


def test_row_29_after_any_calls_and_restarts_each_tenant_has_what_the_rules_say_and_no_more(house):
    _carry_out(house, examples=6, steps=20)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_row_29_the_same_holds_after_very_many_calls(house):
    _carry_out(house, examples=20, steps=40)
