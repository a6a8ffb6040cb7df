"""What one tenant's work costs another tenant (rows 39 and 40)."""

import asyncio
import random
import time

import pytest

from butlers.modules.memory.tools import TOOLS
from memory.memory_fixtures import valid_arguments

WORDS = ["tea", "coffee", "garden", "river", "Ada", "prefers", "morning", "walks", "water", "reads", "letters"]


def long_text(number: int) -> str:
    """Over 256 tokens, different for each number."""
    return " ".join(random.Random(number).choices(WORDS, k=280))


async def test_row_39_a_search_beside_fifty_long_stores_of_another_tenant_is_quick_and_by_meaning(tools, stranger):
    meal = await stranger.fact("eats no meat")
    stores = [asyncio.create_task(tools("memory_store_rule", content=long_text(number))) for number in range(50)]
    await asyncio.sleep(0.3)
    started = time.monotonic()
    (found,) = await stranger("memory_search", query="vegetarian diet", mode="hybrid", types=["fact"])
    seconds = time.monotonic() - started
    waiting = sum(not store.done() for store in stores)
    assert found["id"] == meal
    assert found["semantic_rank"] == 1
    assert seconds < 2.5
    assert waiting > 10, "the search did not wait for the stores"
    await asyncio.gather(*stores)


async def test_row_39_a_search_of_a_tenant_does_not_wait_for_its_own_batch(memory, engine, caller):
    batch = asyncio.create_task(engine.embed_batch([long_text(number) for number in range(100, 160)], tenant="a"))
    await asyncio.sleep(0.3)
    started = time.monotonic()
    await engine.embed("a question nobody asked before", tenant="a")
    assert time.monotonic() - started < 2.5
    assert not batch.done()
    assert len(await batch) == 60


LARGE = " ".join(random.Random(7).choices([*WORDS, "word"], k=150_000))
"""Nearly a megabyte of different words, as much as a content may hold."""


CALLS_AT_ONCE = 4


async def slowest_search(tools, until: asyncio.Event) -> float:
    """Search until the event is set; return the seconds of the slowest search."""
    slowest = 0.0
    while not until.is_set():
        started = time.monotonic()
        await tools("memory_search", query="tea")
        slowest = max(slowest, time.monotonic() - started)
        await asyncio.sleep(0)
    return slowest


async def fill_with_large_memories(tools, butler: str) -> None:
    """Store facts, rules, episodes and entities as large as allowed."""
    for number in range(6):
        await tools("memory_store_fact", subject="Ada", predicate=f"note_{number}", content=f"{number} {LARGE}")
        await tools("memory_store_rule", content=f"{number} {LARGE}")
        await tools("memory_store_episode", content=f"{number} {LARGE}", butler=butler)
    for number in range(3):
        aliases = [f"alias {number} {each} " + "a" * 40 for each in range(1_000)]
        metadata = {f"key_{each}": "v" * 50 for each in range(1_000)}
        await tools(
            "entity_create", canonical_name=f"Ada {number}", entity_type="person", aliases=aliases, metadata=metadata
        )


def enlarged(arguments):
    """The arguments, with a content as large as allowed."""
    return {name: LARGE if name == "content" else value for name, value in arguments.items()}


async def call_at_once(tools, tool: str, arguments) -> None:
    """Call a tool several times at once; what can be done only once may be a conflict the other times."""
    calls = (tools.client.call_tool(tool, arguments, raise_on_error=False) for _ in range(CALLS_AT_ONCE))
    answers = await asyncio.gather(*calls)
    errors = [answer.content[0].text for answer in answers if answer.is_error]
    assert len(errors) < CALLS_AT_ONCE, errors
    assert {error.partition(":")[0] for error in errors} <= {"conflict", "not_found", "already_exists"}, errors


@pytest.mark.slow
async def test_row_40_every_tool_is_quick_beside_the_largest_contents_and_so_are_another_tenants_calls(
    tools, stranger, memory
):
    await stranger.fact("drinks tea")
    await fill_with_large_memories(tools, memory.butler)
    address = {"memory_type": "fact", "memory_id": await tools.fact(LARGE, predicate="essay")}
    calls = await valid_arguments(tools, memory.butler)
    assert set(calls) == {tool.name for tool in TOOLS}
    # An inspection reads every memory of the tenant: several at once may end in a timeout.
    del calls["memory_hygiene"]
    calls |= dict.fromkeys(("memory_get", "memory_confirm", "memory_history", "memory_links"), address)
    slow = {}
    for tool, arguments in calls.items():
        done = asyncio.Event()
        beside = asyncio.create_task(slowest_search(stranger, done))
        await asyncio.sleep(0.1)
        started = time.monotonic()
        await call_at_once(tools, tool, enlarged(arguments))
        own = time.monotonic() - started
        done.set()
        other = await beside
        if own > 5 or other > 1:
            slow[tool] = (round(own, 2), round(other, 2))
    assert slow == {}, "seconds of the calls, and of the slowest search of the other tenant"


async def test_row_40_an_entity_with_as_many_names_as_allowed_is_stored_and_found_in_time(tools):
    aliases = [f"name {number} " + "é" * 26 for number in range(1_000)]
    started = time.monotonic()
    made = await tools("entity_create", canonical_name="Ada", entity_type="person", aliases=aliases)
    assert time.monotonic() - started < 5
    (found,) = await tools("entity_resolve", name="ame 999 é")
    assert found["entity_id"] == made["entity_id"]
    message = await tools.refusal(
        "entity_update", entity_id=made["entity_id"], aliases=[f"{number} " + "é" * 100 for number in range(1_000)]
    )
    assert message == ("invalid_input: the aliases take 203890 bytes. Send 65536 bytes at most in all.")
