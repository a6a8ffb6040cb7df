"""The embedding queue: turns by lane, batches of bounded cost, texts nobody waits for."""

import asyncio

from butlers.modules.memory.embedding_queue import MAX_BATCH_CHARACTERS, MAX_BATCH_SIZE, EmbeddingQueue


def texts(batch):
    return [pending.text for pending in batch]


async def test_lanes_take_turns_however_long_one_of_them_is():
    queue = EmbeddingQueue()
    for number in range(40):
        queue.add("busy", f"b{number}")
    queue.add("quiet", "q0")
    queue.add("quiet", "q1")
    assert texts(queue.next_batch())[:5] == ["b0", "q0", "b1", "q1", "b2"]
    assert texts(queue.next_batch()) == [f"b{number}" for number in range(30, 40)]
    assert queue.next_batch() == []


async def test_a_batch_is_bounded_by_count_and_by_its_padded_length():
    queue = EmbeddingQueue()
    for number in range(2 * MAX_BATCH_SIZE):
        queue.add("short", f"{number}")
    assert len(queue.next_batch()) == MAX_BATCH_SIZE
    queue = EmbeddingQueue()
    for number in range(10):
        queue.add("long", f"{number}" + "x" * (MAX_BATCH_CHARACTERS // 4))
    sizes = [len(batch) for batch in iter(queue.next_batch, [])]
    assert sizes == [3, 3, 3, 1]


async def test_a_text_longer_than_a_batch_runs_alone():
    queue = EmbeddingQueue()
    queue.add("a", "x" * 30_000)
    queue.add("b", "tea")
    queue.add("c", "coffee")
    assert len(queue) == 3
    assert [len(batch) for batch in iter(queue.next_batch, [])] == [1, 2]
    assert len(queue) == 0


async def test_calls_for_the_same_text_in_a_lane_share_one_vector():
    queue = EmbeddingQueue()
    first, second = queue.add("a", "tea"), queue.add("a", "tea")
    assert first is second
    assert queue.add("b", "tea") is not first, "another tenant's text waits in its own lane"


async def test_a_text_whose_callers_are_all_cancelled_is_not_run():
    queue = EmbeddingQueue()
    pending = queue.add("a", "tea")
    first, second = (asyncio.create_task(pending.vector()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert not pending.future.cancelled(), "the second still waits"
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert queue.next_batch() == []
    assert texts([queue.add("a", "tea")]) == ["tea"]
    assert texts(queue.next_batch()) == ["tea"]
