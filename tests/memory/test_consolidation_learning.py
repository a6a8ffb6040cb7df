"""Memories learned by consolidation: facts, rules, updates and confirmations with their links."""

import json
from dataclasses import replace
from uuid import uuid4

import pytest

from butlers.contract import Usage
from butlers.modules.memory.domain.model import NewFact, NewRule
from butlers.modules.memory.operations import consolidation, writing
from memory.memory_fixtures import REQUEST
from memory.scripted_model import (
    NO_ACTIONS,
    ScriptedModel,
    count_leases,
    episode_states,
    episode_statuses,
    fact_contents,
    fact_per_episode,
    fact_update,
    facts_of,
    links_of,
    model_output,
    new_fact,
    runs_of,
    store_episodes,
    with_model,
)

ORDINARY = {"subject": "user", "predicate": "color"}


async def learn(memory, caller, answer, **options):
    """Consolidate with this model output and return the answer."""
    return await consolidation.consolidate(with_model(memory, ScriptedModel(answer), **options), caller)


async def test_episodes_become_facts_tied_to_the_episodes_that_say_them(memory, caller, archive):
    """Scenario: Consolidation with LLM spawner
    Scenario: New facts stored with derived_from links
    Scenario: Source episodes marked as consolidated
    """
    first, second = await store_episodes(memory, caller, "User likes blue", "User speaks Dutch")
    model = ScriptedModel(
        model_output(
            new_facts=[
                new_fact("blue", importance=7, permanence="stable", tags=["taste"], evidence=[first]),
                new_fact("Dutch", "speaks", evidence=[second]),
            ]
        )
    )
    done = await consolidation.consolidate(with_model(memory, model), caller)
    (asked,) = model.requests
    assert (asked.trigger_source, asked.internal, asked.caller.tenant) == (
        "schedule:consolidation",
        True,
        caller.tenant,
    )
    assert asked.episodes == [first, second]
    blue, dutch = await facts_of(archive, caller.tenant)
    assert (blue["content"], blue["scope"], blue["permanence"]) == ("blue", memory.butler, "stable")
    assert (blue["importance"], blue["tags"]) == (7.0, ["taste"])
    assert (dutch["importance"], dutch["tags"], dutch["permanence"]) == (5.0, [], "standard")
    assert {(each["source_butler"], each["source_episode_id"]) for each in (blue, dutch)} == {
        (memory.butler, first),
        (memory.butler, second),
    }
    assert await links_of(archive, caller.tenant) == {(blue["id"], first), (dutch["id"], second)}
    rows = await episode_states(archive, caller.tenant)
    assert [(row["status"], row["attempts"], row["error"], row["lease_token"]) for row in rows] == [
        ("consolidated", 0, None, None)
    ] * 2
    assert await archive.count("episodes", caller.tenant, "consolidated") == 2
    assert (done["episodes"], done["facts_created"], done["batches"], done["groups"]) == (2, 2, 1, 1)
    assert [each["id"] for each in done["learned"]] == [blue["id"], dutch["id"]]
    assert done["errors"] == []


async def test_what_was_learned_is_found_by_searching(memory, caller, tools):
    await store_episodes(memory, caller, "User is allergic to shellfish")
    await learn(
        memory,
        caller,
        model_output(new_facts=[new_fact("shellfish", "allergic_to")], new_rules=["Ask about the menu"]),
    )
    facts = await tools("memory_search", query="what must she not eat", types=["fact"])
    assert [each["content"] for each in facts] == ["shellfish"]
    assert "Ask about the menu" in await tools("memory_context", trigger_prompt="dinner", butler=memory.butler)


@pytest.mark.parametrize(
    ("scope", "stored"), [(None, "butler"), ("global", "global"), ("GLOBAL ", "global"), ("somebody_else", "butler")]
)
async def test_what_is_learned_is_the_butlers_own_unless_it_is_global(memory, caller, archive, scope, stored):
    await store_episodes(memory, caller, "One", butler="groceries")
    about = {} if scope is None else {"scope": scope}
    await learn(
        memory, caller, model_output(new_facts=[new_fact(**about)], new_rules=[{"content": "Ask first", **about}])
    )
    wanted = "groceries" if stored == "butler" else "global"
    rules = await archive.rows("select scope, source_butler from rules where tenant_id = $1", caller.tenant)
    assert [(row["scope"], row["source_butler"]) for row in await facts_of(archive, caller.tenant)] == [
        (wanted, "groceries")
    ]
    assert rules == [{"scope": wanted, "source_butler": "groceries"}]


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        (None, [0, 1, 2]),
        ([], [0, 1, 2]),
        (["second"], [1]),
        (["third", "first", "third"], [2, 0]),
        ("first", [0]),
        (["stranger"], [0, 1, 2]),
        (["stranger", "second", "no id", 7], [1]),
        (7, [0, 1, 2]),
    ],
    ids=str,
)
async def test_a_memory_is_tied_to_the_evidence_that_was_in_the_batch(memory, caller, archive, evidence, expected):
    (elsewhere,) = await store_episodes(memory, caller, "Of another butler", butler="elsewhere")
    ids = await store_episodes(memory, caller, "One", "Two", "Three")
    real = dict(zip(("first", "second", "third", "stranger"), (*ids, elsewhere), strict=True))
    named = (
        [real.get(each, each) for each in evidence] if isinstance(evidence, list) else real.get(evidence, evidence)
    )
    answer = model_output(
        new_facts=[new_fact(evidence=named)], new_rules=[{"content": "Ask first", "evidence": named}]
    )
    await learn(memory, caller, lambda prompt: answer if ids[0] in prompt else NO_ACTIONS)
    wanted = [ids[each] for each in expected]
    links = await links_of(archive, caller.tenant)
    sources = "select id::text, source_episode_id::text as source from facts where tenant_id = $1"
    for statement in (sources, sources.replace("facts", "rules")):
        (row,) = await archive.rows(statement, caller.tenant)
        assert {to for at, to in links if at == row["id"]} == set(wanted)
        assert row["source"] in (wanted if len(wanted) == 3 else wanted[:1])


async def test_each_change_leaves_one_event_that_names_the_run_and_who_ran_it(memory, caller, archive, tools):
    """Scenario: Source episodes marked as consolidated"""
    old, kept = await tools.fact("Porto", predicate="lives_in"), await tools.fact("tea", predicate="drinks")
    episodes = await store_episodes(memory, caller, "One", "Two")
    before = len(await archive.events(caller.tenant))
    await learn(
        memory,
        caller,
        model_output(
            new_facts=[new_fact()],
            updated_facts=[fact_update(old, "Lisbon")],
            new_rules=["Ask first"],
            confirmations=[kept],
        ),
    )
    events = (await archive.events(caller.tenant))[before:]
    (run,) = await runs_of(archive, caller.tenant)
    assert {(event["request_id"], event["actor"]) for event in events} == {(str(run["id"]), "somebody")}
    blue, lisbon = sorted(
        (row for row in await facts_of(archive, caller.tenant) if row["id"] != kept),
        key=lambda row: row["content"] != "blue",
    )
    (rule,) = await archive.rows("select id::text from rules where tenant_id = $1", caller.tenant)
    assert sorted((event["event_type"], event["entity_id"]) for event in events) == sorted(
        [
            ("fact_created", blue["id"]),
            ("fact_superseded", old),
            ("fact_created", lisbon["id"]),
            ("rule_created", rule["id"]),
            ("fact_confirmed", kept),
            *(("episode_consolidated", each) for each in episodes),
        ]
    )
    payloads = " ".join(event["payload"] for event in events)
    assert not any(word in payloads for word in ("Lisbon", "blue", "Ask first"))


async def test_the_record_of_a_batch_has_its_counts_and_what_it_took(memory, caller, archive, tools):
    old, kept = await tools.fact("Porto", predicate="lives_in"), await tools.fact("tea", predicate="drinks")
    await store_episodes(memory, caller, "One", "Two", "Three")
    answer = model_output(
        new_facts=[new_fact(), new_fact("x", ""), new_fact("y", "language")],
        updated_facts=[fact_update(old, "Lisbon"), fact_update(str(uuid4()), "nowhere")],
        new_rules=["Ask first"],
        confirmations=[kept, "first"],
    )
    done = await consolidation.consolidate(with_model(memory, ScriptedModel(answer, Usage(1234, 56))), caller)
    (run,) = await runs_of(archive, caller.tenant)
    counts = {"episodes": 3, "facts_created": 2, "facts_updated": 1, "rules_created": 1, "confirmed": 1}
    assert {name: run[name] for name in counts} == {name: done[name] for name in counts} == counts
    assert (run["status"], run["butler"], run["error"]) == ("succeeded", memory.butler, None)
    assert (run["input_tokens"], run["output_tokens"], run["tokens_estimated"]) == (1234, 56, False)
    assert done["tokens"] == {"input": 1234, "output": 56, "estimated": False}
    assert run["started_at"] <= run["finished_at"]
    assert run["session_id"] is not None
    assert len(run["errors"]) == 1
    assert run["errors"][0].startswith("updated_facts[1]: there is no live fact ")
    assert run["parse_errors"] == ["new_facts[1]: predicate is empty", "confirmations[1]: it is not a UUID"]
    assert done["errors"] == run["errors"] + run["parse_errors"]
    stats = (await tools("memory_stats"))["consolidation"]
    assert (stats["tokens_last_day"], stats["last_run"]["status"], stats["last_run"]["dropped"]) == (
        1290,
        "succeeded",
        3,
    )


async def test_tokens_are_counted_here_where_the_runtime_does_not_tell(memory, caller, archive):
    await store_episodes(memory, caller, "One")
    model = ScriptedModel(model_output(new_facts=[new_fact()]), usage=None)
    done = await consolidation.consolidate(with_model(memory, model), caller)
    (run,) = await runs_of(archive, caller.tenant)
    count = memory.embedder.count_tokens
    expected = (count(model.requests[0].prompt), count(model.answer), True)
    assert (run["input_tokens"], run["output_tokens"], run["tokens_estimated"]) == expected
    assert done["tokens"]["estimated"] is True


async def test_an_update_takes_the_place_of_its_target_whatever_its_words(memory, caller, archive, tools):
    """Scenario: Updated facts trigger supersession"""
    old = await tools.fact("Porto", predicate="lives_in")
    (episode,) = await store_episodes(memory, caller, "User moved to Lisbon")
    done = await learn(memory, caller, model_output(updated_facts=[fact_update(old, "Lisbon")]))
    (new,) = await facts_of(archive, caller.tenant)
    assert (new["subject"], new["predicate"], new["content"]) == ("user", "lives_in", "Lisbon")
    assert (new["supersedes_id"], new["scope"]) == (old, "global")
    assert (new["source_butler"], new["source_episode_id"]) == (memory.butler, episode)
    assert (await archive.row("fact", old))["validity"] == "superseded"
    assert await links_of(archive, caller.tenant) == {(new["id"], episode)}
    assert await links_of(archive, caller.tenant, "supersedes") == {(new["id"], old)}
    assert (done["facts_updated"], done["facts_created"]) == (1, 0)
    assert done["learned"][0]["superseded_id"] == old
    found_now = await tools.ids("memory_search", query="where does the user live", types=["fact"])
    assert found_now == [new["id"]]


async def test_an_update_of_a_fact_about_an_entity_stays_about_it(memory, caller, archive, tools):
    ada = await tools.entity("Ada")
    old = await tools.fact("London", subject="Ada", predicate="lives_in", entity_id=ada)
    twin = await tools.fact("Paris", subject="Ada", predicate="lives_in")
    await store_episodes(memory, caller, "Ada moved")
    await learn(memory, caller, model_output(updated_facts=[fact_update(old, "Oslo")]))
    live = {row["id"]: row for row in await facts_of(archive, caller.tenant)}
    assert live.pop(twin)["content"] == "Paris"
    (new,) = live.values()
    assert (new["entity_id"], new["subject"], new["content"], new["supersedes_id"]) == (ada, "Ada", "Oslo", old)


async def test_what_an_update_leaves_out_stays_and_what_it_says_counts(memory, caller, archive, tools):
    attributes = {"permanence": "permanent", "importance": 9.5, "tags": ["a", "b"]}
    silent = await tools.fact("old", predicate="one", **attributes)
    vague = await tools.fact("old", predicate="three", **attributes)
    loud = await tools.fact("old", predicate="two", **attributes)
    await store_episodes(memory, caller, "One")
    await learn(
        memory,
        caller,
        model_output(
            updated_facts=[
                fact_update(silent, "new"),
                fact_update(vague, "new", permanence="for ever", importance="high", tags="a"),
                fact_update(loud, "new", permanence="volatile", importance=2, tags=[]),
            ]
        ),
    )
    rows = {row["predicate"]: row for row in await facts_of(archive, caller.tenant)}
    kept = {name: (row["permanence"], row["importance"], row["tags"]) for name, row in rows.items()}
    unchanged = ("permanent", 9.5, ["a", "b"])
    assert kept == {"one": unchanged, "three": unchanged, "two": ("volatile", 2.0, [])}
    rate = await archive.rows("select decay_rate from facts where id = $1", rows["two"]["id"])
    assert rate == [{"decay_rate": 0.03}]


async def unreachable_fact(how, memory, tools, stranger):
    """Return the id of a fact that an update must not change."""
    target = await tools.fact("kept", predicate="target")
    if how == "another tenant's":
        return await stranger.fact("kept", predicate="target")
    if how == "superseded":
        await tools.fact("newer", predicate="target")
    if how == "retracted":
        await tools("memory_forget", memory_type="fact", memory_id=target)
    if how == "of another scope":
        return await tools.fact("kept", predicate="target", scope="another_butler")
    if how == "a rule":
        return await tools.rule("kept")
    return str(uuid4()) if how == "unknown" else target


UNREACHABLE = ("another tenant's", "superseded", "retracted", "of another scope", "a rule", "unknown")


@pytest.mark.parametrize("how", UNREACHABLE)
async def test_an_update_of_what_is_out_of_reach_changes_nothing(memory, caller, archive, tools, stranger, how):
    target = await unreachable_fact(how, memory, tools, stranger)
    await store_episodes(memory, caller, "One")
    others, own = await archive.everything(stranger.tenant), await fact_contents(archive, caller.tenant)
    done = await learn(
        memory, caller, model_output(updated_facts=[fact_update(target, "stolen")], new_facts=[new_fact()])
    )
    assert done["errors"] == [f"updated_facts[0]: there is no live fact {target} in scope"]
    assert (done["facts_updated"], done["facts_created"]) == (0, 1)
    assert await archive.everything(stranger.tenant) == others
    assert await fact_contents(archive, caller.tenant) == sorted([*own, "blue"])
    assert await archive.count("facts", caller.tenant, "content = 'stolen'") == 0


async def test_of_two_updates_of_one_fact_the_first_counts(memory, caller, archive, tools):
    old = await tools.fact("Porto", predicate="lives_in")
    await store_episodes(memory, caller, "One")
    done = await learn(
        memory, caller, model_output(updated_facts=[fact_update(old, "Lisbon"), fact_update(old, "Faro")])
    )
    assert await fact_contents(archive, caller.tenant) == ["Lisbon"]
    assert done["errors"] == [f"updated_facts[1]: the fact {old} was replaced during the run"]


async def test_an_update_that_says_what_its_target_says_confirms_it(memory, caller, archive, tools):
    old = await tools.fact("Porto", predicate="lives_in", importance=8.0)
    await archive.age("fact", old, 30)
    (episode,) = await store_episodes(memory, caller, "One")
    done = await learn(memory, caller, model_output(updated_facts=[fact_update(old, "Porto")]))
    (row,) = await facts_of(archive, caller.tenant)
    assert (row["id"], done["confirmed"], done["facts_updated"], done["learned"]) == (old, 1, 0, [])
    assert (await archive.rows("select now() - $1 < interval '1 minute' as fresh", row["last_confirmed_at"]))[0][
        "fresh"
    ]
    assert await links_of(archive, caller.tenant, "supports") == {(episode, old)}


@pytest.mark.parametrize("scope", ["global", None])
@pytest.mark.parametrize(
    "differing", [{}, {"importance": 9}, {"permanence": "permanent"}, {"tags": ["x"]}, {"scope": "global"}], ids=str
)
async def test_a_fact_that_is_believed_already_is_confirmed(memory, caller, archive, tools, scope, differing):
    known = await tools.fact("blue", scope=scope or memory.butler, importance=5.0, tags=["a"])
    await archive.age("fact", known, 30)
    await archive.change("fact", known, metadata="""'{"status": "fading"}'""")
    (episode,) = await store_episodes(memory, caller, "User said again that blue is the color")
    done = await learn(memory, caller, model_output(new_facts=[new_fact("blue", **differing)]))
    (row,) = await facts_of(archive, caller.tenant, "true")
    assert (row["id"], row["importance"], row["tags"], row["metadata"]) == (known, 5.0, ["a"], {})
    assert (done["confirmed"], done["facts_created"], done["facts_updated"]) == (1, 0, 0)
    assert (await archive.rows("select now() - $1 < interval '1 minute' as fresh", row["last_confirmed_at"]))[0][
        "fresh"
    ]
    assert await links_of(archive, caller.tenant, "supports") == {(episode, known)}
    assert await links_of(archive, caller.tenant) == set()


async def test_what_another_butler_believes_is_no_knowledge_of_this_one(memory, caller, archive, tools):
    other = await tools.fact("blue", scope="another_butler")
    await store_episodes(memory, caller, "User likes blue")
    done = await learn(memory, caller, model_output(new_facts=[new_fact("blue")], confirmations=[other]))
    assert done["facts_created"] == 1
    assert done["errors"] == [f"confirmations[0]: there is no live fact or rule {other} in scope"]
    scopes = {row["scope"] for row in await facts_of(archive, caller.tenant)}
    assert scopes == {"another_butler", memory.butler}


async def test_a_new_fact_under_a_key_that_is_held_takes_its_place(memory, caller, archive, tools):
    old = await tools.fact("blue", scope=memory.butler)
    elsewhere = await tools.fact("red", scope="global")
    await store_episodes(memory, caller, "User likes green now")
    done = await learn(memory, caller, model_output(new_facts=[new_fact("green")]))
    live = {row["id"]: row for row in await facts_of(archive, caller.tenant)}
    assert live.pop(elsewhere)["content"] == "red"
    (new,) = live.values()
    assert (new["content"], new["supersedes_id"], done["facts_updated"]) == ("green", old, 1)


@pytest.mark.parametrize("again", ["Ask before booking a flight", "Always ask before booking the flights!"])
@pytest.mark.parametrize("scope", ["global", None])
async def test_a_rule_that_says_what_a_live_rule_says_confirms_it(memory, caller, archive, tools, again, scope):
    known = await tools.rule("Ask before booking a flight", scope=scope or memory.butler)
    await archive.age("rule", known, 30)
    (episode,) = await store_episodes(memory, caller, "One")
    done = await learn(memory, caller, model_output(new_rules=[again]))
    rows = await archive.rows(
        "select id::text, content, now() - last_confirmed_at < interval '1 minute' as fresh from rules"
        " where tenant_id = $1",
        caller.tenant,
    )
    assert rows == [{"id": known, "content": "Ask before booking a flight", "fresh": True}]
    assert (done["confirmed"], done["rules_created"]) == (1, 0)
    assert await links_of(archive, caller.tenant, "supports") == {(episode, known)}


async def test_rules_that_differ_in_a_word_that_matters_are_two(memory, caller, archive, tools):
    await tools.rule("Call the office before noon")
    await store_episodes(memory, caller, "One")
    rules = ["Call the office after noon", "Never call the office before noon", "Call the office after noon"]
    done = await learn(memory, caller, model_output(new_rules=rules))
    assert (done["rules_created"], done["confirmed"]) == (2, 1)
    assert await archive.count("rules", caller.tenant) == 3


async def invert(archive, engine, rule_id, content):
    """Turn a rule into an anti-pattern, as the decay sweep does."""
    warning = f"ANTI-PATTERN: Do NOT {content}. This caused problems because: the user spent a night at an airport"
    await archive.change(
        "rule",
        rule_id,
        maturity="'anti_pattern'",
        metadata="metadata || jsonb_build_object('original_content', content)",
        content=f"'{warning}'",
        embedding=f"'{await engine.embed(warning)}'::vector",
    )


async def test_a_rule_that_was_turned_into_a_warning_is_not_learned_again(memory, caller, archive, tools, engine):
    harmful = await tools.rule("Book the cheapest flight")
    await invert(archive, engine, harmful, "Book the cheapest flight")
    await store_episodes(memory, caller, "One")
    done = await learn(
        memory, caller, model_output(new_rules=["Always book the cheapest flight"], new_facts=[new_fact()])
    )
    assert done["errors"] == [f"new_rules[0]: it is the original of the anti-pattern {harmful}"]
    assert (await archive.count("rules", caller.tenant), done["rules_created"], done["confirmed"]) == (1, 0, 0)


async def test_a_warning_is_remembered_among_many_rules_like_it(memory, caller, archive, tools, engine):
    harmful = await tools.rule("Book the cheapest flight")
    await invert(archive, engine, harmful, "Book the cheapest flight")
    for number in range(25):
        rule = NewRule(content=f"Book the cheapest flight number {number}", scope=memory.butler)
        await writing.store_rule(memory, caller, rule, REQUEST)
    await store_episodes(memory, caller, "One")
    await learn(memory, caller, model_output(new_rules=["Book the cheapest flight"], new_facts=[new_fact()]))
    assert await archive.count("rules", caller.tenant, "content = 'Book the cheapest flight'") == 0


async def test_facts_and_rules_are_confirmed_by_their_ids(memory, caller, archive, tools):
    fact, rule = await tools.fact("tea", predicate="drinks"), await tools.rule("Ask first")
    for kind, each in (("fact", fact), ("rule", rule)):
        await archive.age(kind, each, 30)
        await archive.change(kind, each, metadata="""metadata || '{"status": "fading"}'""")
    first, _ = await store_episodes(memory, caller, "One", "Two")
    done = await learn(
        memory, caller, model_output(confirmations=[{"target_id": fact, "evidence": [first, str(uuid4())]}, rule])
    )
    assert (done["confirmed"], done["learned"], done["errors"]) == (2, [], [])
    for kind, each in (("fact", fact), ("rule", rule)):
        row = await archive.row(kind, each)
        assert json.loads(row["metadata"]) == {}
        assert (await archive.rows("select now() - $1 < interval '1 minute' as fresh", row["last_confirmed_at"]))[0][
            "fresh"
        ]
    assert await links_of(archive, caller.tenant, "supports") == {(first, fact)}
    assert await episode_statuses(archive, caller.tenant) == ["consolidated"] * 2


@pytest.mark.parametrize("how", [*UNREACHABLE[:4], "unknown", "a forgotten rule", "an episode"])
async def test_what_is_out_of_reach_can_not_be_confirmed(memory, caller, archive, tools, stranger, how):
    (episode,) = await store_episodes(memory, caller, "One")
    if how == "a forgotten rule":
        target = await tools.rule("kept")
        await tools("memory_forget", memory_type="rule", memory_id=target)
    else:
        target = episode if how == "an episode" else await unreachable_fact(how, memory, tools, stranger)
    others = await archive.everything(stranger.tenant)
    done = await learn(memory, caller, model_output(confirmations=[target], new_facts=[new_fact()]))
    assert done["errors"] == [f"confirmations[0]: there is no live fact or rule {target} in scope"]
    assert (done["confirmed"], done["facts_created"]) == (0, 1)
    assert await archive.everything(stranger.tenant) == others
    assert await archive.count("memory_events", caller.tenant, "event_type like '%confirmed'") == 0


@pytest.mark.parametrize("answer", [NO_ACTIONS, "{}", '{"new_facts": []}', '```json\n{"new_facts": null}\n```'])
async def test_an_explicit_empty_answer_is_a_success(memory, caller, archive, answer):
    await store_episodes(memory, caller, "What time is it?", "Thanks")
    done = await learn(memory, caller, answer)
    assert (done["episodes"], done["failed_batches"], done["learned"], done["errors"]) == (2, 0, [], [])
    assert await episode_statuses(archive, caller.tenant) == ["consolidated"] * 2
    assert await archive.count("memory_events", caller.tenant, "event_type = 'episode_consolidated'") == 2
    assert [run["status"] for run in await runs_of(archive, caller.tenant)] == ["succeeded"]


async def test_what_is_consolidated_is_not_read_again(memory, caller, archive):
    await store_episodes(memory, caller, "One", "Two")
    await learn(memory, caller, fact_per_episode)
    model = ScriptedModel(fact_per_episode)
    done = await consolidation.consolidate(with_model(memory, model), caller)
    assert (model.requests, done["groups"], done["batches"]) == ([], 0, 0)
    (third,) = await store_episodes(memory, caller, "Three")
    await consolidation.consolidate(with_model(memory, model), caller)
    assert model.episodes_shown == [third]


async def test_an_expired_or_forgotten_episode_is_not_read(memory, caller, archive, tools):
    expired, forgotten, alive = await store_episodes(memory, caller, "Expired", "Forgotten", "Alive")
    await archive.age("episode", expired, 8)
    await tools("memory_forget", memory_type="episode", memory_id=forgotten)
    model = ScriptedModel(fact_per_episode)
    done = await consolidation.consolidate(with_model(memory, model), caller)
    assert (model.episodes_shown, done["episodes"]) == ([alive], 1)
    assert await episode_statuses(archive, caller.tenant) == ["pending", "pending", "consolidated"]


async def test_a_fact_and_a_rule_learned_twice_in_one_answer_are_one(memory, caller, archive):
    await store_episodes(memory, caller, "One")
    done = await learn(
        memory, caller, model_output(new_facts=[new_fact(), new_fact()], new_rules=["Ask first", "Ask first."])
    )
    assert (done["facts_created"], done["rules_created"], done["confirmed"]) == (1, 1, 2)
    assert (await archive.count("facts", caller.tenant), await archive.count("rules", caller.tenant)) == (1, 1)


async def test_two_tenants_learn_the_same_without_noticing_one_another(memory, caller, archive):
    other = replace(caller, tenant=f"t-{uuid4().hex}")
    for who in (caller, other):
        await store_episodes(memory, who, "User likes blue")
        await learn(memory, who, model_output(new_facts=[new_fact()], new_rules=["Ask first"]))
    for who in (caller, other):
        assert await fact_contents(archive, who.tenant) == ["blue"]
        assert await archive.count("rules", who.tenant) == 1
        assert await count_leases(archive, who.tenant) == 0


async def test_a_fact_the_tool_stored_meanwhile_is_confirmed_or_replaced_but_never_doubled(memory, caller, archive):
    await store_episodes(memory, caller, "One")
    meanwhile = NewFact(**ORDINARY, content="red", scope=memory.butler)

    async def answer_and_forget(_):
        await writing.store_fact(memory, caller, meanwhile, REQUEST)
        return model_output(new_facts=[new_fact("blue"), new_fact("red", "hair")])

    await learn(memory, caller, answer_and_forget)
    rows = await facts_of(archive, caller.tenant)
    assert {(row["predicate"], row["content"]) for row in rows} == {("color", "blue"), ("hair", "red")}
