"""Storing of several memories in one call."""

import asyncio
from collections import Counter

import pytest

from butlers.modules.memory.operations.batch_writing import MAX_ITEMS

STORE = "memory_store_batch"
FACT = {"type": "fact", "subject": "user", "predicate": "drink", "content": "tea"}
RULE = {"type": "rule", "content": "Offer tea first"}
EPISODE = {"type": "episode", "content": "We talked about tea"}


def fact(number, **more):
    return {**FACT, "predicate": f"note_{number}", "content": f"note number {number}", **more}


async def test_a_batch_stores_memories_of_every_type_with_their_vectors_and_events(tools, archive, memory, engine):
    answer = await tools(STORE, items=[FACT, RULE, EPISODE])
    assert answer["stored"] == 3
    assert [each["memory_type"] for each in answer["results"]] == ["fact", "rule", "episode"]
    for each in answer["results"]:
        row = await archive.row(each["memory_type"], each["id"])
        assert (row["tenant_id"], row["embedding_version_id"]) == (tools.tenant, memory.embedder.version.id)
        (event,) = await archive.rows("select * from memory_events where entity_id = $1", each["id"])
        assert (event["event_type"], event["tenant_id"]) == (f"{each['memory_type']}_created", tools.tenant)
    assert (await archive.row("episode", answer["results"][2]["id"]))["butler"] == memory.butler
    assert [each["id"] for each in await tools("memory_search", query="tea", types=["fact"])] == [
        answer["results"][0]["id"]
    ]


async def test_a_batch_answers_as_if_its_items_were_stored_one_after_the_other(tools, archive):
    first = await tools("memory_store_fact", **{name: FACT[name] for name in ("subject", "predicate", "content")})
    answer = await tools(STORE, items=[FACT, {**FACT, "content": "coffee"}, {**FACT, "content": "water"}])
    same, coffee, water = answer["results"]
    assert same == {"memory_type": "fact", "id": first["id"], "confirmed_existing": True}
    assert coffee["superseded_id"] == first["id"]
    assert water["superseded_id"] == coffee["id"]
    named = await tools(
        STORE, items=[{**FACT, "predicate": "beverage", "content": "milk", "supersedes_id": water["id"]}]
    )
    assert named["results"][0]["superseded_id"] == water["id"]
    assert (await archive.row("fact", water["id"]))["validity"] == "superseded"


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ({**FACT, "content": "  "}, "items.1: content"),
        ({**FACT, "entity_id": "00000000-0000-4000-8000-000000000001"}, "items.1: "),
        ({**FACT, "supersedes_id": "00000000-0000-4000-8000-000000000001"}, "items.1: "),
        ({**EPISODE, "butler": "somebody else"}, "items.1: "),
        ({**EPISODE, "session_id": "yesterday"}, "items.1: session_id is not an id"),
        ({"type": "song", "content": "la"}, "items.1: should be an object with a type: episode, fact or rule"),
        ("tea", "items.1: should be an object with a type: episode, fact or rule"),
        ({"type": "fact", "subject": "user", "content": "tea"}, "invalid_input: items.1.fact.predicate: "),
        ({**RULE, "subject": "user"}, "items.1.rule.subject: "),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_one_refused_item_is_named_and_nothing_is_stored(tools, archive, item, problem):
    refusal = await tools.refusal(STORE, items=[fact(0), item])
    assert problem in refusal
    for table in ("facts", "rules", "episodes", "memory_events"):
        assert await archive.rows(f"select from {table} where tenant_id = $1", tools.tenant) == []


async def test_another_tenants_ids_open_nothing_through_an_item(tools, stranger, archive):
    theirs = {"supersedes_id": await stranger.fact("a secret drink"), "entity_id": await stranger.entity("Ada")}
    before = await archive.everything(stranger.tenant)
    for name, foreign in theirs.items():
        refusal = await tools.refusal(STORE, items=[RULE, {**FACT, name: foreign}])
        assert refusal.startswith("not_found: items.1: ")
        assert "secret" not in refusal
    assert await archive.everything(stranger.tenant) == before
    assert await archive.rows("select from rules where tenant_id = $1", tools.tenant) == []


async def test_types_and_permanences_of_items_are_understood_in_any_case(tools, archive):
    answer = await tools(STORE, items=[{**FACT, "type": " Fact ", "permanence": "Stable"}, {**RULE, "type": "RULE"}])
    assert [each["memory_type"] for each in answer["results"]] == ["fact", "rule"]
    assert (await archive.row("fact", answer["results"][0]["id"]))["permanence"] == "stable"


async def test_a_batch_is_bounded(tools):
    assert "invalid_input: items" in await tools.refusal(STORE, items=[])
    assert "invalid_input: items" in await tools.refusal(STORE, items=[fact(n) for n in range(MAX_ITEMS + 1)])
    assert (await tools(STORE, items=[fact(n) for n in range(MAX_ITEMS)]))["stored"] == MAX_ITEMS


async def test_a_repeated_batch_is_stored_once(tools, archive):
    items = [fact(0), RULE, EPISODE]
    first = await tools(STORE, items=items, idempotency_key="monday")
    assert await tools(STORE, items=items, idempotency_key="monday") == first
    rows = await archive.rows("select from memory_events where tenant_id = $1", tools.tenant)
    assert len(rows) == 3
    assert "conflict" in await tools.refusal(STORE, items=[fact(1)], idempotency_key="monday")


async def test_an_undo_takes_back_the_whole_batch(tools, archive):
    before = await tools("memory_store_fact", subject="user", predicate="note_0", content="before")
    await tools(STORE, items=[fact(0), fact(1), RULE])
    assert (await tools("memory_undo"))["number"] >= 3
    rows = await archive.rows("select id from facts where tenant_id = $1 and validity = 'active'", tools.tenant)
    assert [str(row["id"]) for row in rows] == [before["id"]]


async def test_a_secret_in_a_batch_is_redacted(tools, archive):
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    answer = await tools(STORE, items=[fact(0), fact(1, content=f"the token is {secret}")])
    assert "redacted" not in answer["results"][0]
    assert answer["results"][1]["redacted"]
    assert secret not in (await archive.row("fact", answer["results"][1]["id"]))["content"]


async def test_batches_of_the_same_keys_at_once_in_any_order_all_succeed(tools, archive):
    orders = [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 4, 1, 3]] * 2
    batches = [[fact(n, content=f"{n} of batch {number}") for n in order] for number, order in enumerate(orders)]
    answers = await asyncio.gather(*(tools(STORE, items=items) for items in batches))
    assert [answer["stored"] for answer in answers] == [5] * len(batches)
    rows = await archive.rows("select predicate, validity from facts where tenant_id = $1", tools.tenant)
    assert Counter(row["validity"] for row in rows) == {"active": 5, "superseded": 25}
    assert {row["predicate"] for row in rows if row["validity"] == "active"} == {f"note_{n}" for n in range(5)}
