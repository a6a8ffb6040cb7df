"""Hints of a store: similar memories in its answer, and the fact that a new one replaces."""

import asyncio
from dataclasses import replace
from uuid import UUID, uuid4

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from butlers.caller import Caller
from butlers.modules.memory.config import HintsConfig
from butlers.modules.memory.domain.model import NewFact, NewRule
from butlers.modules.memory.operations import undo, writing
from butlers.modules.memory.runtime import Memory
from memory.made_twins import CONTRADICTIONS, RULE_TWINS, RULES_OF_ONE_TOPIC, SAME_TOPIC, TWINS, Pair
from memory.memory_fixtures import REQUEST, new_caller


def fact(predicate: str, content: str, subject: str = "user", **more) -> NewFact:
    return NewFact(subject=subject, predicate=predicate, content=content, **more)


async def hints_of(memory: Memory, pair: Pair) -> bool:
    """Return whether storing the second of two facts names the first."""
    caller = new_caller(memory)
    first = await writing.store_fact(memory, caller, fact(pair.predicate, pair.content, pair.subject), REQUEST)
    other = fact(pair.other_predicate, pair.other_content, pair.subject)
    second = await writing.store_fact(memory, caller, other, REQUEST)
    return [each["id"] for each in second.get("similar", [])] == [first["id"]]


async def test_every_made_twin_is_named_and_no_fact_that_shares_a_topic(memory):
    assert all([await hints_of(memory, pair) for pair in TWINS])
    assert sum([await hints_of(memory, pair) for pair in CONTRADICTIONS]) >= 6
    assert not any([await hints_of(memory, pair) for pair in SAME_TOPIC])


async def test_rules_that_say_the_same_are_named(memory):
    async def is_named(pair: tuple[str, str]) -> bool:
        caller = new_caller(memory)
        await writing.store_rule(memory, caller, NewRule(content=pair[0]), REQUEST)
        return "similar" in await writing.store_rule(memory, caller, NewRule(content=pair[1]), REQUEST)

    assert sum([await is_named(pair) for pair in RULE_TWINS]) >= 6
    assert not any([await is_named(pair) for pair in RULES_OF_ONE_TOPIC])


async def test_the_answer_says_what_is_similar_and_what_to_call(tools):
    first = await tools.fact("purple", predicate="favourite_color")
    answer = await tools("memory_store_fact", subject="user", predicate="favorite_colour", content="purple")
    (similar,) = answer["similar"]
    assert {**similar, "similarity": None} == {
        "id": first,
        "subject": "user",
        "predicate": "favourite_color",
        "content": "purple",
        "similarity": None,
    }
    assert 0.9 < similar["similarity"] <= 1
    assert "supersedes_id" in answer["hint"]
    replaced = await tools(
        "memory_store_fact", subject="user", predicate="favorite_colour", content="purple", supersedes_id=first
    )
    assert replaced == {"id": answer["id"], "confirmed_existing": True, "superseded_id": first}


async def test_a_rule_names_similar_rules_and_what_to_call(tools):
    first = await tools.rule("Ask before you send an email")
    answer = await tools("memory_store_rule", content="Always ask before sending an email")
    assert [each["id"] for each in answer["similar"]] == [first]
    assert "memory_forget" in answer["hint"]
    await tools.rule("Ask before you send a letter", scope="another_butler")
    answer = await tools("memory_store_rule", content="Always ask before sending a letter")
    assert "letter" not in " ".join(each["content"] for each in answer.get("similar", []))


async def test_at_most_three_are_named_the_most_similar_first(tools):
    for number in range(5):
        await tools.fact("green tea in the morning", predicate=f"drink_{number}")
    answer = await tools("memory_store_fact", subject="user", predicate="drink", content="green tea in the morning")
    similarities = [each["similarity"] for each in answer["similar"]]
    assert len(similarities) == 3
    assert similarities == sorted(similarities, reverse=True)


async def test_only_live_facts_in_scope_about_the_same_are_named(tools, memory):
    ada, other = await tools.entity("Ada"), await tools.entity("Ada the Second")
    await tools.fact("green tea", subject="Ada", predicate="drinks", entity_id=other)
    await tools.fact("green tea", subject="Ada", predicate="beverage", scope="another_butler")
    forgotten = await tools.fact("green tea", subject="Ada", predicate="drink")
    await tools("memory_forget", memory_type="fact", memory_id=forgotten)
    await tools.fact("green tea", subject="Tom", predicate="drinks")
    named = await tools.fact("green tea", subject="Ada Lovelace", predicate="favourite_drink", entity_id=ada)
    about = {"subject": "Ada", "content": "green tea", "entity_id": ada}
    answer = await tools("memory_store_fact", predicate="usual_drink", **about)
    assert [each["id"] for each in answer["similar"]] == [named]


async def test_hints_can_be_switched_off_and_their_threshold_moved(memory):
    def with_hints(**changes) -> Memory:
        return replace(memory, config=memory.config.model_copy(update={"hints": HintsConfig(**changes)}))

    async def similar(configured: Memory) -> bool:
        caller = new_caller(memory)
        await writing.store_fact(configured, caller, fact("lives_in", "Lisbon"), REQUEST)
        return "similar" in await writing.store_fact(
            configured, caller, fact("home_city", "lives in Lisbon"), REQUEST
        )

    assert await similar(memory)
    assert not await similar(with_hints(enabled=False))
    assert not await similar(with_hints(min_similarity=0.99))


async def test_hints_cost_one_statement_and_none_where_the_subject_is_new(memory, caller):
    switched_off = replace(memory, config=memory.config.model_copy(update={"hints": HintsConfig(enabled=False)}))

    async def statements(configured: Memory, new: NewFact) -> int:
        counted: list[object] = []
        # The pool hands out the connection that was used last, so a single caller always gets the same one.
        async with configured.database._connection() as connection:
            connection.add_query_logger(counted.append)
        await writing.store_fact(configured, caller, new, REQUEST)
        async with configured.database._connection() as connection:
            connection.remove_query_logger(counted.append)
        return len(counted)

    await writing.store_fact(memory, caller, fact("warm", "up"), REQUEST)
    new_subject = await statements(memory, fact("color", "blue", "Ada"))
    assert new_subject == await statements(switched_off, fact("color", "blue", "Tom"))
    assert await statements(memory, fact("drink", "tea", "Ada")) == new_subject + 1


async def test_the_named_fact_is_superseded_whatever_its_key(tools, archive):
    old = await tools.fact("Porto", predicate="home_city")
    under_key = await tools.fact("Braga", predicate="lives_in")
    answer = await tools(
        "memory_store_fact", subject="user", predicate="lives_in", content="Lisbon", supersedes_id=old
    )
    assert (answer["superseded_id"], answer["also_superseded_id"]) == (under_key, old)
    assert [(await archive.row("fact", each))["validity"] for each in (old, under_key)] == ["superseded"] * 2
    chain = await tools("memory_links", memory_type="fact", memory_id=answer["id"])
    assert {(each["relation"], each["target_id"]) for each in chain} == {
        ("supersedes", old),
        ("supersedes", under_key),
    }


async def test_replacing_is_undone_as_one_act(memory, caller, archive):
    old = (await writing.store_fact(memory, caller, fact("home_city", "Porto"), REQUEST))["id"]
    under_key = (await writing.store_fact(memory, caller, fact("lives_in", "Braga"), REQUEST))["id"]
    replacing = replace(caller, request_id=f"replacing {old}")
    stored = await writing.store_fact(memory, replacing, fact("lives_in", "Lisbon"), REQUEST, supersedes_id=UUID(old))
    await undo.undo(memory, replace(caller, request_id="undoing"), replacing.request_id, REQUEST)
    states = [(await archive.row("fact", each))["validity"] for each in (old, under_key, stored["id"])]
    assert states == ["active", "active", "retracted"]


async def test_a_fact_that_is_not_live_or_not_there_is_refused(tools):
    forgotten = await tools.fact("Porto", predicate="home_city")
    await tools("memory_forget", memory_type="fact", memory_id=forgotten)
    new = {"subject": "user", "predicate": "lives_in", "content": "Lisbon"}
    assert "conflict" in await tools.refusal("memory_store_fact", **new, supersedes_id=forgotten)
    assert "not_found" in await tools.refusal("memory_store_fact", **new, supersedes_id=str(uuid4()))
    assert "invalid_input" in await tools.refusal("memory_store_fact", **new, supersedes_id="that one")
    assert await tools("memory_search", query="Lisbon", types=["fact"]) == []


async def test_writers_that_replace_each_other_end_with_one_live_fact(memory, caller, archive):
    keys = [f"city_{number}" for number in range(4)]
    ids = [(await writing.store_fact(memory, caller, fact(key, "Porto"), REQUEST))["id"] for key in keys]

    async def replace_other(number: int) -> None:
        new = fact(keys[number % 4], f"Lisbon {number}")
        await writing.store_fact(memory, caller, new, REQUEST, supersedes_id=UUID(ids[(number + 1) % 4]))

    results = await asyncio.gather(*(replace_other(number) for number in range(50)), return_exceptions=True)
    unexpected = [each for each in results if each is not None and getattr(each, "code", None) != "conflict"]
    assert unexpected == []
    live = await archive.rows(
        "select predicate from facts where tenant_id = $1 and validity = 'active'", caller.tenant
    )
    assert len({each["predicate"] for each in live}) == len(live)


_STORES = st.lists(
    st.tuples(
        st.sampled_from(["favourite_color", "favorite_colour", "likes_color", "dislikes_color"]),
        st.sampled_from(["purple", "cyan", "likes purple", "dislikes purple"]),
        st.one_of(st.none(), st.integers(0, 9)),
    ),
    min_size=1,
    max_size=10,
)


@given(stores=_STORES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_no_sequence_of_stores_loses_a_fact_that_nobody_superseded(stores, memory, archive):
    caller: Caller = new_caller(memory)
    believed: dict[str, str] = {}
    by_predicate: dict[str, str] = {}
    ids: list[str] = []
    for predicate, content, named in stores:
        replaced = ids[named] if named is not None and named < len(ids) and ids[named] in believed else None
        new = fact(predicate, content)
        answer = await writing.store_fact(
            memory, caller, new, REQUEST, supersedes_id=UUID(replaced) if replaced else None
        )
        gone = {answer.get("superseded_id"), answer.get("also_superseded_id")} - {None}
        expected = {each for each in (replaced, by_predicate.get(predicate)) if each and each != answer["id"]}
        assert gone == expected
        for each in gone:
            believed.pop(each)
        by_predicate = {key: each for key, each in by_predicate.items() if each not in gone}
        believed[answer["id"]] = content
        by_predicate[predicate] = answer["id"]
        ids.append(answer["id"])
    live = await archive.rows(
        "select id::text, content from facts where tenant_id = $1 and validity = 'active'", caller.tenant
    )
    assert {each["id"]: each["content"] for each in live} == believed
