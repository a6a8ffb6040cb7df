"""Failures of consolidation: nothing is lost, the error is stored, and other groups go on."""

import asyncio
import json
import logging
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from fastmcp import Client

from butlers import app, doctor
from butlers.errors import SessionFailed, TimedOut, Unavailable
from butlers.host.metrics import Metrics
from butlers.host.scheduler import Scheduler
from butlers.modules.memory.operations import consolidation
from database.butler_processes import connected, eventually
from memory.memory_fixtures import Tools, build_tenant_server, write_butler
from memory.scripted_model import (
    NO_ACTIONS,
    ScriptedModel,
    all_rows,
    answers_in_turn,
    count_leases,
    episode_states,
    episode_statuses,
    fact_contents,
    fact_per_episode,
    fact_update,
    make_retries_due,
    model_output,
    new_fact,
    runs_of,
    separate_butler,
    store_episodes,
    with_model,
)

NOT_INSTALLED = Unavailable("the program thinker is not installed", hint="Install it.")
NO_JSON = "no part of the model's output could be used: No JSON block found in consolidation output"


@pytest.fixture(scope="module")
async def separate(tmp_path_factory, environment, engine):
    """A butler whose tenants belong to this test module only."""
    async with separate_butler(tmp_path_factory.mktemp("failing"), environment, engine) as opened:
        yield opened


@pytest.fixture
async def clean_butler(separate):
    """The same butler without any episode."""
    await separate.archive.connection.execute("delete from episodes")
    return separate


CUT_OFF_OUTPUT = model_output(new_facts=[new_fact("the color of the sea")])[:-30]
HUGE_OUTPUT = model_output(new_facts=[new_fact("x" * 10_000_000)])
UNUSABLE_OUTPUTS = {
    "no JSON": ("I found nothing worth keeping.", NO_JSON),
    "empty": ("", NO_JSON),
    "cut off": (CUT_OFF_OUTPUT, NO_JSON),
    "10 MB of words": ("word " * 2_000_000, "1000000"),
    "10 MB of JSON": (HUGE_OUTPUT, "1000000"),
    "nothing but braces": ("{" * 5_000, NO_JSON),
    "nested without end": ('{"a":' * 100_000, NO_JSON),
    "a list": ("[]", NO_JSON),
    "null": ("null", NO_JSON),
    "something else": ('{"answer": 42}', NO_JSON),
    "NUL and half characters": ("\x00\ud800{\x00}", NO_JSON),
    "a number with a million digits": ('{"new_facts": ' + "9" * 900_000 + "}", "new_facts: is not a list"),
    "words for lists": ('{"new_facts": "none"}', "new_facts: is not a list"),
    "entries that say nothing": (
        model_output(new_facts=[new_fact(""), new_fact("x", None), 7]),
        "new_facts[0]: content is empty",
    ),
    "an id that is none": (model_output(confirmations=["first"]), "confirmations[0]: it is not a UUID"),
    "an unknown target": (
        model_output(updated_facts=[fact_update(str(uuid4()))]),
        "updated_facts[0]: there is no live fact ",
    ),
    "an unknown id": (model_output(confirmations=[str(uuid4())]), "confirmations[0]: there is no live fact or rule "),
    "a subject of 10 kB": (
        model_output(new_facts=[new_fact(subject="s" * 10_000)]),
        "new_facts[0]: subject has 10000 char",
    ),
}


@pytest.mark.parametrize("kind", UNUSABLE_OUTPUTS)
async def test_row_16_an_answer_that_can_not_be_used_leaves_the_episodes_for_a_retry(memory, caller, archive, kind):
    answer, reason = UNUSABLE_OUTPUTS[kind]
    ids = await store_episodes(memory, caller, "One", "Two")
    done = await consolidation.consolidate(with_model(memory, ScriptedModel(answer)), caller)
    rows = await episode_states(archive, caller.tenant)
    assert [(row["id"], row["status"], row["attempts"]) for row in rows] == [(each, "failed", 1) for each in ids]
    assert all(reason in row["error"] and len(row["error"]) <= 500 for row in rows)
    assert (await count_leases(archive, caller.tenant), await archive.count("facts", caller.tenant)) == (0, 0)
    (run,) = await runs_of(archive, caller.tenant)
    assert (run["status"], run["error"], run["episodes"]) == ("failed", rows[0]["error"], 2)
    assert (run["input_tokens"], run["output_tokens"]) == (100, 20), "what was spent in vain counts as well"
    assert (done["failed_batches"], done["episodes"], done["learned"]) == (1, 0, [])
    assert rows[0]["error"] in done["errors"]
    assert await archive.count("memory_events", caller.tenant, "event_type = 'episode_consolidation_failed'") == 2


async def test_hostile_words_in_an_answer_are_stored_as_words(memory, caller, archive):
    await store_episodes(memory, caller, "One")
    nasty = "a\x00b \ud800 </episode_content> '; drop table facts; -- {{x}} \x1b[31m"
    done = await consolidation.consolidate(
        with_model(memory, ScriptedModel(model_output(new_facts=[new_fact(nasty)], new_rules=[nasty]))), caller
    )
    assert (done["facts_created"], done["rules_created"], done["errors"]) == (1, 1, [])
    assert await fact_contents(archive, caller.tenant) == [nasty.replace("\x00", "").replace("\ud800", "?")]


FAILURES = {
    "ended badly": (SessionFailed("think ended with exit code 1: no key"), "think ended with exit code 1: no key"),
    "took too long": (TimedOut("the session took longer than 600 s"), "the session took longer than 600 s"),
    "broke": (RuntimeError("a secret of the user"), "RuntimeError"),
    "said a NUL": (SessionFailed("think ended with exit code 1: \x00"), "think ended with exit code 1: "),
}


@pytest.mark.parametrize("kind", FAILURES)
async def test_a_failed_session_counts_as_an_attempt(clean_butler, kind):
    memory, archive, caller, other = (
        clean_butler.memory,
        clean_butler.archive,
        clean_butler.new_caller(),
        clean_butler.new_caller(),
    )
    error, reason = FAILURES[kind]
    await store_episodes(memory, caller, "One")
    await store_episodes(memory, other, "Of the next group")
    model = ScriptedModel(answers_in_turn(error, NO_ACTIONS))
    done = await consolidation.consolidate(with_model(memory, model), caller, all_tenants=True)
    (row,) = await episode_states(archive, caller.tenant)
    assert (row["status"], row["attempts"], row["lease_token"]) == ("failed", 1, None)
    assert row["error"].startswith(reason)
    assert "secret" not in row["error"]
    assert (done["failed_batches"], done["episodes"]) == (1, 1)
    assert await episode_statuses(archive, other.tenant) == ["consolidated"]


async def test_row_14_attempts_are_further_and_further_apart(memory, caller, archive):
    await store_episodes(memory, caller, "One")
    failing = with_model(memory, ScriptedModel("no"), max_attempts=20)
    for attempt in range(9):
        await consolidation.consolidate(failing, caller)
        (row,) = await archive.rows(
            "select consolidation_attempts as attempts, next_consolidation_retry_at - now() as wait from episodes"
            " where tenant_id = $1",
            caller.tenant,
        )
        expected = timedelta(seconds=min(30 * 2**attempt, 3600))
        assert row["attempts"] == attempt + 1
        assert 0.8 * expected - timedelta(seconds=5) < row["wait"] <= 1.2 * expected
        model = ScriptedModel()
        done = await consolidation.consolidate(with_model(memory, model), caller)
        assert (done["groups"], model.requests) == (0, []), "not before its time"
        await make_retries_due(archive, caller.tenant)


async def test_an_answer_of_nothing_but_braces_does_not_stop_everything_else(memory, caller, archive):
    await store_episodes(memory, caller, "One")
    began = time.monotonic()
    await consolidation.consolidate(with_model(memory, ScriptedModel("{" * 150_000)), caller)
    assert await episode_statuses(archive, caller.tenant) == ["failed"]
    assert time.monotonic() - began < 2, "a megabyte of them would take minutes"


async def test_a_batch_that_failed_comes_back_half_as_large(memory, caller, archive):
    ids = await store_episodes(memory, caller, *(f"Number {number}" for number in range(8)))
    model = ScriptedModel("no")
    for _ in range(6):
        await consolidation.consolidate(with_model(memory, model, batch_size=8, max_attempts=5), caller)
        await make_retries_due(archive, caller.tenant)
    assert [len(asked.episodes) for asked in model.requests] == [8, 4, 2, 1, 1, 1]
    assert [asked.episodes[0] for asked in model.requests] == [ids[0]] * 5 + [ids[1]], "oldest first, every time"


async def test_one_episode_no_model_can_take_drags_no_other_along(memory, caller, archive):
    ids = await store_episodes(memory, caller, *(f"Number {number}" for number in range(8)))
    scripted = with_model(
        memory, ScriptedModel(lambda prompt: "no" if ids[3] in prompt else fact_per_episode(prompt)), batch_size=8
    )
    for _ in range(8):
        await consolidation.consolidate(scripted, caller)
        await make_retries_due(archive, caller.tenant)
    assert (
        await episode_statuses(archive, caller.tenant)
        == ["consolidated"] * 3 + ["dead_letter"] + ["consolidated"] * 4
    )
    assert await archive.count("facts", caller.tenant) == 7


async def dead_letter(memory, caller, archive, *contents):
    """Store episodes, fail every attempt and return their ids."""
    ids = await store_episodes(memory, caller, *contents)
    for _ in range(2 * len(ids)):
        await consolidation.consolidate(with_model(memory, ScriptedModel("no"), max_attempts=2, batch_size=1), caller)
        await make_retries_due(archive, caller.tenant)
    assert await episode_statuses(archive, caller.tenant) == ["dead_letter"] * len(ids)
    return ids


async def test_row_14_an_episode_that_always_fails_is_dead_lettered_and_shown(clean_butler, environment, tmp_path):
    memory, archive, caller = clean_butler.memory, clean_butler.archive, clean_butler.new_caller()
    (episode,) = await dead_letter(memory, caller, archive, "One")
    (row,) = await episode_states(archive, caller.tenant)
    assert (row["attempts"], row["retry_at"], row["lease_token"]) == (2, None, None)
    kinds = [
        (event["event_type"], json.loads(event["payload"]).get("attempts"))
        for event in await archive.events(caller.tenant)
    ]
    assert kinds == [("episode_created", None), ("episode_consolidation_failed", 1), ("episode_dead_lettered", 2)]
    model = ScriptedModel()
    await consolidation.consolidate(with_model(memory, model), caller, all_tenants=True)
    assert model.requests == [], "it is not tried again by itself"
    gauges = await clean_butler.butler.modules[0].gauges()
    assert (gauges["episodes_dead_letter"], gauges["episodes_pending"], gauges["episodes_failed"]) == (1, 0, 0)
    async with Client(build_tenant_server(clean_butler.butler, memory, caller.tenant).mcp) as client:
        tools = Tools(client, caller.tenant)
        assert (await tools("memory_stats"))["episodes"]["dead_letter"] == 1
        (letter,) = (await tools("memory_dead_letters"))["dead_letters"]
    assert (letter["id"], letter["content"], letter["last_consolidation_error"]) == (episode, "One", NO_JSON)
    (check,) = [
        each
        for each in await doctor.run_checks(clean_butler.butler.config.folder, environment)
        if each.name == "backlog"
    ]
    assert (check.state, "1 dead-lettered" in check.found) == ("warn", True)
    assert "butlers memory dead-letters" in check.fix


async def test_the_gauges_count_pending_episodes(clean_butler):
    memory, caller = clean_butler.memory, clean_butler.new_caller()
    await store_episodes(memory, caller, "One")
    await consolidation.consolidate(with_model(memory, ScriptedModel("no")), caller)
    first, second = await store_episodes(memory, caller, "Two", "Three")
    await clean_butler.archive.age("episode", first, 0.5)
    gauges = await clean_butler.butler.modules[0].gauges()
    assert (gauges["episodes_pending"], gauges["episodes_failed"], gauges["episodes_dead_letter"]) == (2, 1, 0)
    assert 43_000 < gauges["backlog_age_seconds"] < 44_000
    assert second


async def test_what_was_set_aside_is_retried_by_hand_and_learned(memory, caller, archive, tools, stranger):
    first, second, gone = await dead_letter(memory, caller, archive, "One", "Two", "Three")
    await archive.age("episode", first, 8)
    await tools("memory_forget", memory_type="episode", memory_id=gone)
    assert await stranger("memory_dead_letters", retry=True) == {"requeued": 0, "ids": []}
    assert await stranger("memory_dead_letters", retry=True, episode_ids=[first]) == {"requeued": 0, "ids": []}
    assert await tools("memory_dead_letters", retry=True, episode_ids=[first]) == {"requeued": 1, "ids": [first]}
    assert await episode_statuses(archive, caller.tenant) == ["pending", "dead_letter", "dead_letter"]
    again = {"retry": True, "idempotency_key": "once"}
    assert await tools("memory_dead_letters", **again) == {"requeued": 1, "ids": [second]}
    assert await tools("memory_dead_letters", **again) == {"requeued": 1, "ids": [second]}
    requeued = [event for event in await archive.events(caller.tenant) if event["event_type"] == "episode_requeued"]
    assert {event["entity_id"] for event in requeued} == {first, second}
    done = await consolidation.consolidate(with_model(memory, ScriptedModel(fact_per_episode)), caller)
    assert (done["episodes"], done["facts_created"]) == (2, 2), "the one that had expired meanwhile is read, too"
    assert await episode_statuses(archive, caller.tenant) == ["consolidated", "consolidated", "dead_letter"]


@asynccontextmanager
async def reject_rows(archive, table, condition):
    """Make the database reject rows that match the condition."""
    at, name = archive.connection, f"refuse_{uuid4().hex[:8]}"
    await at.execute(f"""
        create function {name}() returns trigger language plpgsql as $$
        begin
            if {condition} then raise exception 'refused' using errcode = 'check_violation'; end if;
            return new;
        end $$;
        create trigger {name} before insert on {table} for each row execute function {name}()
    """)
    try:
        yield
    finally:
        await at.execute(f"drop trigger {name} on {table}; drop function {name}()")


async def test_row_17_one_of_five_things_learned_fails_and_the_others_stand(memory, caller, archive, tools, caplog):
    """Scenario: Individual action failures do not block others"""
    old, kept = await tools.fact("Porto", predicate="lives_in"), await tools.fact("tea", predicate="drinks")
    await store_episodes(memory, caller, "One")
    answer = model_output(
        new_facts=[new_fact("poison", "first"), new_fact()],
        updated_facts=[fact_update(old, "Lisbon")],
        new_rules=["Ask first"],
        confirmations=[kept],
    )
    async with reject_rows(archive, "facts", "new.content = 'poison'"):
        done = await consolidation.consolidate(with_model(memory, ScriptedModel(answer)), caller)
    assert await fact_contents(archive, caller.tenant) == ["Lisbon", "blue", "tea"]
    assert (done["facts_created"], done["facts_updated"], done["rules_created"], done["confirmed"]) == (1, 1, 1, 1)
    (run,) = await runs_of(archive, caller.tenant)
    assert (run["status"], run["errors"]) == ("succeeded", ["new_facts[0]: CheckViolationError"])
    assert done["errors"] == run["errors"]
    assert await episode_statuses(archive, caller.tenant) == ["consolidated"]
    assert [record.getMessage() for record in caplog.records if record.name == "butlers.memory"] == [
        "a consolidation action failed"
    ]


async def test_an_action_that_is_refused_is_logged_as_well(memory, caller, caplog):
    """Scenario: Individual action failures do not block others"""
    await store_episodes(memory, caller, "One")
    caplog.set_level(logging.INFO, logger="butlers.memory")
    answer = model_output(confirmations=[str(uuid4())], new_facts=[new_fact("a secret color")])
    assert (await consolidation.consolidate(with_model(memory, ScriptedModel(answer)), caller))["errors"]
    messages = [record.getMessage() for record in caplog.records if record.name == "butlers.memory"]
    assert messages
    assert not any("secret" in line for line in messages)


async def test_what_was_taken_back_is_not_counted(memory, caller, archive):
    await store_episodes(memory, caller, "One")
    answer = model_output(new_facts=[new_fact("poison", "first"), new_fact()])
    is_link_of_poison = "exists (select from facts where id = new.source_id and content = 'poison')"
    async with reject_rows(archive, "memory_links", is_link_of_poison):
        done = await consolidation.consolidate(with_model(memory, ScriptedModel(answer)), caller)
    assert await fact_contents(archive, caller.tenant) == ["blue"]
    assert len(done["errors"]) == len(done["learned"]) == 1
    (run,) = await runs_of(archive, caller.tenant)
    assert (run["facts_created"], done["facts_created"]) == (1, 1)


async def test_row_19_one_group_fails_and_the_others_complete(clean_butler, caplog):
    """Scenario: Consolidation group failure isolation
    Scenario: Consolidation with LLM spawner
    """
    memory, archive, ada, bob = (
        clean_butler.memory,
        clean_butler.archive,
        clean_butler.new_caller(),
        clean_butler.new_caller(),
    )
    for who, butler in ((ada, "one"), (ada, "two"), (bob, "one"), (bob, "two")):
        await store_episodes(memory, who, f"{butler} of {who.tenant}", butler=butler)
    bad = f"two of {ada.tenant}"
    caplog.set_level(logging.INFO, logger="butlers.memory")
    model = ScriptedModel(lambda prompt: RuntimeError("a secret") if bad in prompt else fact_per_episode(prompt))
    done = await consolidation.consolidate(with_model(memory, model), ada, all_tenants=True)
    assert (done["groups"], done["batches"], done["failed_batches"], done["facts_created"]) == (4, 4, 1, 3)
    assert done["errors"] == ["RuntimeError"]
    assert await episode_statuses(archive, ada.tenant) == ["consolidated", "failed"]
    assert await episode_statuses(archive, bob.tenant) == ["consolidated"] * 2
    assert [record.getMessage() for record in caplog.records if record.name == "butlers.memory"] == [
        "a consolidation batch failed"
    ]


async def test_a_group_whose_answer_has_no_json_is_logged_as_well(memory, caller, caplog):
    """Scenario: Consolidation group failure isolation"""
    await store_episodes(memory, caller, "A secret of the user")
    caplog.set_level(logging.INFO, logger="butlers.memory")
    assert (await consolidation.consolidate(with_model(memory, ScriptedModel("no")), caller))["errors"] == [NO_JSON]
    messages = [record.getMessage() for record in caplog.records if record.name == "butlers.memory"]
    assert messages
    assert not any("secret" in line for line in messages)


@pytest.mark.slow
async def test_row_19_a_group_whose_rows_somebody_holds_keeps_no_other_waiting(clean_butler):
    memory, archive, ada, bob = (
        clean_butler.memory,
        clean_butler.archive,
        clean_butler.new_caller(),
        clean_butler.new_caller(),
    )
    (held,) = await store_episodes(memory, ada, "Held by somebody")
    await store_episodes(memory, bob, "Free")
    async with connected(clean_butler.butler.location.admin_dsn) as another:
        at = another.transaction()

        async def answer_or_fail(prompt):
            if held in prompt:
                await at.start()
                await another.execute("select from episodes where id = $1 for update", held)
            return fact_per_episode(prompt)

        done = await consolidation.consolidate(
            with_model(memory, ScriptedModel(answer_or_fail)), ada, all_tenants=True
        )
        await at.rollback()
    assert await episode_statuses(archive, bob.tenant) == ["consolidated"]
    assert (done["facts_created"], len(done["errors"])) == (1, 1)
    assert await archive.count("facts", ada.tenant) == 0


async def test_without_a_runtime_nothing_counts_and_nothing_is_taken(memory, caller, archive, butler):
    await store_episodes(memory, caller, "One", "Two")
    before = await all_rows(archive, caller.tenant)
    model = ScriptedModel(unavailable=NOT_INSTALLED)
    with pytest.raises(Unavailable, match="the program thinker is not installed"):
        await consolidation.consolidate(with_model(memory, model), caller)
    async with Client(build_tenant_server(butler, with_model(memory, model), caller.tenant).mcp) as client:
        answer = await Tools(client, caller.tenant)("memory_run_consolidation")
    assert answer == {
        "dry_run": True,
        "status": "finished",
        "groups": 1,
        "waiting": 2,
        "reason": "unavailable: the program thinker is not installed. Install it.",
    }
    assert (await all_rows(archive, caller.tenant), model.requests) == (before, [])


async def test_a_runtime_that_can_not_be_reached_gives_the_episodes_back(clean_butler):
    memory, archive, ada, bob = (
        clean_butler.memory,
        clean_butler.archive,
        clean_butler.new_caller(),
        clean_butler.new_caller(),
    )
    for who in (ada, bob):
        await store_episodes(memory, who, "One")
    model = ScriptedModel(Unavailable("nothing answers at the address"))
    with pytest.raises(Unavailable, match="nothing answers at the address"):
        await consolidation.consolidate(with_model(memory, model), ada, all_tenants=True)
    assert len(model.requests) == 1, "the others would find the same"
    for who in (ada, bob):
        (row,) = await episode_states(archive, who.tenant)
        assert (row["status"], row["attempts"], row["error"], row["lease_token"], row["leased_until"]) == (
            "pending",
            0,
            None,
            None,
            None,
        )
    (run,) = await runs_of(archive, model.requests[0].caller.tenant)
    assert (run["status"], run["error"]) == ("released", "nothing answers at the address")
    model.answer = fact_per_episode
    assert (await consolidation.consolidate(with_model(memory, model), ada, all_tenants=True))["episodes"] == 2


async def test_a_database_too_slow_to_start_a_session_is_no_failed_attempt(memory, caller, archive):
    await store_episodes(memory, caller, "One")
    model = ScriptedModel(TimedOut("the database took too long"), starts=False)
    await consolidation.consolidate(with_model(memory, model), caller)
    (row,), (run,) = await episode_states(archive, caller.tenant), await runs_of(archive, caller.tenant)
    assert (row["status"], row["attempts"]) == ("pending", 0)
    assert (run["status"], run["input_tokens"], run["tokens_estimated"]) == ("released", 0, False)


async def test_a_scheduled_run_without_a_runtime_fails_where_it_is_seen(environment, engine, separate, tmp_path):
    runtime = '[butler.runtime]\ntype = "command"\ncommand = ["./not-there"]\n'
    folder = write_butler(tmp_path, separate.memory.butler, runtime)
    async with app.open_butler(app.load_configuration(folder), environment) as butler:
        caller = butler.caller(actor="scheduler")
        await store_episodes(separate.memory, caller, "One")
        (job,) = [job for job in butler.modules[0].jobs() if job.name == "consolidate"]
        metrics = Metrics()
        retry_seconds = await Scheduler(butler.database, caller, [job], metrics)._tick(job.name, datetime.now(UTC))
        assert retry_seconds > 0
        page = (await metrics.render(butler.database, {})).decode()
    assert 'butlers_job_runs_total{job="consolidate",outcome="failed"} 1.0' in page
    (run,) = await separate.archive.rows("select status, error from job_runs where job = 'consolidate'")
    assert run["status"] == "failed"
    assert run["error"].startswith("unavailable: the program ")
    assert (
        await separate.archive.count(
            "episodes", caller.tenant, "consolidation_attempts > 0 or lease_token is not null"
        )
        == 0
    )


async def test_a_lost_connection_while_it_is_written_takes_everything_back(clean_butler):
    memory, archive, caller = clean_butler.memory, clean_butler.archive, clean_butler.new_caller()
    (episode,) = await store_episodes(memory, caller, "One")
    scripted = with_model(memory, ScriptedModel(model_output(new_facts=[new_fact()], new_rules=["Ask first"])))

    async def cut():
        return await archive.rows(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and wait_event_type = 'Lock'"
        )

    async with connected(clean_butler.butler.location.admin_dsn) as another, another.transaction():
        await another.execute("lock table memory_links in share row exclusive mode")
        running = asyncio.create_task(consolidation.consolidate(scripted, caller))
        await eventually(cut, "the fact to be there and its link to wait")
        with pytest.raises(Unavailable):
            await running
    (row,) = await episode_states(archive, caller.tenant)
    assert (row["id"], row["status"], row["attempts"], row["lease_token"]) == (episode, "pending", 0, None)
    assert await archive.count("facts", caller.tenant) == 0
    (run,) = await runs_of(archive, caller.tenant)
    assert (run["status"], run["facts_created"], run["rules_created"]) == ("released", 0, 0)
    assert (await consolidation.consolidate(scripted, caller))["facts_created"] == 1
    assert await fact_contents(archive, caller.tenant) == ["blue"]
