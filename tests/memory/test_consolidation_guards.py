"""Guards of consolidation: echoes are dropped, twins confirm, updates are asked for, predicates are listed."""

import json
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from butlers.modules.memory.domain.model import MemoryType, NewEpisode, NewFact, NewRule
from butlers.modules.memory.domain.receipt import Receipt, ReceiptLine, ReceiptSource
from butlers.modules.memory.operations import consolidation, receipts, twins, writing
from memory.memory_fixtures import REQUEST
from memory.scripted_model import (
    ScriptedModel,
    answers_in_turn,
    links_of,
    model_output,
    new_fact,
    runs_of,
    with_model,
)

COLOR = {"subject": "user", "predicate": "favourite_color"}


async def known_fact(memory, caller, content="purple", predicate="favourite_color") -> str:
    fact = NewFact(subject="user", predicate=predicate, content=content)
    return str((await writing.store_fact(memory, caller, fact, REQUEST))["id"])


async def episode_of(memory, caller, text: str, told: dict[str, MemoryType] | None = None) -> str:
    """Store the episode of a session that was told these memories."""
    session = replace(caller, session_id=str(uuid4()))
    lines = [ReceiptLine(kind, UUID(each), rank) for rank, (each, kind) in enumerate((told or {}).items(), 1)]
    receipts.record(memory, session, Receipt(ReceiptSource.CONTEXT, lines))
    await receipts.settle(memory)
    episode = NewEpisode(content=text, butler=memory.butler, session_id=UUID(session.session_id))
    return str((await writing.store_episode(memory, session, episode, REQUEST))["id"])


async def learn(memory, caller, *outputs: str, **settings):
    model = ScriptedModel(answers_in_turn(*outputs))
    return await consolidation.consolidate(with_model(memory, model, **settings), caller), model


async def live(archive, caller) -> dict[str, str]:
    rows = await archive.rows(
        "select predicate, content from facts where tenant_id = $1 and validity = 'active'", caller.tenant
    )
    return {row["predicate"]: row["content"] for row in rows}


async def test_what_the_session_was_told_is_an_echo_and_is_dropped_with_the_reason(memory, caller, archive):
    told = await known_fact(memory, caller)
    await episode_of(memory, caller, "Asked: What to wear?\nResult: You love purple.", {told: MemoryType.FACT})
    done, _ = await learn(memory, caller, model_output(new_facts=[new_fact("likes purple best", "likes_color")]))
    assert (done["facts_created"], done["confirmed"]) == (0, 0)
    assert await live(archive, caller) == {"favourite_color": "purple"}
    (error,) = done["errors"]
    assert f"echo of the fact {told}" in error
    (run,) = await runs_of(archive, caller.tenant)
    assert run["status"] == "succeeded"
    echoed = [each for each in await archive.events(caller.tenant) if each["event_type"] == "fact_echoed"]
    assert [each["entity_id"] for each in echoed] == [told]
    assert json.loads(echoed[0]["payload"])["by"] == "consolidation"


async def test_an_echo_of_a_fact_that_was_replaced_meanwhile_does_not_come_back(memory, caller, archive):
    told = await known_fact(memory, caller, "Porto", "lives_in")
    await episode_of(
        memory, caller, "Asked: Find a dentist\nResult: In Porto, where you live.", {told: MemoryType.FACT}
    )
    await known_fact(memory, caller, "Lisbon", "lives_in")
    await learn(memory, caller, model_output(new_facts=[new_fact("lives in Porto", "home_city")]))
    assert await live(archive, caller) == {"lives_in": "Lisbon"}


@pytest.mark.parametrize(
    ("text", "is_told"),
    [("Asked: I still love purple\nResult: Noted.", True), ("Asked: Hello\nResult: You love purple.", False)],
    ids=["said by the user", "not told"],
)
async def test_what_happened_confirms_the_live_fact_under_its_other_key(memory, caller, archive, text, is_told):
    told = await known_fact(memory, caller)
    episode = await episode_of(memory, caller, text, {told: MemoryType.FACT} if is_told else None)
    done, model = await learn(memory, caller, model_output(new_facts=[new_fact("likes purple best", "likes_color")]))
    assert (done["facts_created"], done["confirmed"], len(model.requests)) == (0, 1, 1)
    assert await live(archive, caller) == {"favourite_color": "purple"}
    assert await links_of(archive, caller.tenant, "supports") == {(episode, told)}


async def test_a_rule_the_session_was_told_is_an_echo(memory, caller, archive):
    rule = await writing.store_rule(memory, caller, NewRule(content="Run the tests before every commit"), REQUEST)
    await episode_of(memory, caller, "Asked: Commit\nResult: I ran the tests.", {rule["id"]: MemoryType.RULE})
    entry = {"content": "Always run all tests before committing"}
    done, _ = await learn(memory, caller, model_output(new_rules=[entry]))
    assert (done["rules_created"], await archive.count("rules", caller.tenant)) == (0, 1)


def decision(*decisions: str) -> str:
    entries = [{"number": number, "decision": each} for number, each in enumerate(decisions, 1)]
    return json.dumps({"decisions": entries})


CYAN = model_output(new_facts=[new_fact("cyan", "favorite_colour")])


async def test_a_fact_that_says_otherwise_is_offered_as_an_update(memory, caller, archive):
    await known_fact(memory, caller)
    await episode_of(memory, caller, "Asked: I prefer cyan now")
    done, model = await learn(memory, caller, CYAN, decision("update"))
    assert (done["facts_updated"], done["facts_created"], len(model.requests)) == (1, 0, 2)
    assert "[favorite_colour]: cyan" in model.requests[1].prompt
    assert "[favourite_color]: purple" in model.requests[1].prompt
    assert await live(archive, caller) == {"favourite_color": "cyan"}
    (run,) = await runs_of(archive, caller.tenant)
    assert run["input_tokens"] > 0


async def test_the_model_can_say_that_both_hold_or_that_they_are_the_same(memory, caller, archive):
    known = await known_fact(memory, caller)
    await episode_of(memory, caller, "Asked: cyan for the kitchen")
    await learn(memory, caller, CYAN, decision("both"))
    assert set((await live(archive, caller)).values()) == {"purple", "cyan"}
    assert {target for _, target in await links_of(archive, caller.tenant, "related_to")} == {known}
    await episode_of(memory, caller, "Asked: cyan again")
    done, _ = await learn(
        memory, caller, model_output(new_facts=[new_fact("turquoise", "likes_colour")]), decision("same")
    )
    assert (done["facts_created"], done["confirmed"]) == (0, 1)


@pytest.mark.parametrize("answer", ["I do not know.", None], ids=["no decision", "not asked"])
async def test_without_a_decision_it_is_kept_with_a_link_for_review(memory, caller, archive, answer):
    told = await known_fact(memory, caller)
    await episode_of(memory, caller, "Asked: cyan")
    outputs = [CYAN] if answer is None else [CYAN, answer]
    done, model = await learn(memory, caller, *outputs, ask_about_updates=answer is not None)
    assert (done["facts_created"], len(model.requests)) == (1, len(outputs))
    ((new, target),) = await links_of(archive, caller.tenant, "contradicts")
    assert target == told
    (shown,) = await twins.find_twins(memory, caller)
    assert {str(shown.first["id"]), str(shown.second["id"])} == {new, told}
    await twins.keep_both(memory, caller, "fact", UUID(new), UUID(told), REQUEST)
    assert await twins.find_twins(memory, caller) == []


async def test_guards_can_be_switched_off(memory, caller, archive):
    told = await known_fact(memory, caller)
    await episode_of(memory, caller, "Asked: Hello\nResult: You love purple.", {told: MemoryType.FACT})
    output = model_output(new_facts=[new_fact("likes purple best", "likes_color")])
    off = {"drop_echoes": False, "confirm_twins": False, "ask_about_updates": False, "list_predicates": False}
    done, model = await learn(memory, caller, output, **off)
    assert done["facts_created"] == 1
    assert "## Predicates in use" not in model.requests[0].prompt


async def test_the_prompt_lists_the_predicates_in_use_the_most_frequent_first(memory, caller):
    for subject in ("Ada", "Tom"):
        fact = NewFact(subject=subject, predicate="drinks", content="tea")
        await writing.store_fact(memory, caller, fact, REQUEST)
    await known_fact(memory, caller)
    await episode_of(memory, caller, "Asked: Hello")
    _, model = await learn(memory, caller, model_output())
    assert "## Predicates in use\n\ndrinks, favourite_color\n" in model.requests[0].prompt
