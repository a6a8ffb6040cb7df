"""Tenant isolation: tenants, credentials and the events of every change."""

import asyncio
import json
import re
import uuid

import pytest

from butlers.modules.memory.tools import TOOLS
from memory.memory_fixtures import valid_arguments

NAMES = [tool.name for tool in TOOLS]


async def test_no_tool_takes_another_tenant_from_an_ordinary_caller(tools, stranger, memory, archive):
    """Scenario: Non-admin tenant override rejected"""
    calls = await valid_arguments(tools, memory.butler)
    assert set(calls) >= set(NAMES) - {"memory_run_consolidation", "memory_run_episode_cleanup"}
    await stranger.fact()
    before = [await archive.everything(each.tenant) for each in (tools, stranger)]
    for name, arguments in calls.items():
        message = await tools.refusal(name, **arguments, tenant_id=stranger.tenant)
        assert message.startswith("forbidden: your credentials are for another tenant"), name
    assert [await archive.everything(each.tenant) for each in (tools, stranger)] == before
    assert await tools("memory_search", query="tea", tenant_id=tools.tenant), "one's own is harmless"


@pytest.mark.parametrize("grants", [{"roles": ("admin",)}, {}], ids=["the role", "none"])
async def test_without_elevation_another_tenant_is_out_of_reach_for_an_admin_too(
    tools_with_key, tools, archive, grants
):
    """Scenario: Admin cross-tenant access requires explicit elevation"""
    fact = await tools.fact()
    before = await archive.everything(tools.tenant)
    async with tools_with_key(f"home-{uuid.uuid4().hex}", **grants) as other:
        for name, arguments in (
            ("memory_get", {"type": "fact", "id": fact}),
            ("memory_forget", {"type": "fact", "id": fact}),
            ("memory_search", {"query": "blue"}),
        ):
            message = await other.refusal(name, **arguments, tenant_id=tools.tenant)
            assert message.startswith("forbidden: ")
        assert (await other.refusal("memory_get", type="fact", id=fact)).startswith("not_found: ")
    assert await archive.everything(tools.tenant) == before


async def test_an_elevated_admin_works_wholly_inside_the_named_tenant_and_the_trail_says_so(
    tools_with_key, tools, archive
):
    """Scenario: Admin cross-tenant access requires explicit elevation"""
    fact = await tools.fact()
    home = f"home-{uuid.uuid4().hex}"
    async with tools_with_key(home, roles=("admin",), elevated=True) as admin:
        assert await admin.ids("memory_search", query="blue", tenant_id=tools.tenant) == [fact]
        assert await admin("memory_search", query="blue") == []
        stored = await admin("memory_store_rule", content="x", tenant_id=tools.tenant)
        await admin("memory_forget", type="fact", id=fact, tenant_id=tools.tenant)
        await admin.fact("own")
    assert (await archive.row("rule", stored["id"]))["tenant_id"] == tools.tenant
    assert [event["event_type"] for event in await archive.events(home)] == ["fact_created"]
    trail = (await archive.events(tools.tenant))[1:]
    assert [event["event_type"] for event in trail] == ["rule_created", "fact_forgotten"]
    for event in trail:
        assert json.loads(event["payload"])["elevated_from"] == home
        assert (event["actor"], event["request_id"]) == ("robot", "request-1")
    (own,) = await archive.events(home)
    assert "elevated_from" not in json.loads(own["payload"])


async def test_an_admin_may_speak_for_another_butler(tools_with_key, archive):
    tenant = f"home-{uuid.uuid4().hex}"
    async with tools_with_key(tenant) as ordinary:
        message = await ordinary.refusal("memory_store_episode", content="x", butler="health")
        assert message.startswith("forbidden: this is the butler ")
    async with tools_with_key(tenant, roles=("admin",)) as admin:
        answer = await admin("memory_store_episode", content="had tea", butler=" health\x00 ")
        assert (await archive.row("episode", answer["id"]))["butler"] == "health"
        assert "had tea" in await admin("memory_context", trigger_prompt="tea", butler="hea\x00lth")


EXPECTED_EVENTS = {
    "memory_store_episode": ["episode_created"],
    "memory_store_fact": ["fact_created"],
    "memory_store_rule": ["rule_created"],
    "memory_store_batch": ["rule_created"],
    "memory_confirm": ["fact_confirmed"],
    "memory_mark_helpful": ["rule_marked_helpful"],
    "memory_mark_harmful": ["rule_marked_harmful"],
    "memory_forget": ["fact_forgotten"],
    "memory_restore": ["fact_restored"],
    "entity_create": ["entity_created"],
    "entity_update": ["entity_updated"],
    "entity_merge": ["entity_merge"],
}


async def test_every_change_leaves_exactly_its_event_and_reading_leaves_none(tools_with_key, memory, archive):
    """Scenario: Fact stored event
    Scenario: Memory forgotten event
    Scenario: Forget operation emits audit event
    Scenario: Forget operation writes audit event
    """
    async with tools_with_key(f"home-{uuid.uuid4().hex}") as tools:
        calls = await valid_arguments(tools, memory.butler)
        for name, arguments in calls.items():
            before = await archive.events(tools.tenant)
            answer = await tools(name, **arguments)
            new = [event for event in await archive.events(tools.tenant) if event not in before]
            assert [event["event_type"] for event in new] == EXPECTED_EVENTS.get(name, []), name
            for event in new:
                assert (event["actor"], event["request_id"]) == ("robot", "request-1")
                assert event["entity_id"] == answer.get("id", answer.get("results", [{}])[0].get("id"))
                assert event["entity_type"] == event["event_type"].split("_")[0]
        trail = await archive.events(tools.tenant)
    assert len(trail) == 6 + len(EXPECTED_EVENTS)
    assert not re.search("secret|tea|drink", json.dumps([event["payload"] for event in trail]))


async def test_superseding_leaves_one_event_for_each_of_the_two(tools, archive):
    old, new = await tools.fact("green"), await tools.fact("blue")
    await tools.fact("blue")
    trail = [(event["event_type"], event["entity_id"]) for event in await archive.events(tools.tenant)]
    assert sorted(trail) == sorted(
        [("fact_created", old), ("fact_superseded", old), ("fact_created", new), ("fact_confirmed", new)]
    )
    payloads = [json.loads(event["payload"]) for event in await archive.events(tools.tenant)]
    assert {payload.get("superseded_by") for payload in payloads} == {None, new}
    assert {payload.get("supersedes_id") for payload in payloads} == {None, old}


async def test_a_refused_change_leaves_no_event(tools, archive):
    await tools.refusal("memory_store_fact", subject=" ", predicate="p", content="c")
    await tools.refusal("memory_forget", type="fact", id=str(uuid.uuid4()))
    await tools.refusal("memory_mark_helpful", rule_id=str(uuid.uuid4()))
    assert await archive.events(tools.tenant) == []


ID_TOOLS = (
    "memory_get",
    "memory_confirm",
    "memory_forget",
    "memory_restore",
    "memory_links",
    "memory_history",
    "memory_told",
    "memory_mark_helpful",
    "memory_mark_harmful",
)


def test_every_tool_that_takes_an_id_is_tried_with_foreign_ones():
    takes_id = {tool.name for tool in TOOLS if "id" in tool.aliases}
    assert {name for name in takes_id if name.startswith("memory_")} == set(ID_TOOLS)


async def test_row_29_another_tenants_episode_is_not_there_for_any_tool(tools, stranger, memory, archive):
    answer = await stranger("memory_store_episode", content="x", butler=memory.butler)
    before = await archive.everything(stranger.tenant)
    for name in (each for each in ID_TOOLS if "mark" not in each):
        message = await tools.refusal(name, type="episode", id=answer["id"])
        expected = "invalid_input: " if name == "memory_confirm" else "not_found: no episode "
        assert message.startswith(expected)
    assert await archive.everything(stranger.tenant) == before


async def test_row_30_a_tiny_tenant_gets_all_it_asks_for_after_a_mid_sized_one(tools, stranger, archive):
    await stranger.fact("tea", predicate="first")
    await archive.connection.execute(
        """
        insert into facts (tenant_id, subject, predicate, content, embedding, embedding_version_id, search_vector)
        select f.tenant_id, 'user', 'p' || n, 'tea', v.vector, f.embedding_version_id, f.search_vector
          from facts f, generate_series(1, 1200) n,
               lateral (
                   select array_agg(random() - 0.5)::vector(384) as vector from generate_series(1, 384 + 0 * n)
               ) v
         where f.tenant_id = $1
        """,
        stranger.tenant,
    )
    for _ in range(30):
        assert len(await stranger("memory_search", query="tea", limit=10)) == 10
    for number in range(12):
        await tools.fact("tea", predicate=f"p{number}")
    for _ in range(5):
        for mode in ("semantic", "keyword", "hybrid", "blended"):
            assert len(await tools("memory_search", query="tea", limit=10, mode=mode)) == 10
        assert len(await tools("memory_recall", topic="tea", limit=10)) == 10


async def test_two_tenants_at_once_keep_apart(tools, stranger):
    async def work(each, content):
        fact = await each.fact(content)
        found = await each("memory_recall", topic=content)
        return fact, [(one["id"], one["content"]) for one in found]

    results = await asyncio.gather(
        *(work(each, f"tea of {name}") for _ in range(10) for each, name in ((tools, "a"), (stranger, "b")))
    )
    for position, (fact, found) in enumerate(results):
        assert found == [(fact, f"tea of {'ab'[position % 2]}")]
