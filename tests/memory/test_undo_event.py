"""Undo of one event, and of the last act of a caller."""

from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from butlers.errors import Conflict, NotFound
from butlers.modules.memory.operations import bulk, entities, management, undo
from butlers.modules.memory.operations.undo import UndoTarget
from memory.acts import FACT, RULE, Actor, snapshot
from memory.lying_session import learn, start_session
from memory.memory_fixtures import REQUEST, new_caller
from memory.scripted_model import new_fact


@pytest.fixture
def actor(memory, caller):
    """The caller, with a new request for each act."""
    return Actor(memory, caller)


@pytest.fixture
def undo_last_event(archive, actor, caller):
    """Undo the latest event of a record, of this type if one is named."""

    async def run(record_id: str, event_type: str = "%"):
        event = await last_event(archive, caller, record_id, event_type)
        return (await actor.answer(undo.undo_event, event))[1]

    return run


async def last_event(archive, caller, record_id: str, event_type: str = "%") -> UUID:
    """Return the id of the latest event of a record."""
    (row,) = await archive.rows(
        "select id from memory_events where tenant_id = $1 and entity_id = $2 and event_type like $3"
        " order by occurred_at desc limit 1",
        caller.tenant, UUID(record_id), event_type,
    )  # fmt: skip
    return row["id"]


async def test_one_event_of_a_bulk_is_undone_and_the_others_stand(actor, tools, archive, caller, undo_last_event):
    one, two = await tools.fact("tea", predicate="drink"), await tools.fact("figs", predicate="food")
    before = await archive.row("fact", one)
    ids = [UUID(one), UUID(two)]
    done = await actor(bulk.act_on_many, FACT, ids, "forget", [])
    answer = await undo_last_event(one)
    assert (answer["request_id"], answer["number"]) == (done, 1)
    assert await archive.row("fact", one) == before
    assert (await archive.row("fact", two))["validity"] == "retracted"
    assert await undo_last_event(one, "fact_forgotten") == {
        "event_id": answer["event_id"], "request_id": done, "undone": [], "number": 0, "already": True,
    }  # fmt: skip


async def test_the_rest_of_a_call_is_undone_after_one_event_of_it(actor, tools, archive, caller, undo_last_event):
    facts = [await tools.fact("tea", predicate=name) for name in ("drink", "food", "seat")]
    before = await snapshot(archive, caller.tenant)
    done = await actor(bulk.act_on_many, FACT, [UUID(each) for each in facts], "forget", [])
    await undo_last_event(facts[1])
    assert (await undo.preview_target(actor.memory, caller, UndoTarget(done))).number == 2
    assert (await actor.undo(done))["number"] == 2
    assert await snapshot(archive, caller.tenant) == before
    assert (await actor.undo(done))["already"]


@pytest.mark.parametrize("of", ["new", "old"])
async def test_a_replacement_is_undone_by_the_event_of_either_fact(tools, archive, undo_last_event, of):
    old = await tools.fact("eats no meat", "Ada", "diet")
    before = await archive.row("fact", old)
    new = await tools.fact("eats no meat and no fish", "Ada", "diet")
    answer = await undo_last_event(new if of == "new" else old)
    assert {each["id"] for each in answer["undone"]} == {old, new}
    assert await archive.row("fact", old) == before
    assert (await archive.row("fact", new))["validity"] == "retracted"


async def test_both_hold_is_undone_from_either_side(actor, tools, archive, caller, undo_last_event):
    one, two = await tools.fact("tea", predicate="drink"), await tools.fact("tea.", predicate="drinks")
    await actor.keep_both("fact", one, two)
    assert (await undo_last_event(two))["number"] == 2
    assert await archive.count("memory_links", caller.tenant, "relation = 'related_to'") == 0


async def test_what_a_run_learned_is_undone_item_by_item(memory, caller, tools, archive, undo_last_event):
    kept = await tools.fact("blue")
    before = await archive.row("fact", kept)
    await start_session(memory, caller).store_episode("She likes red")
    await learn(memory, caller, new_facts=[new_fact("red", scope="global")], new_rules=["Offer red"])
    await undo_last_event(kept)
    assert await archive.row("fact", kept) == before
    assert await archive.count("facts", caller.tenant, "validity = 'active'") == 1
    assert await archive.count("rules", caller.tenant, "not coalesce((metadata -> 'forgotten')::boolean, false)") == 1


async def test_an_event_is_not_undone_after_a_later_change_and_the_message_names_it(actor, tools, archive, caller):
    fact = await tools.fact()
    await actor.edit(FACT, fact, importance=9.0)
    event = await last_event(archive, caller, fact)
    await actor.edit(FACT, fact, importance=2.0)
    before = await archive.everything(caller.tenant)
    preview = await undo.preview_target(actor.memory, caller, await undo.target_of_event(actor.memory, caller, event))
    assert preview.reason == f"the fact {fact} was changed since by fact_edited"
    with pytest.raises(Conflict, match="was changed since by fact_edited"):
        await actor.answer(undo.undo_event, event)
    assert await archive.everything(caller.tenant) == before


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("episode", "forget the episode instead"), ("entity", "merge it into another"), ("merge", "is final"),
     ("undo", "it is an undo itself")],
)  # fmt: skip
async def test_an_event_without_an_inverse_says_what_to_do_instead(actor, tools, archive, caller, kind, reason):
    match kind:
        case "episode":
            memory = actor.memory
            record = (await tools("memory_store_episode", content="a talk", butler=memory.butler))["id"]
        case "entity":
            record = await tools.entity()
        case "merge":
            record = await tools.entity()
            await actor(entities.merge, UUID(await tools.entity("Ada L.")), UUID(record))
        case "undo":
            record = await tools.fact()
            await actor.undo(await actor.forget(FACT, record))
    event = await last_event(archive, caller, record)
    with pytest.raises(Conflict, match=reason):
        await actor.answer(undo.undo_event, event)


async def test_another_tenant_finds_no_event(actor, tools, archive, caller, memory):
    fact = await tools.fact()
    event = await last_event(archive, caller, fact)
    with pytest.raises(NotFound):
        await undo.undo_event(memory, new_caller(memory), event, REQUEST)
    assert (await archive.row("fact", fact))["validity"] == "active"


async def test_the_last_act_is_that_of_the_caller_and_the_one_before_it_comes_next(memory, actor, tools, caller):
    fact, rule = await tools.fact(), await tools.rule()
    first = await actor.edit(FACT, fact, importance=9.0)
    second = await actor.forget(RULE, rule)
    await management.forget(memory, replace(caller, actor="else", request_id="theirs"), FACT, UUID(fact), REQUEST)
    assert (await undo.target_of_last_act(memory, caller)).request_id == second
    await actor.undo(second)
    assert (await undo.target_of_last_act(memory, caller)).request_id == first
    nobody = replace(caller, actor="nobody")
    with pytest.raises(NotFound, match="nobody has changed nothing"):
        await undo.target_of_last_act(memory, nobody)


async def test_an_agent_undoes_an_event_a_call_and_its_last_act(tools, archive, caller):
    fact = await tools.fact("blue")
    await tools("memory_forget", memory_type="fact", memory_id=fact)
    events = (await tools("memory_history", memory_type="fact", memory_id=fact))["events"]
    before = await archive.everything(caller.tenant)
    preview = await tools("memory_undo", event_id=events[-1]["id"], dry_run=True)
    assert preview["undone"][0]["changes"] == [{"field": "validity", "from": "retracted", "to": "active"}]
    assert await archive.everything(caller.tenant) == before
    await tools("memory_undo", event_id=events[-1]["id"])
    assert (await tools("memory_get", memory_type="fact", memory_id=fact))["lifecycle"] == "active"
    await tools("memory_forget", memory_type="fact", memory_id=fact)
    first = await tools("memory_undo", idempotency_key="last-1")
    assert await tools("memory_undo", idempotency_key="last-1") == first
    assert first["number"] == 1
    assert (
        "send event_id or request_id"
        in (await tools.refusal("memory_undo", event_id=str(uuid4()), request_id="a")).lower()
    )
    assert "not_found" in await tools.refusal("memory_undo", event_id=str(uuid4()))


async def test_the_words_between_an_edit_and_its_undo_are_kept(actor, tools, archive, caller):
    fact = await tools.fact(tags=["old"])
    edited = await actor.edit(FACT, fact, tags=("new",))
    await actor.undo(edited)
    rows = await archive.rows(
        "select before ->> 'tags' as before, after ->> 'tags' as after from edit_history where tenant_id = $1"
        " order by edited_at",
        caller.tenant,
    )
    assert [(row["before"], row["after"]) for row in rows] == [('["old"]', '["new"]'), ('["new"]', '["old"]')]
