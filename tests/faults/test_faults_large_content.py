"""Contents of nearly a megabyte in one tenant: its own calls stay quick, and another tenant's too (row 37)."""

import asyncio
import threading
import time

import pytest

from butlers.modules.memory.operations import consolidation
from memory.scripted_model import ScriptedModel, with_model

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


DENSE = "a b " * 120_000
BUDGET = 100_000


@pytest.mark.slow
async def test_row_37_a_budget_as_large_as_allowed_slows_down_neither_its_tenant_nor_another(tools, stranger, memory):
    """The contents fit by their length, and not by their tokens."""
    await stranger.fact("drinks tea")
    await tools.fact("likes words")
    for number in range(20):
        fact, episode = f"{number} {DENSE}"[:239_000], f"{number} {DENSE}"[:399_000]
        await tools("memory_store_fact", subject="Ada", predicate=f"note_{number}", content=fact)
        await tools("memory_store_episode", content=episode, butler=memory.butler)
    prompt = {"trigger_prompt": "words", "butler": memory.butler}
    started = time.monotonic()
    block = await tools("memory_context", token_budget=BUDGET, **prompt)
    assert time.monotonic() - started < 5
    assert "likes words" in block
    large = [
        asyncio.create_task(
            tools("memory_context", token_budget=BUDGET, trigger_prompt=f"words {each}", butler=memory.butler)
        )
        for each in range(8)
    ]
    await asyncio.sleep(0.3)
    slowest = 0.0
    for _ in range(5):
        started = time.monotonic()
        assert "drinks tea" in await stranger("memory_context", **prompt)
        slowest = max(slowest, time.monotonic() - started)
    waiting = sum(not each.done() for each in large)
    assert slowest < 1.5
    assert waiting, "the other tenant's contexts did not wait for them"
    await asyncio.gather(*large)


class LockWatch:
    """The longest time in which a thread that sleeps for a millisecond did not get the interpreter's lock."""

    def __enter__(self):
        self._ended = threading.Event()
        self.longest = 0.0
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self):
        while not self._ended.is_set():
            started = time.monotonic()
            time.sleep(0.001)
            self.longest = max(self.longest, time.monotonic() - started)

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()


@pytest.mark.slow
async def test_row_37_the_prompt_of_consolidation_holds_up_nobody(tools, stranger, memory, caller):
    """Large episodes and large known facts: neither the event loop nor the interpreter's lock is held for long."""
    await stranger.fact("drinks tea")
    for number in range(MEMORIES):
        await tools("memory_store_fact", subject="Ada", predicate=f"note_{number}", content=f"{number} {LARGE}")
        await tools("memory_store_episode", content=f"{number} <{LARGE}", butler=memory.butler)
    done = asyncio.Event()
    beside = asyncio.create_task(longest_search(stranger, done))
    await asyncio.sleep(0.2)
    model = ScriptedModel()
    with LockWatch() as lock:
        await consolidation.consolidate(with_model(memory, model), caller)
    done.set()
    assert await beside < 1, "another tenant's search beside consolidation"
    assert lock.longest < 0.2
    assert len(model.requests) == MEMORIES
    assert all("… [cut]</episode_content>" in request.prompt for request in model.requests)


@pytest.mark.slow
async def test_row_37_counting_tokens_shares_the_interpreters_lock(engine):
    engine.count_tokens("load the model")
    with LockWatch() as lock:
        assert await asyncio.to_thread(engine.count_tokens, LARGE * 3) == 540_000
    assert lock.longest < 0.2
