"""Review piles: which memories wait for a person's judgement, and which twins are found."""

from uuid import UUID

import pytest

from butlers.modules.memory.operations import review, twins
from butlers.modules.memory.operations.idempotency import Request
from butlers.modules.memory.operations.review import Pile


async def pairs(memory, caller, record_type):
    """Return the ids of the twins of a type."""
    found = await twins.find_twins(memory, caller)
    return {
        frozenset((str(each.first["id"]), str(each.second["id"])))
        for each in found
        if each.record_type == record_type
    }


async def test_facts_are_twins_if_they_say_the_same_about_one_subject_or_entity(memory, caller, tools):
    ada, bob = await tools.entity("Ada"), await tools.entity("Bob")
    content = "drinks green tea with lemon every morning"
    by_subject = [await tools.fact(content, subject="user", predicate=each) for each in ("drink", "habit")]
    by_entity = [
        await tools.fact(content, subject=each, predicate="drink", entity_id=ada, scope=each)
        for each in ("Ada", "ada")
    ]
    mixed = await tools.fact(content, subject="user", predicate="morning", entity_id=bob)
    await tools.fact(content, subject="someone else", predicate="drink")
    await tools.fact("was born in Lisbon", subject="user", predicate="birthplace")
    expected = {frozenset(by_subject), frozenset(by_entity), *(frozenset((mixed, each)) for each in by_subject)}
    assert await pairs(memory, caller, "fact") == expected


async def test_twins_that_both_hold_are_not_shown_again(memory, caller, tools):
    first, second = [await tools.rule(f"Ask before booking a train{each}") for each in ("", " or a bus")]
    assert await pairs(memory, caller, "rule") == {frozenset((first, second))}
    await twins.keep_both(memory, caller, "rule", UUID(first), UUID(second), Request("keep_both", {}))
    assert await pairs(memory, caller, "rule") == set()


async def test_entities_are_twins_by_name_and_by_alias_within_their_tenant(memory, caller, tools, stranger):
    chloe = await tools.entity("Chloe", aliases=["Clo"])
    namesake = await tools.entity("CHLOÉ", entity_type="organization")
    nickname = await tools.entity("clo", entity_type="place")
    await stranger.entity("Chloe")
    found = await twins.find_twins(memory, caller)
    similarity = {frozenset((str(each.first["id"]), str(each.second["id"]))): each.similarity for each in found}
    assert similarity == {frozenset((chloe, namesake)): 1.0, frozenset((chloe, nickname)): 0.9}


@pytest.mark.parametrize("pile", [each for each in Pile if each is not Pile.TWINS])
async def test_an_opened_pile_has_the_size_that_is_counted(memory, caller, tools, archive, pile):
    await fill_piles(memory, tools, archive)
    sizes = await review.pile_sizes(memory, caller)
    opened = await review.open_pile(memory, caller, pile, 0)
    assert (opened.total, sizes[pile]) == (2, 2)
    second = await review.open_pile(memory, caller, pile, 1)
    assert opened.item.id != second.item.id
    assert (await review.open_pile(memory, caller, pile, 2)).item is None


async def fill_piles(memory, tools, archive):
    """Store two memories for each pile."""
    for each in ("a", "b"):
        fading = await tools.fact(f"fades {each}", predicate=f"fades_{each}", permanence="ephemeral")
        await archive.age("fact", fading, 15)
        learned = await tools.fact(f"learned {each}", predicate=f"learned_{each}")
        await archive.change("fact", learned, metadata="""'{"provenance": "distilled"}'""")
        harmful = await tools.rule(f"A harmful rule {each}")
        await tools("memory_mark_harmful", rule_id=harmful, reason="was late")
        episode = await tools("memory_store_episode", content=f"talk {each}", butler=memory.butler)
        await archive.change("episode", episode["id"], consolidation_status="'dead_letter'")
        await archive.connection.execute(
            "insert into consolidation_proposals (tenant_id, run_id, butler, change, action, happened_at, expires_at)"
            " values ($1, gen_random_uuid(), 'b', 'new_rules', $2, now(), now() + interval '1 day')",
            tools.tenant,
            f'{{"content": "{each}"}}',
        )


async def test_a_long_fact_to_correct_is_whole(memory, caller, tools, archive):
    text = "long " * 1_000
    fact = await tools.fact(text.strip(), permanence="ephemeral")
    await archive.age("fact", fact, 15)
    opened = await review.open_pile(memory, caller, Pile.FADING, 0)
    assert opened.item.record["content"] == text.strip()
    assert opened.item.is_whole
