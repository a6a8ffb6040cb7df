"""Claiming of episodes for consolidation: groups, leases, cancellation and limits."""

import asyncio
import random
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from fastmcp import Client

from butlers import db
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.module import MemoryModule
from butlers.modules.memory.operations import consolidation, management
from database.butler_processes import eventually
from memory.memory_fixtures import REQUEST, Tools, build_tenant_server
from memory.scripted_model import (
    BUTLER_NAME,
    NO_ACTIONS,
    PausedAnswer,
    ScriptedModel,
    all_rows,
    count_leases,
    episode_ids_in,
    episode_states,
    episode_statuses,
    fact_contents,
    fact_per_episode,
    facts_of,
    links_of,
    make_retries_due,
    memory_rows,
    model_output,
    new_fact,
    runs_of,
    store_episodes,
    with_model,
)


@asynccontextmanager
async def paused_worker(memory, caller, answer, **config):
    """Run a worker whose model waits until the block ends; yields the worker's task."""
    paused = PausedAnswer(answer)
    model = ScriptedModel(paused)
    running = asyncio.create_task(consolidation.consolidate(with_model(memory, model, **config), caller))
    await asyncio.wait({asyncio.create_task(paused.started.wait()), running}, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield running
    finally:
        paused.may_finish.set()
        await asyncio.wait({running}, timeout=20)


@pytest.fixture
async def second_worker(butler, memory):
    """The memory of a second worker with its own connections, as in another process."""
    database = await db.connect(butler.location.dsn)
    yield replace(memory, database=database)
    await database.close()


async def test_a_group_is_read_oldest_first_in_batches(memory, caller, archive):
    """Scenario: Episode grouping and prompt construction"""
    ids = await store_episodes(memory, caller, *(f"Number {number}" for number in range(5)))
    await archive.age("episode", ids[4], 2)
    model = ScriptedModel()
    done = await consolidation.consolidate(with_model(memory, model, batch_size=2), caller)
    assert [asked.episodes for asked in model.requests] == [[ids[4], ids[0]], ids[1:3], ids[3:4]]
    assert (done["batches"], done["episodes"]) == (3, 5)


class OverlapDetector:
    """A model that fails when two sessions of one group overlap."""

    def __init__(self):
        self.busy, self.order = set(), []

    async def __call__(self, prompt):
        (group,) = BUTLER_NAME.findall(prompt)
        assert group not in self.busy
        self.busy.add(group)
        await asyncio.sleep(random.uniform(0, 0.02))
        self.order += [(group, each) for each in episode_ids_in(prompt)]
        self.busy.remove(group)
        return fact_per_episode(prompt)


async def test_two_workers_share_the_work_and_no_episode_is_read_twice(memory, second_worker, caller, archive):
    groups = {
        name: await store_episodes(memory, caller, *(f"{name} {n}" for n in range(6)), butler=name) for name in "abc"
    }
    detector, models = OverlapDetector(), (ScriptedModel(), ScriptedModel())

    async def work(at, model):
        model.answer = detector
        while (await consolidation.dry_run(at, caller))["groups"]:
            await consolidation.consolidate(with_model(at, model, batch_size=2), caller)

    await asyncio.gather(*(work(at, model) for at, model in zip((memory, second_worker), models, strict=True)))
    for name, ids in groups.items():
        assert [each for group, each in detector.order if group == name] == ids, "in order, each once"
    assert all(model.requests for model in models)
    assert await archive.count("facts", caller.tenant) == 18
    assert {run["status"] for run in await runs_of(archive, caller.tenant)} == {"succeeded"}
    assert await episode_statuses(archive, caller.tenant) == ["consolidated"] * 18


async def test_fifty_runs_at_once_double_nothing(memory, caller, archive):
    ids = await store_episodes(memory, caller, *(f"Number {number}" for number in range(12)))
    model = ScriptedModel(OverlapDetector())
    scripted = with_model(memory, model, batch_size=4)
    answers = await asyncio.gather(*(consolidation.consolidate(scripted, caller) for _ in range(50)))
    answers.append(await consolidation.consolidate(scripted, caller))
    assert Counter(model.episodes_shown) == dict.fromkeys(ids, 1)
    assert sum(answer["facts_created"] for answer in answers) == await archive.count("facts", caller.tenant) == 12
    assert [answer["errors"] for answer in answers if answer["errors"]] == []
    assert await archive.count("memory_events", caller.tenant, "event_type = 'episode_consolidated'") == 12


async def test_a_group_somebody_works_on_is_left_alone_and_another_is_not(memory, second_worker, caller, archive):
    await store_episodes(memory, caller, "One", "Two", butler="one")
    async with paused_worker(memory, caller, fact_per_episode, batch_size=1) as running:
        await store_episodes(memory, caller, "Three", butler="two")
        model = ScriptedModel(fact_per_episode)
        done = await consolidation.consolidate(with_model(second_worker, model), caller)
        assert (done["batches"], len(model.requests)) == (1, 1)
        assert "The butler is called two." in model.requests[0].prompt
        assert await count_leases(archive, caller.tenant) == 1
    assert (await running)["episodes"] == 2
    assert await episode_statuses(archive, caller.tenant) == ["consolidated"] * 3


async def test_what_failed_is_not_overtaken_by_what_came_later(memory, caller, archive):
    first, second_worker = await store_episodes(memory, caller, "User lives in Porto", "User has a cat")
    model = ScriptedModel("no")
    await consolidation.consolidate(with_model(memory, model, batch_size=1), caller)
    (third,) = await store_episodes(memory, caller, "User has moved to Lisbon")
    model.answer = fact_per_episode
    await consolidation.consolidate(with_model(memory, model), caller)
    await make_retries_due(archive, caller.tenant)
    await consolidation.consolidate(with_model(memory, model), caller)
    assert model.episodes_shown == [first, first, second_worker, third]


async def test_two_groups_that_confirm_the_same_facts_at_once_both_succeed(
    memory, second_worker, caller, archive, tools
):
    facts = [await tools.fact(f"number {n}", predicate=f"n{n}") for n in range(2)]
    for name in ("one", "two"):
        await store_episodes(memory, caller, "One", butler=name)
    at, slowly = archive.connection, f"slowly_{uuid4().hex[:8]}"
    await at.execute(f"""
        create function {slowly}() returns trigger language plpgsql as
        $$ begin perform pg_sleep(0.3); return new; end $$;
        create trigger {slowly} before update on facts for each row
        when (old.tenant_id = '{caller.tenant}') execute function {slowly}()
    """)
    try:
        memories = [
            with_model(
                each,
                ScriptedModel(
                    lambda prompt: model_output(confirmations=facts if "called one" in prompt else facts[::-1])
                ),
            )
            for each in (memory, second_worker)
        ]
        answers = await asyncio.gather(*(consolidation.consolidate(scripted, caller) for scripted in memories))
    finally:
        await at.execute(f"drop trigger {slowly} on facts; drop function {slowly}()")
    assert sum(answer["confirmed"] for answer in answers) == 4
    assert [(row["status"], row["attempts"]) for row in await episode_states(archive, caller.tenant)] == [
        ("consolidated", 0)
    ] * 2


async def test_the_record_of_a_run_is_its_tenants_alone(memory, caller, archive):
    await store_episodes(memory, caller, "One")
    await consolidation.consolidate(with_model(memory, ScriptedModel()), caller)
    question = "select count(*) from consolidation_runs"
    for who, count in ((caller, 1), (replace(caller, tenant=f"t-{uuid4().hex}"), 0)):
        async with memory.transaction(who) as tx:
            assert await tx.fetchval(question) == count


async def expire_lease(archive, tenant):
    """Expire the leases of a tenant, as if the worker had been stopped."""
    await archive.rows(
        "update episodes set leased_until = now() - interval '1 second'"
        " where tenant_id = $1 and lease_token is not null returning 1",
        tenant,
    )


async def test_row_13_a_worker_that_comes_back_late_has_no_effect(memory, second_worker, caller, archive):
    ids = await store_episodes(memory, caller, "One", "Two")
    stale = model_output(new_facts=[new_fact("of the stale worker")], new_rules=["A stale rule"])
    async with paused_worker(memory, caller, stale) as running:
        await expire_lease(archive, caller.tenant)
        done = await consolidation.consolidate(with_model(second_worker, ScriptedModel(fact_per_episode)), caller)
        assert done["episodes"] == 2
        before = await memory_rows(archive, caller.tenant)
    late = await running
    assert await memory_rows(archive, caller.tenant) == before
    assert await fact_contents(archive, caller.tenant) == sorted(f"seen in {each}" for each in ids)
    assert [run["status"] for run in await runs_of(archive, caller.tenant)] == ["lost", "succeeded"]
    assert (late["facts_created"], late["rules_created"], late["learned"]) == (0, 0, [])
    assert late["errors"] == ["another worker has taken over the episodes"]
    assert late["episodes"] == 0, "it consolidated none"


async def test_row_13_a_late_worker_does_not_disturb_the_one_that_took_over(memory, second_worker, caller, archive):
    await store_episodes(memory, caller, "One")
    late = PausedAnswer("no JSON at all")
    stale = asyncio.create_task(consolidation.consolidate(with_model(memory, ScriptedModel(late)), caller))
    await asyncio.wait_for(late.started.wait(), 10)
    await expire_lease(archive, caller.tenant)
    async with paused_worker(second_worker, caller, fact_per_episode) as running:
        before = await memory_rows(archive, caller.tenant)
        late.may_finish.set()
        assert (await stale)["facts_created"] == 0
        assert await memory_rows(archive, caller.tenant) == before
    assert (await running)["facts_created"] == 1
    (row,) = await episode_states(archive, caller.tenant)
    assert (row["status"], row["attempts"], row["error"]) == ("consolidated", 0, None)


async def test_tokens_of_a_worker_that_came_late_were_spent_all_the_same(
    memory, second_worker, caller, archive, tools
):
    await store_episodes(memory, caller, "One")
    async with paused_worker(memory, caller, NO_ACTIONS) as running:
        await expire_lease(archive, caller.tenant)
        await consolidation.consolidate(with_model(second_worker, ScriptedModel()), caller)
    await running
    assert (await tools("memory_stats"))["consolidation"]["tokens_last_day"] == 240


async def test_a_worker_that_lost_its_lease_stops_thinking(memory, caller, archive):
    await store_episodes(memory, caller, "One")
    model = ScriptedModel(PausedAnswer(NO_ACTIONS))
    running = asyncio.create_task(consolidation.consolidate(with_model(memory, model, lease_seconds=1.0), caller))
    await eventually(lambda: count_leases(archive, caller.tenant), "the lease")
    await model.answer.started.wait()
    await archive.rows(
        "update episodes set lease_token = gen_random_uuid() where tenant_id = $1 returning 1", caller.tenant
    )
    assert (await asyncio.wait_for(running, 5))["errors"] == ["another worker has taken over the episodes"]
    assert model.cancelled == 1
    assert await count_leases(archive, caller.tenant) == 1, "the other's lease is left alone"


async def test_a_lease_lasts_as_long_as_its_worker_thinks(memory, second_worker, caller, archive):
    await store_episodes(memory, caller, "One", "Two")
    other_model = ScriptedModel(fact_per_episode)
    async with paused_worker(memory, caller, fact_per_episode, lease_seconds=3.0, batch_size=1) as running:
        for _ in range(12):
            await asyncio.sleep(0.3)
            assert (await consolidation.consolidate(with_model(second_worker, other_model), caller))["batches"] == 0
    assert (other_model.requests, (await running)["facts_created"]) == ([], 2)
    assert [run["status"] for run in await runs_of(archive, caller.tenant)] == ["succeeded"] * 2


async def test_an_episode_forgotten_while_the_model_thinks_teaches_nothing(memory, caller, archive):
    (episode,) = await store_episodes(memory, caller, "A secret")
    async with paused_worker(
        memory, caller, model_output(new_facts=[new_fact()], new_rules=["Ask first"])
    ) as running:
        await management.forget(memory, caller, MemoryType.EPISODE, UUID(episode), REQUEST)
    assert (await running)["learned"] == []
    assert (await archive.count("facts", caller.tenant), await archive.count("rules", caller.tenant)) == (0, 0)
    assert await count_leases(archive, caller.tenant) == 0


async def test_of_several_the_one_that_was_forgotten_teaches_nothing(memory, caller, archive):
    secret, plain = await store_episodes(memory, caller, "A secret", "Nothing special")
    async with paused_worker(memory, caller, fact_per_episode) as running:
        await management.forget(memory, caller, MemoryType.EPISODE, UUID(secret), REQUEST)
    await running
    assert await fact_contents(archive, caller.tenant) == [f"seen in {plain}"]


async def test_what_may_come_from_a_forgotten_episode_is_not_learned_either(memory, caller, archive):
    secret, _ = await store_episodes(memory, caller, "A secret", "Nothing special")
    async with paused_worker(
        memory, caller, model_output(new_facts=[new_fact("a secret")], new_rules=["Keep the secret"])
    ) as running:
        await management.forget(memory, caller, MemoryType.EPISODE, UUID(secret), REQUEST)
    await running
    assert (await archive.count("facts", caller.tenant), await archive.count("rules", caller.tenant)) == (0, 0)


async def test_an_episode_deleted_while_the_model_thinks_breaks_nothing(memory, caller, archive):
    gone, there = await store_episodes(memory, caller, "One", "Two")
    async with paused_worker(memory, caller, fact_per_episode) as running:
        await archive.rows("delete from episodes where id = $1 returning 1", gone)
    assert ((await running)["episodes"], (await running)["failed_batches"]) == (1, 0)
    facts = {row["content"]: row["id"] for row in await facts_of(archive, caller.tenant)}
    links = await links_of(archive, caller.tenant)
    assert (facts[f"seen in {there}"], there) in links
    assert (facts.get(f"seen in {gone}"), there) not in links, "nothing claims to come from what does not say it"
    assert await episode_statuses(archive, caller.tenant) == ["consolidated"]


async def test_when_all_of_a_batch_was_deleted_the_group_goes_on(memory, caller, archive):
    (gone,) = await store_episodes(memory, caller, "One")
    async with paused_worker(memory, caller, fact_per_episode) as running:
        await archive.rows("delete from episodes where id = $1 returning 1", gone)
    assert (await running)["facts_created"] == 0
    assert [run["status"] for run in await runs_of(archive, caller.tenant)] != ["running"], "it has ended"
    await store_episodes(memory, caller, "Two")
    assert (await consolidation.consolidate(with_model(memory, ScriptedModel(fact_per_episode)), caller))[
        "facts_created"
    ] == 1


async def test_a_run_that_is_cancelled_gives_its_lease_back(memory, caller, archive):
    await store_episodes(memory, caller, "One", "Two")
    model = ScriptedModel(PausedAnswer(NO_ACTIONS))
    running = asyncio.create_task(consolidation.consolidate(with_model(memory, model), caller))
    await asyncio.wait_for(model.answer.started.wait(), 10)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (model.cancelled, await count_leases(archive, caller.tenant)) == (1, 0)
    assert [(row["status"], row["attempts"]) for row in await episode_states(archive, caller.tenant)] == [
        ("pending", 0)
    ] * 2
    (run,) = await runs_of(archive, caller.tenant)
    assert (run["status"], run["error"]) == ("released", "it was cancelled")
    assert (await consolidation.consolidate(with_model(memory, ScriptedModel(fact_per_episode)), caller))[
        "episodes"
    ] == 2


async def test_a_run_cancelled_at_any_moment_holds_no_lease(memory, caller, archive):
    await store_episodes(memory, caller, "One")
    for number in range(120):
        running = asyncio.create_task(
            consolidation.consolidate(with_model(memory, ScriptedModel(PausedAnswer(NO_ACTIONS))), caller)
        )
        await asyncio.sleep(random.uniform(0, 0.015))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert await count_leases(archive, caller.tenant) == 0, f"the {number}th had it still"
    assert await episode_statuses(archive, caller.tenant) == ["pending"]


async def test_a_run_cancelled_at_any_moment_has_learned_all_or_nothing(memory, caller, archive):
    for number in range(12):
        await store_episodes(memory, caller, f"Number {number}")
        running = asyncio.create_task(
            consolidation.consolidate(with_model(memory, ScriptedModel(fact_per_episode)), caller)
        )
        await asyncio.sleep(0.004 * number)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await expire_lease(archive, caller.tenant)
    await consolidation.consolidate(with_model(memory, ScriptedModel(fact_per_episode)), caller)
    assert await episode_statuses(archive, caller.tenant) == ["consolidated"] * 12
    assert await archive.count("facts", caller.tenant) == 12
    assert memory.database.usage().idle == memory.database.usage().size


async def test_a_long_run_goes_on_after_the_call_that_began_it(memory, caller, archive):
    await store_episodes(memory, caller, "One")
    model = ScriptedModel(PausedAnswer(fact_per_episode))
    scripted = with_model(memory, model)
    assert await consolidation.consolidate_in_background(scripted, caller, seconds=0.05) == {
        "dry_run": False,
        "status": "running",
    }
    assert len(scripted.background) == 1
    model.answer.may_finish.set()
    await asyncio.gather(*scripted.background)
    assert await episode_statuses(archive, caller.tenant) == ["consolidated"]
    assert scripted.background == set()


async def test_a_butler_that_ends_gives_back_what_it_had_taken(butler, memory, caller, archive, monkeypatch, home):
    monkeypatch.setenv("BUTLERS_HOME", str(home))
    await store_episodes(memory, caller, "One")
    module, model = MemoryModule(), ScriptedModel(PausedAnswer(NO_ACTIONS))
    await module.on_startup(memory.config, butler.database, memory.butler, model)
    assert (await consolidation.consolidate_in_background(module.state, caller, seconds=0.05))["status"] == "running"
    await asyncio.wait_for(model.answer.started.wait(), 10)
    assert await count_leases(archive, caller.tenant) == 1
    await module.on_shutdown()
    assert (model.cancelled, await count_leases(archive, caller.tenant)) == (1, 0)


async def test_the_tool_answers_what_was_learned_and_repeats_its_answer(memory, caller, butler, archive):
    (episode,) = await store_episodes(memory, caller, "One")
    model = ScriptedModel(fact_per_episode)
    async with Client(build_tenant_server(butler, with_model(memory, model), caller.tenant).mcp) as client:
        tools = Tools(client, caller.tenant)
        done = await tools("memory_run_consolidation", idempotency_key="once")
        await store_episodes(memory, caller, "Two")
        assert await tools("memory_run_consolidation", idempotency_key="once") == done
        assert await tools("memory_run_consolidation", dry_run=True) == {
            "dry_run": True,
            "status": "finished",
            "groups": 1,
            "waiting": 1,
        }
    assert len(model.requests) == 1
    (learned,) = done["learned"]
    (fact,) = await facts_of(archive, caller.tenant)
    assert learned == {
        "memory_type": "fact",
        "id": fact["id"],
        "subject": "user",
        "predicate": f"about {episode}",
        "content": f"seen in {episode}",
        "scope": memory.butler,
        "evidence": [episode],
    }


async def test_no_connection_is_held_while_the_model_thinks(butler, memory, caller, archive):
    narrow = await db.connect(butler.location.dsn, pool_size=1)
    seen = []

    async def answer_while_pool_is_full(prompt):
        idle = narrow.usage().idle
        async with narrow.transaction(caller) as tx:
            seen.append((idle, await tx.fetchval("select count(*) from episodes where lease_token is not null")))
        return fact_per_episode(prompt)

    try:
        await store_episodes(memory, caller, "One", "Two", "Three")
        separate = with_model(
            replace(memory, database=narrow), ScriptedModel(answer_while_pool_is_full), batch_size=2
        )
        done = await consolidation.consolidate(separate, caller)
    finally:
        await narrow.close()
    assert (done["facts_created"], done["errors"]) == (3, [])
    assert seen == [(1, 2), (1, 1)], "the only connection is free, and the lease is held"


async def test_the_daily_limit_stops_a_run_and_says_so(memory, caller, archive):
    await store_episodes(memory, caller, *(f"Number {number}" for number in range(4)))
    model = ScriptedModel()
    capped = with_model(memory, model, batch_size=1, daily_token_limit=200)
    done = await consolidation.consolidate(capped, caller)
    assert (done["batches"], done["episodes"], done["failed_batches"]) == (2, 2, 0)
    assert done["errors"] == ["the daily token limit is reached; the other episodes stay pending"]
    assert await episode_statuses(archive, caller.tenant) == ["consolidated"] * 2 + ["pending"] * 2
    assert (await consolidation.consolidate(capped, caller))["batches"] == 0
    other = replace(caller, tenant=f"t-{uuid4().hex}")
    await store_episodes(memory, other, "Of another tenant")
    assert (await consolidation.consolidate(capped, other))["episodes"] == 1
    await archive.rows(
        "update consolidation_runs set started_at = now() - interval '25 hours' where tenant_id = $1 returning 1",
        caller.tenant,
    )
    assert (await consolidation.consolidate(capped, caller))["episodes"] == 2
    await store_episodes(memory, caller, "More")
    assert (await consolidation.consolidate(with_model(memory, model, daily_token_limit=0), caller))["episodes"] == 1


async def test_a_dry_run_changes_no_row_and_takes_no_lease(memory, caller, archive, tools, butler):
    """Scenario: Consolidation without spawner (dry run)"""
    await tools.fact("tea", predicate="drinks")
    await store_episodes(memory, caller, "One", "Two", butler="one")
    await store_episodes(memory, caller, "Three", butler="two")
    before = await all_rows(archive, caller.tenant)
    model, wanted = ScriptedModel(), {"dry_run": True, "status": "finished", "groups": 2, "waiting": 3}
    assert await consolidation.consolidate(replace(memory, spawner=None), caller) == wanted
    assert await tools("memory_run_consolidation", dry_run=True) == wanted
    async with Client(build_tenant_server(butler, replace(memory, spawner=None), caller.tenant).mcp) as client:
        assert await Tools(client, caller.tenant)("memory_run_consolidation") == wanted
    previews = await consolidation.preview(with_model(memory, model), caller)
    assert await all_rows(archive, caller.tenant) == before
    assert model.requests == []
    await consolidation.consolidate(with_model(memory, model), caller)
    assert [(each["butler"], each["waiting"], each["episodes"]) for each in previews] == [
        ("one", 2, 2),
        ("two", 1, 1),
    ]
    assert [each["prompt"] for each in previews] == [asked.prompt for asked in model.requests], "it is what is sent"
    assert [each["tokens"] for each in previews] == [
        memory.embedder.count_tokens(each["prompt"]) for each in previews
    ]
