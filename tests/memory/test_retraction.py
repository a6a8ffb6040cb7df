"""Retraction of all memories from a session or an episode, and its undo."""

import asyncio
from collections import Counter
from uuid import uuid4

import pytest

from butlers.modules.memory.domain.model import NewFact, NewRule
from butlers.modules.memory.operations import consolidation, writing
from butlers.modules.memory.operations.retraction import Origin, retract
from memory.lying_session import learn, start_session
from memory.memory_fixtures import REQUEST
from memory.scripted_model import ScriptedModel, fact_contents, fact_update, model_output, new_fact, with_model

RETRACT = "memory_retract_from"


@pytest.fixture
def liar(memory, caller):
    """A session that stores false episodes."""
    return start_session(memory, caller)


@pytest.fixture
def honest(memory, caller):
    """A session that stores true episodes."""
    return start_session(memory, caller)


async def retracted_count(tools, **origin):
    return await tools(RETRACT, **origin, dry_run=False)


async def state(tools, kind: str, memory_id: str) -> str:
    return (await tools("memory_get", memory_type=kind, memory_id=memory_id))["lifecycle"]


def kinds_by_id(answer) -> dict[str, str]:
    """Return the found memories as kinds by id."""
    return {each["id"]: each["memory_type"] for each in answer["found"]}


async def test_everything_a_session_stored_told_and_led_to_goes_together(memory, caller, tools, liar):
    episode = await liar.store_episode("She hates blue")
    distilled, rule = (
        each["id"] for each in await learn(memory, caller, new_facts=[new_fact("red")], new_rules=["Hide blue"])
    )
    kept = await tools.fact("tea", predicate="drink")
    before = await tools(RETRACT, session_id=liar.id)
    assert before["dry_run"] is True
    assert kinds_by_id(before) == {episode: "episode", distilled: "fact", rule: "rule"}
    assert [await state(tools, *each) for each in (("fact", distilled), ("rule", rule))] == ["active", "active"]
    done = await retracted_count(tools, session_id=liar.id)
    assert (done["retracted"], kinds_by_id(done)) == ({"facts": 1, "rules": 1, "episodes": 1}, kinds_by_id(before))
    assert await state(tools, "fact", distilled) == "retracted"
    assert [await state(tools, kind, each) for kind, each in (("rule", rule), ("episode", episode))] == [
        "forgotten",
        "forgotten",
    ]
    assert await tools.ids("memory_search", query="what color, what drink", scope="*") == [kept]


async def test_what_the_session_stored_by_itself_goes_with_it(memory, liar, tools):
    lie = NewFact(subject="user", predicate="color", content="black")
    fact = (await writing.store_fact(memory, liar.caller, lie, REQUEST))["id"]
    rule = (await writing.store_rule(memory, liar.caller, NewRule(content="Trust nobody"), REQUEST))["id"]
    done = await retracted_count(tools, session_id=liar.id)
    assert kinds_by_id(done) == {fact: "fact", rule: "rule"}
    assert done["retracted"] == {"facts": 1, "rules": 1, "episodes": 0}


async def test_one_episode_takes_only_what_it_led_to(memory, caller, tools, liar):
    first, second = await liar.store_episode("one"), await liar.store_episode("two")
    answer = await learn(
        memory, caller, new_facts=[new_fact("a", "one", evidence=[first]), new_fact("b", "two", evidence=[second])]
    )
    one, two = (each["id"] for each in answer)
    done = await retracted_count(tools, episode_id=first)
    assert kinds_by_id(done) == {first: "episode", one: "fact"}
    assert [await state(tools, "fact", each) for each in (one, two)] == ["retracted", "active"]


async def test_what_other_episodes_say_as_well_stays_and_is_marked(memory, caller, tools, liar, honest):
    """Learned from both at once, and supported later."""
    lie, truth = await liar.store_episode(), await honest.store_episode()
    both, alone = (
        each["id"]
        for each in await learn(
            memory,
            caller,
            new_facts=[new_fact("a", "both", evidence=[lie, truth]), new_fact("b", "alone", evidence=[lie])],
        )
    )
    (later,) = await liar.learn_from_episode(new_facts=[new_fact("c", "later")])
    await honest.store_episode()
    assert await learn(memory, caller, new_facts=[new_fact("c", "later")]) == []
    done = await retracted_count(tools, session_id=liar.id)
    assert {each["id"]: each.get("corroborated_by") for each in done["found"] if each["memory_type"] == "fact"} == {
        both: 1,
        alone: None,
        later: 1,
    }
    assert [await state(tools, "fact", each) for each in (both, alone, later)] == ["active", "retracted", "active"]


async def test_what_the_same_session_bears_out_itself_goes_all_the_same(memory, caller, tools, liar):
    (fact,) = await liar.learn_from_episode(new_facts=[new_fact("blue")])
    await liar.store_episode()
    assert await learn(memory, caller, new_facts=[new_fact("blue")]) == []
    assert (await retracted_count(tools, session_id=liar.id))["retracted"]["facts"] == 1
    assert await state(tools, "fact", fact) == "retracted"


async def test_of_two_sessions_that_say_the_same_lie_the_second_takes_it_along(memory, caller, tools, liar):
    (lie,) = await liar.learn_from_episode(new_facts=[new_fact("red")])
    accomplice = start_session(memory, caller)
    await accomplice.store_episode()
    assert await learn(memory, caller, new_facts=[new_fact("red")]) == []
    assert (await retracted_count(tools, session_id=liar.id))["retracted"]["facts"] == 0
    assert (await retracted_count(tools, session_id=accomplice.id))["retracted"]["episodes"] == 1
    assert (await retracted_count(tools, session_id=liar.id))["retracted"]["facts"] == 1
    assert await state(tools, "fact", lie) == "retracted"


async def test_asked_to_it_takes_what_others_say_too(memory, caller, tools, liar, honest):
    lie, truth = await liar.store_episode(), await honest.store_episode()
    answer = await learn(memory, caller, new_facts=[new_fact("a", "both", evidence=[lie, truth])])
    done = await retracted_count(tools, session_id=liar.id, include_corroborated=True)
    assert done["retracted"]["facts"] == 1
    assert await state(tools, "fact", answer[0]["id"]) == "retracted"
    assert await state(tools, "episode", truth) == "active", "what the others told is theirs"


async def test_what_a_lie_had_replaced_holds_again(tools, liar, memory, archive, caller):
    """Two false facts supersede a true one, one after the other."""
    truth = await tools.fact("blue")
    (first,) = await liar.learn_from_episode(updated_facts=[fact_update(truth, "green")])
    (second,) = await liar.learn_from_episode(updated_facts=[fact_update(first, "red")])
    done = await retracted_count(tools, session_id=liar.id)
    assert (done["brought_back"], done["retracted"]["facts"]) == ([truth], 1)
    assert await fact_contents(archive, caller.tenant) == ["blue"]
    assert await state(tools, "fact", second) == "retracted"


async def test_what_replaced_a_lie_stays(tools, liar, archive, caller, memory):
    (lie,) = await liar.learn_from_episode(new_facts=[new_fact("red")])
    truth = await tools.fact("blue", scope=memory.butler)
    done = await retracted_count(tools, session_id=liar.id)
    assert (done["brought_back"], done["retracted"]["facts"]) == ([], 0)
    assert await fact_contents(archive, caller.tenant) == ["blue"]
    assert truth != lie


async def test_what_others_distilled_while_a_session_asked_for_it_is_not_the_sessions(memory, caller, tools, liar):
    """A session that runs consolidation is not the origin of what is learned."""
    episode = await start_session(memory, caller).store_episode()
    model = ScriptedModel(model_output(new_facts=[new_fact("blue", evidence=[episode])]))
    (fact,) = (await consolidation.consolidate(with_model(memory, model), liar.caller))["learned"]
    assert (await retracted_count(tools, session_id=liar.id))["found"] == []
    assert await state(tools, "fact", fact["id"]) == "active"


async def test_undoing_restores_what_it_took_and_nothing_else(memory, caller, tools, archive, liar):
    truth = await tools.fact("blue")
    forgotten = await tools.fact("tea", predicate="drink")
    await tools("memory_forget", memory_type="fact", memory_id=forgotten)
    (update,) = await liar.learn_from_episode(updated_facts=[fact_update(truth, "green")])
    earlier, rule = await liar.learn_from_episode(new_facts=[new_fact("x", "gone_before")], new_rules=["Hide blue"])
    await tools("memory_forget", memory_type="fact", memory_id=earlier)
    done = await retracted_count(tools, session_id=liar.id)
    assert done["retracted"] == {"facts": 1, "rules": 1, "episodes": 2}
    undone = await tools(RETRACT, undo=done["retraction_id"])
    assert undone == {"restored": 4, "left_alone": []}
    assert await fact_contents(archive, caller.tenant) == ["green"]
    assert await state(tools, "fact", truth) == "superseded"
    assert await state(tools, "rule", rule) == "active"
    assert [await state(tools, "fact", each) for each in (forgotten, earlier)] == ["retracted", "retracted"]
    assert (await tools("memory_history", memory_type="fact", memory_id=update))["superseded"][0]["id"] == truth


async def test_undoing_keeps_how_far_things_were_believed(tools, liar):
    (fact,) = await liar.learn_from_episode(new_facts=[new_fact("blue")])
    done = await retracted_count(tools, session_id=liar.id)
    await tools(RETRACT, undo=done["retraction_id"])
    shown = await tools("memory_get", memory_type="fact", memory_id=fact)
    assert (shown["provenance"], round(shown["confidence"], 2)) == ("distilled", 0.7)


async def test_undoing_leaves_alone_what_was_stored_in_its_place(tools, archive, caller, liar, memory):
    (lie,) = await liar.learn_from_episode(new_facts=[new_fact("red")])
    done = await retracted_count(tools, session_id=liar.id)
    await tools.fact("blue", scope=memory.butler)
    undone = await tools(RETRACT, undo=done["retraction_id"])
    assert undone == {"restored": 1, "left_alone": [lie]}
    assert await fact_contents(archive, caller.tenant) == ["blue"]


async def test_undoing_leaves_alone_what_somebody_forgot_since(tools, archive, caller, liar):
    (lie,) = await liar.learn_from_episode(new_facts=[new_fact("red")])
    done = await retracted_count(tools, session_id=liar.id)
    await tools("memory_restore", memory_type="fact", memory_id=lie)
    await tools("memory_forget", memory_type="fact", memory_id=lie)
    undone = await tools(RETRACT, undo=done["retraction_id"])
    assert undone == {"restored": 1, "left_alone": [lie]}
    assert await fact_contents(archive, caller.tenant) == []


async def test_undoing_does_not_end_what_holds_again_when_what_replaced_it_is_gone(tools, archive, caller, liar):
    truth = await tools.fact("blue")
    (lie,) = await liar.learn_from_episode(updated_facts=[fact_update(truth, "green")])
    done = await retracted_count(tools, session_id=liar.id)
    await archive.rows("delete from facts where id = $1 returning 1", lie)
    undone = await tools(RETRACT, undo=done["retraction_id"])
    assert undone == {"restored": 1, "left_alone": [lie]}
    assert await fact_contents(archive, caller.tenant) == ["blue"]


async def test_undoing_twice_changes_nothing_the_second_time(tools, archive, caller, liar):
    truth = await tools.fact("blue")
    (lie,) = await liar.learn_from_episode(updated_facts=[fact_update(truth, "green")])
    done = await retracted_count(tools, session_id=liar.id)
    assert (await tools(RETRACT, undo=done["retraction_id"]))["restored"] == 2
    before = await archive.everything(caller.tenant)
    again = await tools(RETRACT, undo=done["retraction_id"])
    assert again["restored"] == 0
    assert await archive.everything(caller.tenant) == before
    assert await state(tools, "fact", lie) == "active"


async def test_retracted_again_after_an_undo_it_goes_again(tools, archive, caller, liar):
    await tools.fact("tea", predicate="drink")
    await liar.learn_from_episode(new_facts=[new_fact("red")])
    first = await retracted_count(tools, session_id=liar.id)
    await tools(RETRACT, undo=first["retraction_id"])
    second = await retracted_count(tools, session_id=liar.id)
    assert second["retracted"] == first["retracted"]
    assert (await tools(RETRACT, undo=first["retraction_id"]))["restored"] == 0, "that one was undone"
    assert await fact_contents(archive, caller.tenant) == ["tea"]
    assert (await tools(RETRACT, undo=second["retraction_id"]))["restored"] == 2


async def test_retracted_by_many_at_once_each_thing_goes_once(memory, caller, tools, archive, liar):
    truths = [await tools.fact(f"true {n}", predicate=f"p{n}") for n in range(6)]
    await liar.learn_from_episode(updated_facts=[fact_update(each, f"false {n}") for n, each in enumerate(truths)])
    answers = await asyncio.gather(*(retract(memory, caller, Origin(session_id=liar.id)) for _ in range(8)))
    assert sum(each["retracted"]["facts"] for each in answers) == len(truths)
    assert sum(len(each["brought_back"]) for each in answers) == len(truths)
    assert await fact_contents(archive, caller.tenant) == [f"true {n}" for n in range(6)]
    events = Counter(each["event_type"] for each in await archive.events(caller.tenant))
    assert (events["fact_forgotten"], events["fact_restored"], events["episode_forgotten"]) == (6, 6, 1)
    everything = await asyncio.gather(
        *(tools.client.call_tool(RETRACT, {"undo": each["retraction_id"]}, raise_on_error=False) for each in answers)
    )
    assert all(each.content[0].text.startswith("not_found") for each in everything if each.is_error)
    assert sum(each.structured_content["restored"] for each in everything if not each.is_error) == len(truths) + 1


async def test_retracting_against_storing_ends_in_one_of_the_two_orders(memory, caller, tools, archive, liar):
    truths = [await tools.fact(f"true {n}", predicate=f"p{n}") for n in range(8)]
    await liar.learn_from_episode(updated_facts=[fact_update(each, f"false {n}") for n, each in enumerate(truths)])
    await asyncio.gather(
        retract(memory, caller, Origin(session_id=liar.id)),
        *(tools.fact(f"new {n}", predicate=f"p{n}") for n in range(8)),
    )
    assert await fact_contents(archive, caller.tenant) == [f"new {n}" for n in range(8)]


async def test_the_same_request_again_with_its_key_is_the_first_answer(tools, liar):
    await liar.learn_from_episode(new_facts=[new_fact("red")])
    first = await retracted_count(tools, session_id=liar.id, idempotency_key="k")
    assert await retracted_count(tools, session_id=liar.id, idempotency_key="k") == first
    refused = await tools.refusal(RETRACT, session_id=str(uuid4()), dry_run=False, idempotency_key="k")
    assert refused.startswith("conflict: ")


async def test_another_tenants_session_episode_and_retraction_are_not_there(tools, stranger, archive, caller, liar):
    await liar.learn_from_episode(new_facts=[new_fact("red")])
    episode = (await archive.rows("select id::text from episodes where tenant_id = $1", caller.tenant))[0]["id"]
    before = await archive.everything(caller.tenant)
    for origin in ({"session_id": liar.id}, {"episode_id": episode}):
        assert (await stranger(RETRACT, **origin))["found"] == []
        done = await retracted_count(stranger, **origin, include_corroborated=True)
        assert (done["found"], sum(done["retracted"].values())) == ([], 0)
    assert await archive.everything(caller.tenant) == before
    done = await retracted_count(tools, session_id=liar.id)
    assert (await stranger.refusal(RETRACT, undo=done["retraction_id"])).startswith("not_found: ")
    assert await fact_contents(archive, caller.tenant) == []


@pytest.mark.parametrize(
    "words",
    [
        {},
        {"session_id": " "},
        {"session_id": str(uuid4()), "episode_id": str(uuid4())},
        {"session_id": "yesterday"},
        {"episode_id": "that one"},
        {"undo": "it"},
        {"undo": str(uuid4()), "session_id": str(uuid4())},
    ],
    ids=["nothing", "blank", "both", "no session's id", "no episode's id", "no retraction's id", "undo and origin"],
)
async def test_an_origin_that_is_none_is_refused_by_name(tools, words):
    assert (await tools.refusal(RETRACT, **words)).startswith("invalid_input: ")


async def test_a_retraction_nobody_made_is_not_found(tools):
    refused = await tools.refusal(RETRACT, undo=str(uuid4()))
    assert refused.startswith("not_found: ")


async def test_the_trail_says_who_took_back_what_and_not_what_it_said(tools, archive, caller, liar):
    await liar.learn_from_episode(new_facts=[new_fact("marzipan")])
    done = await retracted_count(tools, session_id=liar.id)
    await tools(RETRACT, undo=done["retraction_id"])
    events = await archive.events(caller.tenant)
    assert "marzipan" not in str(events)
    marked = [each for each in events if done["retraction_id"] in each["payload"]]
    assert {each["event_type"] for each in marked} == {"fact_forgotten", "episode_forgotten"}
    assert {each["actor"] for each in marked} == {"local"}
