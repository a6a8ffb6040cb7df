"""Contents of nearly a megabyte in one tenant: its own calls stay quick, and another tenant's too (row 37)."""

import asyncio
import time

import pytest

LARGE = "word " * 180_000
MEMORIES = 8


async def longest_search(tools, until: asyncio.Event) -> float:
    """Search until the event is set; return the seconds of the slowest search."""
    slowest = 0.0
    while not until.is_set():
        started = time.monotonic()
        await tools("memory_search", query="tea")
        slowest = max(slowest, time.monotonic() - started)
        await asyncio.sleep(0)
    return slowest


@pytest.mark.slow
async def test_row_37_large_contents_slow_down_neither_their_tenant_nor_another(tools, stranger, memory):
    await stranger.fact("drinks tea")
    for number in range(MEMORIES):
        await tools("memory_store_fact", subject="Ada", predicate=f"note_{number}", content=f"{number} {LARGE}")
        await tools("memory_store_episode", content=f"{number} {LARGE}", butler=memory.butler)
    await tools.fact("likes words")
    calls = {
        "memory_context": {"trigger_prompt": "word", "butler": memory.butler},
        "memory_search": {"query": "word"},
        "memory_recall": {"topic": "word"},
    }
    for tool, arguments in calls.items():
        done = asyncio.Event()
        beside = asyncio.create_task(longest_search(stranger, done))
        await asyncio.sleep(0.2)
        started = time.monotonic()
        answer = await tools(tool, **arguments)
        seconds = time.monotonic() - started
        done.set()
        assert seconds < 5, tool
        assert await beside < 2, f"another tenant's search beside {tool}"
        assert "likes words" in str(answer), "what fits is not kept out"
