"""Editing in place, moving and correcting by people."""

import asyncio
import json
from uuid import UUID, uuid4

import pytest

from butlers.errors import Conflict, InvalidInput, NotFound
from butlers.modules.memory.domain.model import MemoryEdit
from butlers.modules.memory.operations import editing
from butlers.modules.memory.operations.idempotency import Request
from memory.acts import EPISODE, FACT, RULE, Actor, permanence
from memory.memory_fixtures import REQUEST


@pytest.fixture
def actor(memory, caller):
    """The caller, with a new request for each act."""
    return Actor(memory, caller)


async def confidence(tools, kind, memory_id):
    return (await tools("memory_get", memory_type=kind, memory_id=memory_id))["confidence"]


async def payload_of(archive, tenant, request_id):
    (event,) = await archive.rows(
        "select event_type, payload::text as payload from memory_events where tenant_id = $1 and request_id = $2",
        tenant,
        request_id,
    )
    return event["event_type"], json.loads(event["payload"])


async def test_an_edit_changes_the_row_and_supersedes_nothing(actor, tools, archive, caller):
    fact = await tools.fact(tags=["old"])
    done = await actor.edit(FACT, fact, importance=9.0, tags=("new", "new", "food"), permanence=permanence("stable"))
    row = await archive.row("fact", fact)
    assert (row["importance"], row["tags"], row["permanence"], row["decay_rate"]) == (
        9.0,
        '["new", "food"]',
        "stable",
        0.002,
    )
    assert await archive.count("facts", caller.tenant) == 1
    event_type, payload = await payload_of(archive, caller.tenant, done)
    assert event_type == "fact_edited"
    assert payload["fields"] == ["importance", "permanence", "tags"]
    assert (payload["importance"], payload["before"]["importance"]) == (9.0, 5.0)
    assert (payload["permanence"], payload["before"]["permanence"]) == ("stable", "standard")
    assert payload["words"] == ["tags"]
    assert "tags" not in payload


@pytest.mark.parametrize("name", ["permanent", "stable", "volatile", "ephemeral"])
@pytest.mark.parametrize("kind", ["fact", "rule"])
async def test_a_new_permanence_leaves_todays_confidence_and_a_confirmation_brings_the_full_one(
    actor, tools, archive, kind, name
):
    memory_id = await (tools.fact() if kind == "fact" else tools.rule())
    stored = (await archive.row(kind, memory_id))["confidence"]
    await archive.age(kind, memory_id, 47)
    before = await confidence(tools, kind, memory_id)
    await actor.edit({"fact": FACT, "rule": RULE}[kind], memory_id, permanence=permanence(name))
    assert await confidence(tools, kind, memory_id) == pytest.approx(before, abs=1e-6)
    await actor.edit({"fact": FACT, "rule": RULE}[kind], memory_id, permanence=permanence("standard"))
    assert await confidence(tools, kind, memory_id) == pytest.approx(before, abs=1e-6)
    await tools("memory_confirm", memory_type=kind, memory_id=memory_id)
    row = await archive.row(kind, memory_id)
    assert (row["confidence"], "confidence_when_confirmed" in row["metadata"]) == (stored, False)


async def test_an_edit_to_the_same_values_has_no_event(actor, tools, archive, caller):
    fact = await tools.fact(importance=7.0)
    events = await archive.count("memory_events", caller.tenant)
    _, answer = await actor.answer(editing.edit, FACT, UUID(fact), MemoryEdit(importance=7.0))
    assert answer["changed"] == []
    assert await archive.count("memory_events", caller.tenant) == events


async def test_what_can_not_be_edited_says_why(actor, tools, archive):
    fact, rule = await tools.fact(), await tools.rule()
    await actor.forget(FACT, fact)
    with pytest.raises(Conflict, match="is retracted"):
        await actor.edit(FACT, fact, importance=1.0)
    with pytest.raises(InvalidInput, match="a rule has no importance"):
        await actor.edit(RULE, rule, importance=1.0)
    await archive.change("rule", rule, maturity="'anti_pattern'", decay_rate="0", permanence="'permanent'")
    with pytest.raises(Conflict, match="is a warning and does not decay"):
        await actor.edit(RULE, rule, permanence=permanence("stable"))
    with pytest.raises(NotFound):
        await actor.edit(FACT, str(uuid4()), importance=1.0)
    with pytest.raises(InvalidInput, match="an episode can't be edited"):
        await actor.edit(EPISODE, fact, tags=("a",))
    with pytest.raises(InvalidInput, match="the change is empty"):
        MemoryEdit()
    with pytest.raises(InvalidInput, match="between 0 and 10"):
        MemoryEdit(importance=11.0)


async def test_fifty_edits_at_once_leave_one_of_them_and_as_many_events_as_changes(actor, tools, archive, caller):
    fact = await tools.fact(importance=0.0)
    for start in range(0, 50, 10):
        await asyncio.gather(*(actor.edit(FACT, fact, importance=(start + n) / 5) for n in range(10)))
    rows = await archive.rows(
        "select (payload ->> 'importance')::float as set, (payload #>> '{before,importance}')::float as before"
        " from memory_events where tenant_id = $1 and event_type = 'fact_edited'",
        caller.tenant,
    )
    # Each change starts from what another one left: the events are one chain without a gap.
    assert sorted([row["before"] for row in rows] + [(await archive.row("fact", fact))["importance"]]) == sorted(
        [0.0] + [row["set"] for row in rows]
    )


async def test_a_fact_moves_to_an_entity_and_is_keyed_by_it(actor, tools, archive, caller):
    ada, fact = await tools.entity("Ada"), await tools.fact("eats no meat", "Ada", "diet")
    done = await actor.move(fact, ada)
    assert str((await archive.row("fact", fact))["entity_id"]) == ada
    assert (await payload_of(archive, caller.tenant, done))[1]["before"] == {"entity_id": None}
    answer = await tools("memory_store_fact", subject="Ada", predicate="diet", content="eats fish", entity_id=ada)
    assert answer["superseded_id"] == fact


async def test_a_fact_does_not_move_to_an_entity_that_has_its_key_or_is_merged_away(actor, tools):
    ada, other, fact = (
        await tools.entity("Ada"),
        await tools.entity("Ada L."),
        await tools.fact("tea", "Ada", "drink"),
    )
    await tools.fact("water", "Ada", "drink", entity_id=ada)
    with pytest.raises(Conflict, match="has another fact with that predicate"):
        await actor.move(fact, ada)
    await tools("entity_merge", source_entity_id=other, target_entity_id=ada)
    with pytest.raises(Conflict, match="was merged away"):
        await actor.move(fact, other)
    with pytest.raises(NotFound):
        await actor.move(fact, str(uuid4()))


async def test_a_correction_keeps_everything_but_the_content(actor, tools, archive, caller):
    ada = await tools.entity("Ada")
    old = await tools.fact(
        "eats no meat",
        "Ada",
        "diet",
        entity_id=ada,
        importance=8.0,
        permanence="stable",
        tags=["food"],
        scope="kitchen",
    )
    await actor.correct(old, "eats no meat and no fish")
    (new,) = await archive.rows("select * from facts where tenant_id = $1 and validity = 'active'", caller.tenant)
    before = await archive.row("fact", old)
    kept = ("subject", "predicate", "scope", "entity_id", "importance", "permanence", "decay_rate", "tags")
    assert {name: new[name] for name in kept} == {name: before[name] for name in kept}
    assert (new["content"], str(new["supersedes_id"]), before["validity"]) == (
        "eats no meat and no fish",
        old,
        "superseded",
    )


async def test_a_fact_that_is_not_live_can_not_be_corrected(actor, tools):
    old = await tools.fact("blue")
    await tools.fact("red")
    with pytest.raises(Conflict, match="is superseded"):
        await actor.correct(old, "green")
    with pytest.raises(NotFound):
        await actor.correct(str(uuid4()), "green")


async def test_a_correction_sent_twice_with_one_key_is_one(memory, caller, tools, archive):
    fact = await tools.fact("blue")
    request = Request("correct", {"id": fact}, "key-1")
    answers = [await editing.correct(memory, caller, UUID(fact), "green", request) for _ in range(2)]
    assert answers[0] == answers[1]
    assert await archive.count("facts", caller.tenant) == 2


async def test_ten_corrections_at_once_leave_one(memory, caller, tools, archive):
    fact = await tools.fact("blue")
    done = await asyncio.gather(
        *(editing.correct(memory, caller, UUID(fact), f"color {n}", REQUEST) for n in range(10)),
        return_exceptions=True,
    )
    assert sum(isinstance(each, Conflict) for each in done) == 9
    assert await archive.count("facts", caller.tenant, "validity = 'active'") == 1


async def test_events_carry_the_confidence_and_the_marks_they_set(tools, archive, caller):
    fact, rule = await tools.fact("blue"), await tools.rule()
    await archive.age("fact", fact, 30)
    await tools("memory_confirm", memory_type="fact", memory_id=fact)
    await tools("memory_forget", memory_type="fact", memory_id=fact)
    await tools("memory_restore", memory_type="fact", memory_id=fact)
    await tools.fact("red")
    await tools("memory_mark_helpful", rule_id=rule)
    await tools("memory_mark_harmful", rule_id=rule)
    told = await archive.rows(
        "select event_type, (payload ->> 'confidence')::float as confidence,"
        " round((payload ->> 'effectiveness')::numeric, 4)::float as effectiveness,"
        " payload ->> 'maturity' as maturity, payload ->> 'applied_count' as applied"
        " from memory_events where tenant_id = $1 order by occurred_at, event_type",
        caller.tenant,
    )
    assert [tuple(row.values()) for row in told] == [
        ("fact_created", 1.0, None, None, None),
        ("rule_created", 0.5, None, None, None),
        ("fact_confirmed", 1.0, None, None, None),
        ("fact_forgotten", 1.0, None, None, None),
        ("fact_restored", 1.0, None, None, None),
        ("fact_created", 1.0, None, None, None),
        ("fact_superseded", 1.0, None, None, None),
        ("rule_marked_helpful", 0.5, 1.0, "candidate", "1"),
        ("rule_marked_harmful", 0.5, 0.1996, "candidate", "2"),
    ]
