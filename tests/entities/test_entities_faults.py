"""Faults of entities: concurrent writers, a merge that fails half-way, random sequences of operations."""

import asyncio
import uuid
from collections import Counter
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test

from butlers.caller import Caller
from butlers.errors import AlreadyExists, Conflict, Fault, InvalidInput
from butlers.modules.memory.domain.entities import EntityChange, EntityType, NewEntity
from butlers.modules.memory.domain.errors import EntityMergedAway
from butlers.modules.memory.domain.model import MemoryType, NewFact
from butlers.modules.memory.operations import entities, management, writing
from butlers.modules.memory.store import entities as store
from database.butler_processes import connected, eventually
from memory.memory_fixtures import REQUEST, Archive


async def create_entity(memory, caller, name: str) -> uuid.UUID:
    new = NewEntity(canonical_name=name, entity_type=EntityType.PERSON)
    return uuid.UUID((await entities.create(memory, caller, new, REQUEST))["id"])


def color_fact(entity_id: uuid.UUID, content: str) -> NewFact:
    return NewFact(subject="Chloe", predicate="color", content=content, entity_id=entity_id)


async def assert_sound(archive: Archive, tenant: str) -> None:
    """Assert that no live fact belongs to a merged entity and no key has two live facts."""
    assert (
        await archive.rows(
            "select f.id from facts f join entities e on e.tenant_id = f.tenant_id and e.id = f.entity_id"
            " where f.tenant_id = $1 and e.metadata ? 'merged_into'",
            tenant,
        )
        == []
    )
    assert (
        await archive.rows(
            "select entity_id, scope, predicate from facts where tenant_id = $1 and validity = 'active'"
            " group by 1, 2, 3, coalesce(entity_id::text, subject) having count(*) > 1",
            tenant,
        )
        == []
    )


async def test_row_03_of_opposite_merges_at_once_one_wins_and_the_other_gets_a_conflict(memory, caller, archive):
    for number in range(15):
        one, two = (
            await create_entity(memory, caller, f"one {number}"),
            await create_entity(memory, caller, f"two {number}"),
        )
        for each in (one, two):
            await writing.store_fact(memory, caller, color_fact(each, f"of {each}"), REQUEST)
        pairs = ((one, two), (two, one)) if number % 2 else ((two, one), (one, two))
        results = await asyncio.gather(
            *(entities.merge(memory, caller, *pair, REQUEST) for pair in pairs), return_exceptions=True
        )
        assert Counter(type(each) for each in results) == {dict: 1, EntityMergedAway: 1}, results
        assert await archive.count("facts", caller.tenant, "validity = 'active'") == number + 1
    assert await archive.count("memory_events", caller.tenant, "event_type = 'entity_merge'") == 15
    await assert_sound(archive, caller.tenant)


async def test_row_03_merges_in_a_circle_end_without_a_deadlock(memory, caller, archive):
    ring = [await create_entity(memory, caller, f"ring {number}") for number in range(6)]
    for each in ring:
        await writing.store_fact(memory, caller, color_fact(each, f"of {each}"), REQUEST)
    pairs = zip(ring, [*ring[1:], ring[0]], strict=True)
    results = await asyncio.gather(
        *(entities.merge(memory, caller, *pair, REQUEST) for pair in pairs), return_exceptions=True
    )
    assert {type(each) for each in results} <= {dict, EntityMergedAway}, results
    merged = sum(isinstance(each, dict) for each in results)
    assert 1 <= merged < 6
    assert await archive.count("entities", caller.tenant, "not metadata ? 'merged_into'") == 6 - merged
    assert await archive.count("facts", caller.tenant) == 6
    await assert_sound(archive, caller.tenant)


async def test_row_02_storing_against_merging_ends_in_one_of_the_two_orders(memory, caller, archive):
    for number in range(12):
        source, target = (
            await create_entity(memory, caller, f"s {number}"),
            await create_entity(memory, caller, f"t {number}"),
        )
        merge = entities.merge(memory, caller, source, target, REQUEST)
        store_it = writing.store_fact(memory, caller, color_fact(source, f"new {number}"), REQUEST)
        calls = (merge, store_it) if number % 2 else (store_it, merge)
        results: list[Any] = [*await asyncio.gather(*calls, return_exceptions=True)]
        merged, stored = results if number % 2 else reversed(results)
        assert isinstance(merged, dict), merged
        if isinstance(stored, Conflict):
            assert merged["facts_repointed"] == 0
        else:
            assert merged["facts_repointed"] == 1
            assert (await archive.row("fact", stored["id"]))["entity_id"] == target
            events = await archive.rows("select event_type from memory_events where entity_id = $1", stored["id"])
            assert [event["event_type"] for event in events] == ["fact_created"]
        await assert_sound(archive, caller.tenant)


async def test_row_02_many_stores_on_both_sides_of_a_merge_leave_one_live_fact(memory, caller, archive):
    source, target = await create_entity(memory, caller, "source"), await create_entity(memory, caller, "target")
    stores = [
        writing.store_fact(memory, caller, color_fact(each, f"{name} {number}"), REQUEST)
        for number in range(10)
        for name, each in (("theirs", source), ("ours", target))
    ]
    calls = [*stores[:10], entities.merge(memory, caller, source, target, REQUEST), *stores[10:]]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(each) for each in results} <= {dict, EntityMergedAway}, results
    stored = [each for each in results if isinstance(each, dict) and "source_entity_id" not in each]
    assert await archive.count("facts", caller.tenant) == len(stored)
    assert await archive.count("facts", caller.tenant, "validity = 'active'") == 1
    await assert_sound(archive, caller.tenant)


async def test_a_store_waits_for_the_merge_under_way_and_is_told_where_to_go(memory, caller, archive):
    """Scenario: Row-level locking during merge"""
    source, target = await create_entity(memory, caller, "source"), await create_entity(memory, caller, "target")
    async with memory.transaction(caller) as tx:
        assert set(await store.lock(tx, caller, source, target)) == {source, target}
        storing = [
            asyncio.create_task(writing.store_fact(memory, caller, color_fact(each, "blue"), REQUEST))
            for each in (source, target)
        ]
        await eventually(lambda: wait_for_locks(archive, 2), "both stores to wait")
        await store.write_merge_source(tx, caller, source, {"merged_into": str(target)})
    refused, stored = await asyncio.gather(*storing, return_exceptions=True)
    assert isinstance(refused, EntityMergedAway)
    assert isinstance(stored, dict)
    await assert_sound(archive, caller.tenant)


async def wait_for_locks(archive: Archive, number: int) -> bool:
    (row,) = await archive.rows(
        "select count(*) as n from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    )
    return row["n"] >= number


async def test_a_restored_fact_and_a_merge_at_once_never_make_two(memory, caller, archive):
    for number in range(10):
        source, target = (
            await create_entity(memory, caller, f"s {number}"),
            await create_entity(memory, caller, f"t {number}"),
        )
        gone = uuid.UUID((await writing.store_fact(memory, caller, color_fact(target, "green"), REQUEST))["id"])
        await management.forget(memory, caller, MemoryType.FACT, gone, REQUEST)
        await writing.store_fact(memory, caller, color_fact(source, "blue"), REQUEST)
        calls = [
            entities.merge(memory, caller, source, target, REQUEST),
            management.restore(memory, caller, MemoryType.FACT, gone, REQUEST),
        ]
        results = await asyncio.gather(*(calls if number % 2 else reversed(calls)), return_exceptions=True)
        assert all(isinstance(each, (dict, Conflict)) for each in results), results
        await assert_sound(archive, caller.tenant)


@asynccontextmanager
async def fail_writes(archive: Archive, table: str, tenant: str):
    """Make the writes of a tenant to a table fail."""
    run = archive.connection.execute
    await run(
        "create or replace function fail_on_purpose() returns trigger language plpgsql as"
        f" $$ begin if new.tenant_id = '{tenant}' then raise exception 'on purpose'; end if; return new; end $$"
    )
    await run(
        f"create trigger fail_on_purpose before insert or update on {table}"
        " for each row execute function fail_on_purpose()"
    )
    try:
        yield
    finally:
        await run(f"drop trigger fail_on_purpose on {table}")
        await run("drop function fail_on_purpose()")


@pytest.mark.parametrize("table", ["facts", "memory_links", "entities", "memory_events", "idempotency_keys"])
async def test_a_merge_that_fails_half_way_has_changed_nothing_and_can_be_sent_again(tools, archive, table):
    source = await tools.entity("Chloe", aliases=["Coco"], metadata={"a": 1})
    target = await tools.entity("Chloe Martin")
    for each in (source, target):
        await tools.fact(f"color of {each}", entity_id=each)
    before = await archive.everything(tools.tenant)
    asked = {"source_entity_id": source, "target_entity_id": target, "idempotency_key": "k"}
    async with fail_writes(archive, table, tools.tenant):
        assert (await tools.refusal("entity_merge", **asked)).startswith("internal: ")
    assert await archive.everything(tools.tenant) == before
    done = await tools("entity_merge", **asked)
    assert (done["facts_repointed"], done["facts_superseded"]) == (1, 1)
    await assert_sound(archive, tools.tenant)


async def test_a_merge_cancelled_at_any_moment_is_done_or_not(memory, caller, archive):
    for number in range(12):
        source, target = (
            await create_entity(memory, caller, f"s {number}"),
            await create_entity(memory, caller, f"t {number}"),
        )
        for each in (source, target):
            await writing.store_fact(memory, caller, color_fact(each, f"of {each}"), REQUEST)
        call = asyncio.create_task(entities.merge(memory, caller, source, target, REQUEST))
        await asyncio.sleep(0.001 * number)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    merged = await archive.count("entities", caller.tenant, "metadata ? 'merged_into'")
    assert await archive.count("memory_events", caller.tenant, "event_type = 'entity_merge'") == merged
    assert await archive.count("facts", caller.tenant, "validity = 'active'") == 24 - merged
    await assert_sound(archive, caller.tenant)


NAMES = st.sampled_from(["Chloe", "CHLOE", "Chloé", "Ada", "李明", "Coco"])


class Entities(RuleBasedStateMachine):
    """Operations on entities and their facts, in random order."""

    known = Bundle("known")
    stored = Bundle("stored")
    stage: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.run = self.stage["loop"].run_until_complete
        self.archive, self.memory = self.stage["archive"], self.stage["memory"]
        self.caller = Caller(tenant=f"t-{uuid.uuid4().hex}", butler=self.memory.butler)
        self.facts: set[str] = set()
        self.living: set[uuid.UUID] = set()

    def attempt(self, work: Any) -> Any:
        """Return the answer or the fault; any other exception fails the test."""
        try:
            return self.run(work)
        except (Conflict, AlreadyExists, InvalidInput):
            return None

    @rule(target=known, name=NAMES, aliases=st.lists(NAMES, max_size=2))
    def create(self, name, aliases):
        new = NewEntity(canonical_name=name, entity_type=EntityType.PERSON, aliases=tuple(aliases))
        answer = self.attempt(entities.create(self.memory, self.caller, new, REQUEST))
        if answer is None:
            return uuid.uuid4()
        self.living.add(uuid.UUID(answer["id"]))
        return uuid.UUID(answer["id"])

    @rule(entity=known, aliases=st.lists(NAMES, max_size=3), name=st.none() | NAMES)
    def update(self, entity, aliases, name):
        if entity in self.living:
            change = EntityChange(aliases=tuple(aliases), canonical_name=name)
            self.attempt(entities.update(self.memory, self.caller, entity, change, REQUEST))

    @rule(target=stored, entity=known, predicate=st.sampled_from("pq"), content=st.sampled_from("ab"))
    def store(self, entity, predicate, content):
        if entity not in self.living:
            return None
        fact = NewFact(subject="s", predicate=predicate, content=content, entity_id=entity)
        answer = self.attempt(writing.store_fact(self.memory, self.caller, fact, REQUEST))
        self.facts.add(answer["id"])
        return uuid.UUID(answer["id"])

    @rule(fact=stored, way=st.sampled_from(["forget", "restore"]))
    def turn(self, fact, way):
        if fact:
            work = getattr(management, way)
            self.attempt(work(self.memory, self.caller, MemoryType.FACT, fact, REQUEST))

    @rule(fact=stored, confidence=st.sampled_from(["0.1", "0.5", "0.9"]))
    def doubt(self, fact, confidence):
        if fact:
            self.run(self.archive.change("fact", str(fact), confidence=confidence))

    @rule(source=known, into=known)
    def merge(self, source, into):
        if not {source, into} <= self.living:
            return
        before = self.run(self.archive.count("facts", self.caller.tenant, "validity = 'active'"))
        answer = self.attempt(entities.merge(self.memory, self.caller, source, into, REQUEST))
        assert (answer is None) == (source == into)
        if answer:
            self.living.discard(source)
            after = self.run(self.archive.count("facts", self.caller.tenant, "validity = 'active'"))
            assert after == before - answer["facts_superseded"]

    @rule(source=consumes(known), into=known)
    def merge_what_may_be_gone(self, source, into):
        if not {source, into} <= self.living:
            with pytest.raises(Fault):
                self.run(entities.merge(self.memory, self.caller, source, into, REQUEST))

    @invariant()
    def no_fact_is_lost(self):
        rows = self.run(self.archive.rows("select id::text from facts where tenant_id = $1", self.caller.tenant))
        assert {row["id"] for row in rows} == self.facts

    @invariant()
    def no_key_has_two_live_facts_and_no_merged_entity_any(self):
        self.run(assert_sound(self.archive, self.caller.tenant))

    @invariant()
    def the_living_are_those_that_were_not_merged(self):
        rows = self.run(
            self.archive.rows(
                "select id from entities where tenant_id = $1 and not metadata ? 'merged_into'", self.caller.tenant
            )
        )
        assert {row["id"] for row in rows} == self.living


def test_no_sequence_of_creates_aliases_facts_and_merges_loses_a_fact(loop, archive, memory):
    Entities.stage = {"loop": loop, "archive": archive, "memory": memory}
    run_state_machine_as_test(
        Entities,
        settings=settings(
            max_examples=20, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


async def test_a_merge_of_many_facts_is_one_merge(tools, archive):
    source, target = await tools.entity("Chloe"), await tools.entity("Chloe Martin")
    for each, confidence in ((source, 0.9), (target, 0.5)):
        await archive.connection.execute(
            "insert into facts (tenant_id, subject, predicate, content, entity_id, confidence)"
            " select $1, 's', 'p' || n, 'c', $2, $3 from generate_series(1, 2000) n",
            tools.tenant,
            each,
            confidence,
        )
    done = await tools("entity_merge", source_entity_id=source, target_entity_id=target)
    assert (done["facts_repointed"], done["facts_superseded"]) == (2000, 2000)
    await assert_sound(archive, tools.tenant)


async def test_a_connection_cut_in_the_middle_of_a_merge_leaves_nothing_of_it(butler, memory, caller, archive):
    source, target = await create_entity(memory, caller, "source"), await create_entity(memory, caller, "target")
    held = (await writing.store_fact(memory, caller, color_fact(source, "blue"), REQUEST))["id"]
    before = await archive.everything(caller.tenant)
    async with connected(butler.location.admin_dsn) as other, other.transaction():
        await other.execute("select from facts where id = $1 for update", held)
        merging = asyncio.create_task(entities.merge(memory, caller, source, target, REQUEST))
        await eventually(lambda: wait_for_locks(archive, 1), "the merge to wait for the fact")
        await archive.rows(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and wait_event_type = 'Lock'"
        )
        (result,) = await asyncio.gather(merging, return_exceptions=True)
    assert isinstance(result, Fault)
    assert result.code == "unavailable"
    assert await archive.everything(caller.tenant) == before
    assert await entities.merge(memory, caller, source, target, REQUEST)
