"""Proposals: consolidation with review = "before", and what people decide."""

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest

from butlers.errors import Conflict, NotFound
from butlers.modules.memory.operations import cleanup, consolidation, erasure, proposals, undo
from butlers.modules.memory.operations.idempotency import Request
from memory.acts import EPISODE, FACT, Actor
from memory.lying_session import start_session
from memory.memory_fixtures import REQUEST, new_caller
from memory.scripted_model import ScriptedModel, fact_update, model_output, new_fact, with_model


@pytest.fixture
def actor(memory, caller):
    """The caller, with a new request for each act."""
    return Actor(memory, caller)


@pytest.fixture
def propose(memory, caller):
    """Store an episode, consolidate it with this output and return the proposals by their change."""

    async def run(episode="She likes red now", **lists):
        await start_session(memory, caller).store_episode(episode)
        learner = with_model(memory, ScriptedModel(model_output(**lists)), review="before")
        answer = await consolidation.consolidate(learner, caller)
        assert answer["errors"] == []
        assert answer["learned"] == []
        return {each["change"]: each for each in await proposals.list_waiting(memory, caller)}

    return run


async def decide(actor, how, proposal):
    """Accept or decline a proposal as a new request; return its id and answer."""
    return await actor.answer(how, proposal["id"])


async def test_nothing_is_stored_and_no_search_finds_a_proposal_in_any_state(propose, tools, archive, caller, actor):
    made = await propose(
        new_facts=[new_fact("by the window", "seat"), new_fact("in the shade", "place")], new_rules=["Offer a seat"]
    )
    waiting = await proposals.list_waiting(actor.memory, caller)
    assert len(waiting) == 3
    await decide(actor, proposals.decline, made["new rule"])

    async def found():
        return [
            await tools("memory_search", query="window seat", scope="*", types=["fact", "rule"], mode=mode)
            for mode in ("semantic", "keyword", "hybrid", "blended")
        ] + [await tools("memory_recall", topic="window seat", scope="*")]

    assert await found() == [[]] * 5
    assert "window" not in str(await tools("memory_context", trigger_prompt="window seat", butler=actor.memory.butler)
                               ).replace("She likes red now", "")  # fmt: skip
    assert await archive.count("facts", caller.tenant) == await archive.count("rules", caller.tenant) == 0


async def test_an_accepted_fact_is_as_sure_as_one_a_person_stored_and_its_undo_takes_it_back(
    propose, actor, archive, caller
):
    made = await propose(new_facts=[new_fact("by the window", "seat", scope="global", importance=8, tags=["travel"])])
    request, answer = await decide(actor, proposals.accept, made["new fact"])
    row = await archive.row("fact", answer["memory_id"])
    assert (row["content"], row["confidence"], row["importance"], row["scope"]) == (
        "by the window",
        1.0,
        8.0,
        "global",
    )
    assert '"provenance": "supported"' in row["metadata"]
    assert await archive.count("memory_links", caller.tenant, "relation = 'derived_from'") == 1
    assert await proposals.list_waiting(actor.memory, caller) == []
    await actor.undo(request)
    assert (await archive.row("fact", answer["memory_id"]))["validity"] == "retracted"


async def test_a_changed_fact_a_rule_and_a_confirmation_are_accepted(propose, actor, archive, tools, caller):
    blue, tea = await tools.fact("blue"), await tools.fact("tea", predicate="drink")
    await archive.age("fact", tea, 50)
    made = await propose(
        updated_facts=[fact_update(blue, "red")], new_rules=["Offer a seat"], confirmations=[{"target_id": tea}]
    )
    assert made["changed fact"]["current"] == "blue"
    answers = {name: (await decide(actor, proposals.accept, each))[1] for name, each in made.items()}
    assert (await archive.row("fact", blue))["validity"] == "superseded"
    assert (await archive.row("fact", answers["changed fact"]["memory_id"]))["content"] == "red"
    assert (await archive.row("rule", answers["new rule"]["memory_id"]))["confidence"] == 0.5
    assert answers["confirmation"]["memory_id"] == tea
    fresh = "last_confirmed_at > now() - interval '1 hour' and predicate = 'drink'"
    assert await archive.count("facts", caller.tenant, fresh) == 1


@pytest.mark.parametrize("why", ["replaced", "forgotten fact", "forgotten episode"])
async def test_a_proposal_is_checked_again_and_says_why_it_no_longer_applies(
    propose, actor, archive, tools, caller, why
):
    blue = await tools.fact("blue")
    match why:
        case "replaced":
            made = await propose(updated_facts=[fact_update(blue, "red")])
            await tools.fact("green")
            reason = f"there is no live fact {blue} in scope"
        case "forgotten fact":
            made = await propose(new_facts=[new_fact("by the window", "seat", scope="global")])
            await actor.forget(FACT, await tools.fact("by the window", predicate="seat"))
            reason = "it was forgotten after the episode it comes from"
        case "forgotten episode":
            made = await propose(new_facts=[new_fact("by the window", "seat")])
            ((episode,),) = [each["evidence"] for each in made.values()]
            await actor.forget(EPISODE, str(episode))
            reason = "forgotten"
    before = await archive.everything(caller.tenant)
    (proposal,) = made.values()
    with pytest.raises(Conflict, match=f"no longer applies: .*{reason}"):
        await decide(actor, proposals.accept, proposal)
    assert await archive.everything(caller.tenant) == before
    await decide(actor, proposals.decline, proposal)
    with pytest.raises(Conflict, match="is declined already"):
        await decide(actor, proposals.accept, proposal)


async def test_a_proposal_outlives_its_episode(propose, actor, archive, memory, caller):
    made = await propose(new_facts=[new_fact("by the window", "seat")])
    await archive.connection.execute(
        "update episodes set expires_at = now() - interval '1 hour' where tenant_id = $1", caller.tenant
    )
    await cleanup.clean_up(memory, caller)
    assert await archive.count("episodes", caller.tenant) == 0
    _, answer = await decide(actor, proposals.accept, made["new fact"])
    assert (await archive.row("fact", answer["memory_id"]))["source_episode_id"] is None


async def test_what_nobody_decides_expires_and_its_words_are_deleted_later(propose, actor, archive, memory, caller):
    made = await propose(new_facts=[new_fact("by the window", "seat")])
    await archive.connection.execute(
        "update consolidation_proposals set expires_at = now() - interval '1 minute' where tenant_id = $1",
        caller.tenant,
    )
    assert await proposals.list_waiting(memory, caller) == []
    with pytest.raises(Conflict, match="is expired already"):
        await decide(actor, proposals.accept, made["new fact"])
    await cleanup.clean_up(memory, replace(caller, actor="cleanup"))
    assert await archive.count("memory_events", caller.tenant, "event_type = 'proposal_expired'") == 1
    assert await archive.count("consolidation_proposals", caller.tenant, "status = 'expired'") == 1
    await archive.connection.execute(
        "update consolidation_proposals set decided_at = now() - interval '31 days' where tenant_id = $1",
        caller.tenant,
    )
    await cleanup.clean_up(memory, caller)
    assert await archive.count("consolidation_proposals", caller.tenant) == 0


async def test_fifty_people_accept_one_proposal_once(propose, actor, archive, caller):
    made = await propose(new_facts=[new_fact("by the window", "seat")])

    async def attempt():
        try:
            return (await decide(actor, proposals.accept, made["new fact"]))[1]["accepted"]
        except Conflict:
            return False

    results = [each for _ in range(5) for each in await asyncio.gather(*(attempt() for _ in range(10)))]
    assert sum(results) == 1
    assert await archive.count("facts", caller.tenant) == 1


async def test_erasing_the_episode_or_the_fact_erases_its_proposals(propose, archive, memory, caller, tools):
    blue = await tools.fact("blue")
    made = await propose(new_facts=[new_fact("by the window", "seat")], updated_facts=[fact_update(blue, "red")])
    await erasure.erase_memory(memory, caller, FACT, UUID(blue))
    assert await archive.count("consolidation_proposals", caller.tenant) == 1
    (episode,) = made["new fact"]["evidence"]
    await erasure.erase_memory(memory, caller, EPISODE, episode)
    assert await archive.count("consolidation_proposals", caller.tenant) == 0


async def test_an_agent_lists_accepts_and_declines_with_one_key_once(propose, tools, stranger):
    made = await propose(new_facts=[new_fact("by the window", "seat")], new_rules=["Offer a seat"])
    ids = {each["change"]: each["id"] for each in (await tools("memory_proposals"))["proposals"]}
    assert {name: UUID(each) for name, each in ids.items()} == {name: each["id"] for name, each in made.items()}
    assert (await stranger("memory_proposals"))["proposals"] == []
    assert "not_found" in await stranger.refusal("memory_proposals", accept=ids["new fact"])
    first = await tools("memory_proposals", accept=ids["new fact"], idempotency_key="a")
    assert await tools("memory_proposals", accept=ids["new fact"], idempotency_key="a") == first
    assert (await tools("memory_proposals", decline=ids["new rule"]))["declined"] is True
    assert "Send accept or decline" in await tools.refusal("memory_proposals", accept="a", decline="b")


async def test_an_unknown_proposal_is_not_found(memory, caller):
    for how in (proposals.accept, proposals.decline):
        with pytest.raises(NotFound):
            await how(memory, new_caller(memory), UUID(int=1), Request("t", {}))


async def test_a_fact_stored_in_place_of_another_is_undone_with_it_by_either_event(tools, archive, actor, caller):
    old = await tools.fact("blue", predicate="color")
    new = await tools.fact("red", predicate="favourite", supersedes_id=old)
    (event,) = await archive.rows("select id from memory_events where entity_id = $1", UUID(new))
    await undo.undo_event(actor.memory, replace(caller, request_id="undo-1"), event["id"], REQUEST)
    states = [(await archive.row("fact", each))["validity"] for each in (old, new)]
    assert states == ["active", "retracted"]
