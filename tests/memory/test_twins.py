"""Near-duplicates, the decision that both hold, and looks of people."""

import time
from uuid import UUID, uuid4

import pytest

from butlers.errors import InvalidInput, NotFound
from butlers.modules.memory.operations import looking, twins
from butlers.modules.memory.store.looking import Position
from memory.acts import FACT, RULE, Actor
from memory.lying_session import learn, start_session
from memory.scripted_model import new_fact


@pytest.fixture
def actor(memory, caller):
    """The caller, with a new request for each act."""
    return Actor(memory, caller)


async def pairs(memory, caller):
    return [
        (each.record_type, frozenset({str(each.first["id"]), str(each.second["id"])}))
        for each in await twins.find_twins(memory, caller)
    ]


async def test_near_facts_of_one_subject_rules_and_names_are_twins_and_others_are_not(
    memory, caller, tools, stranger
):
    meal = await tools.fact("Ada eats no meat", "Ada", "diet")
    food = await tools.fact("Ada eats no meat", "Ada", "food")
    await tools.fact("the office is in Lisbon", "Ada", "office")
    await tools.fact("Ada eats no meat", "Bob", "diet")
    one = await tools.rule("Ask Ada before you book a train")
    two = await tools.rule("Ask Ada before booking a train")
    await tools.rule("Water the plants on Mondays")
    chloe, other = await tools.entity("Chloé"), await tools.entity("chloe", "organization")
    await tools.entity("Grace")
    await stranger.fact("Ada eats no meat", "Ada", "food")
    found = await pairs(memory, caller)
    assert sorted(found, key=str) == sorted(
        [("fact", frozenset({meal, food})), ("rule", frozenset({one, two})), ("entity", frozenset({chloe, other}))],
        key=str,
    )
    similar = [each.similarity for each in await twins.find_twins(memory, caller)]
    assert similar == sorted(similar, reverse=True)


async def test_facts_of_two_entities_with_one_subject_are_not_compared(memory, caller, tools):
    one, two = await tools.entity("Chloe"), await tools.entity("Chloe", "organization", aliases=["the firm"])
    await tools.fact("likes tea", "Chloe", "drink", entity_id=one)
    await tools.fact("likes tea", "Chloe", "beverage", entity_id=two)
    assert [kind for kind, _ in await pairs(memory, caller)] == ["entity"]


async def test_twins_that_both_hold_are_not_asked_again_until_that_is_undone(memory, caller, tools, actor, archive):
    meal, food = await tools.fact("eats no meat", "Ada", "diet"), await tools.fact("eats no meat", "Ada", "food")
    ada, other = await tools.entity("Ada"), await tools.entity("ada", "other")
    before = await pairs(memory, caller)
    assert len(before) == 2
    facts = await actor.keep_both("fact", meal, food)
    names = await actor.keep_both("entity", other, ada)
    assert await pairs(memory, caller) == []
    (link,) = await archive.rows("select relation from memory_links where tenant_id = $1", caller.tenant)
    assert link["relation"] == "related_to"
    _, again = await actor.answer(twins.keep_both, "fact", UUID(food), UUID(meal))
    assert again["already"] is True
    await actor.undo(facts)
    await actor.undo(names)
    assert sorted(await pairs(memory, caller), key=str) == sorted(before, key=str)


async def test_a_forgotten_fact_has_no_twin(memory, caller, tools, actor):
    meal = await tools.fact("eats no meat", "Ada", "diet")
    await tools.fact("eats no meat", "Ada", "food")
    await actor.forget(FACT, meal)
    assert await pairs(memory, caller) == []


async def test_only_two_that_exist_can_hold_together(actor, tools):
    fact = await tools.fact()
    with pytest.raises(InvalidInput):
        await actor.keep_both("fact", fact, fact)
    with pytest.raises(InvalidInput):
        await actor.keep_both("episode", fact, str(uuid4()))
    for kind in ("fact", "rule", "entity"):
        with pytest.raises(NotFound):
            await actor.keep_both(kind, fact, str(uuid4()))


async def test_twins_among_ten_thousand_facts_of_one_subject_are_found_in_time(memory, caller, tools, archive):
    one = await tools.fact("eats no meat", "user", "diet")
    await archive.connection.execute(
        "insert into facts (tenant_id, subject, predicate, content, embedding, embedding_version_id, created_at)"
        " select $1, 'user', 'p' || n, 'filler',"
        " array(select random() - 0.5 + n * 0 from generate_series(1, 384))::real[]::vector, embedding_version_id,"
        " now() - interval '1 day' from facts, generate_series(1, 10000) n where id = $2",
        caller.tenant,
        UUID(one),
    )
    two = await tools.fact("eats no meat", "user", "food")
    started = time.perf_counter()
    found = await pairs(memory, caller)
    seconds = time.perf_counter() - started
    assert found == [("fact", frozenset({one, two}))]
    assert seconds < 5


async def test_distilled_memories_wait_until_somebody_looks_confirms_or_edits(memory, caller, tools, actor):
    liar = start_session(memory, caller)
    await liar.store_episode("They spoke of red and green")
    learned = await learn(
        memory,
        caller,
        new_facts=[new_fact("red"), new_fact("green", "second"), new_fact("blue", "third")],
        new_rules=["Offer red"],
    )
    red, green, blue, rule = (each["id"] for each in learned)
    direct = await tools.fact("tea", predicate="drink")
    assert direct not in await unlooked(memory, caller)
    assert set(await unlooked(memory, caller)) == {red, green, blue, rule}
    seen = await actor.look(FACT, red)
    await actor.look(RULE, rule)
    await actor.confirm(FACT, green)
    await actor.edit(FACT, blue, importance=9.0)
    assert await unlooked(memory, caller) == []
    await actor.undo(seen)
    assert await unlooked(memory, caller) == [red]
    with pytest.raises(NotFound):
        await actor.look(FACT, str(uuid4()))


async def unlooked(memory, caller, **more):
    async with memory.transaction(caller) as tx:
        return [str(each) for _, each in await looking.list_unlooked(tx, caller, limit=10, **more)]


async def test_the_unlooked_are_listed_newest_first_in_pages(memory, caller, archive):
    liar = start_session(memory, caller)
    await liar.store_episode("a lot")
    learned = await learn(memory, caller, new_facts=[new_fact(f"content {n}", f"predicate {n}") for n in range(5)])
    for number, each in enumerate(learned):
        await archive.age("fact", each["id"], number)
    async with memory.transaction(caller) as tx:
        first = await looking.list_unlooked(tx, caller, limit=3)
        last = await archive.row("fact", str(first[-1][1]))
        rest = await looking.list_unlooked(tx, caller, limit=3, after=Position(last["created_at"], last["id"]))
    assert [str(each) for _, each in (*first, *rest)] == [each["id"] for each in learned]


async def test_looking_changes_no_row(memory, caller, tools, actor, archive):
    fact = await tools.fact()
    before = await archive.row("fact", fact)
    await actor.look(FACT, fact)
    assert await archive.row("fact", fact) == before
