"""Confidence of consolidated memories: lower until other evidence supports them."""

import pytest

from memory.lying_session import learn, start_session
from memory.scripted_model import fact_update, new_fact


@pytest.fixture
def liar(memory, caller):
    """A session that stores false episodes."""
    return start_session(memory, caller)


async def provenance_and_confidence(tools, kind: str, memory_id: str) -> tuple[str | None, float]:
    """Return the provenance and confidence of a memory, as an agent reads them."""
    shown = await tools("memory_get", memory_type=kind, memory_id=memory_id)
    return shown.get("provenance"), round(shown["confidence"], 2)


async def test_what_is_distilled_is_believed_less_and_says_so_wherever_it_is_found(tools, liar):
    fact, rule = await liar.learn_from_episode(new_facts=[new_fact("blue")], new_rules=["Offer blue things"])
    assert await provenance_and_confidence(tools, "fact", fact) == ("distilled", 0.7)
    assert await provenance_and_confidence(tools, "rule", rule) == ("distilled", 0.35)
    for tool, asked in (("memory_search", "query"), ("memory_recall", "topic")):
        shown = await tools(tool, **{asked: "blue"})
        assert {each["id"]: each.get("provenance") for each in shown if each["id"] in {fact, rule}} == {
            fact: "distilled",
            rule: "distilled",
        }


async def test_what_is_stored_directly_is_believed_whole_and_says_nothing_of_where_it_is_from(tools):
    assert await provenance_and_confidence(tools, "fact", await tools.fact()) == (None, 1.0)
    assert await provenance_and_confidence(tools, "rule", await tools.rule()) == (None, 0.5)


@pytest.mark.parametrize(("share", "confidence"), [(0.0, 0.0), (0.25, 0.25), (1.0, 1.0)])
async def test_how_far_it_is_believed_can_be_set(tools, liar, share, confidence):
    (fact,) = await liar.learn_from_episode(distilled_confidence=share, new_facts=[new_fact("blue")])
    assert await provenance_and_confidence(tools, "fact", fact) == ("distilled", confidence)


async def test_a_confirmation_supports_it(tools, liar):
    fact, rule = await liar.learn_from_episode(new_facts=[new_fact("blue")], new_rules=["Offer blue things"])
    await tools("memory_confirm", memory_type="fact", memory_id=fact)
    await tools("memory_confirm", memory_type="rule", memory_id=rule)
    assert await provenance_and_confidence(tools, "fact", fact) == ("supported", 1.0)
    assert await provenance_and_confidence(tools, "rule", rule) == ("supported", 0.5)


async def test_the_same_stored_directly_supports_it(memory, tools, liar):
    (fact,) = await liar.learn_from_episode(new_facts=[new_fact("blue")])
    assert await tools.fact("blue", scope=memory.butler) == fact
    assert await provenance_and_confidence(tools, "fact", fact) == ("supported", 1.0)


async def test_an_episode_of_another_session_supports_it(memory, caller, tools, liar):
    fact, rule = await liar.learn_from_episode(new_facts=[new_fact("blue")], new_rules=["Offer blue things"])
    await start_session(memory, caller).store_episode()
    assert await learn(memory, caller, new_facts=[new_fact("blue")], confirmations=[rule]) == []
    assert await provenance_and_confidence(tools, "fact", fact) == ("supported", 1.0)


async def test_a_session_does_not_support_what_it_said_itself_however_often_it_says_it(memory, caller, tools, liar):
    fact, rule = await liar.learn_from_episode(new_facts=[new_fact("blue")], new_rules=["Offer blue things"])
    for _ in range(3):
        episode = await liar.store_episode()
        again = {"new_facts": [new_fact("blue", evidence=[episode])], "new_rules": ["Offer blue things"]}
        assert await learn(memory, caller, **again) == []
        named = [{"target_id": each, "evidence": [episode]} for each in (fact, rule)]
        await liar.store_episode()
        assert await learn(memory, caller, confirmations=named) == []
    assert await provenance_and_confidence(tools, "fact", fact) == ("distilled", 0.7)
    assert await provenance_and_confidence(tools, "rule", rule) == ("distilled", 0.35)


async def test_a_confirmation_by_the_model_without_an_episode_supports_nothing(memory, caller, tools, liar):
    (fact,) = await liar.learn_from_episode(new_facts=[new_fact("blue")])
    await start_session(memory, caller).store_episode("Something else")
    await learn(memory, caller, confirmations=[fact])
    assert await provenance_and_confidence(tools, "fact", fact) == ("distilled", 0.7)


async def test_a_distilled_update_of_a_stored_fact_is_believed_less_than_that_was(tools, liar):
    stored = await tools.fact("blue")
    (update,) = await liar.learn_from_episode(updated_facts=[fact_update(stored)])
    assert await provenance_and_confidence(tools, "fact", update) == ("distilled", 0.7)
    assert (await tools("memory_get", memory_type="fact", memory_id=update))["supersedes_id"] == stored


async def test_what_is_stored_in_place_of_a_distilled_fact_is_believed_whole(memory, tools, liar):
    (fact,) = await liar.learn_from_episode(new_facts=[new_fact("blue")])
    other = await tools.fact("green", scope=memory.butler)
    assert other != fact
    assert await provenance_and_confidence(tools, "fact", other) == (None, 1.0)
