"""Acts on many memories at once: whole or not at all, undone as one, and without holding up others."""

import asyncio
import json
import time
from collections import Counter
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from butlers.errors import Conflict, InvalidInput, NotFound, Overloaded
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.operations import bulk, undo
from butlers.modules.memory.operations.idempotency import Request
from butlers.modules.memory.store import facts
from memory.memory_fixtures import REQUEST
from memory.memory_fixtures import new_caller as caller_of

FACT = MemoryType.FACT


async def fill(archive, tenant: str, number: int) -> list[UUID]:
    """Insert facts without vectors and return their ids."""
    rows = await archive.rows(
        "insert into facts (tenant_id, subject, predicate, content) select $1, 'Ada', 'p' || n, 'content ' || n"
        " from generate_series(1, $2::int) n returning id",
        tenant, number,
    )  # fmt: skip
    return [row["id"] for row in rows]


async def perform(memory, caller, kind, ids, act, tags=(), request=REQUEST):
    """Act on many, and try again while every connection is busy, as a client is told to."""
    while True:
        try:
            return await bulk.act_on_many(memory, caller, kind, ids, act, list(tags), request)
        except Overloaded:
            await asyncio.sleep(0.2)


def fresh(caller):
    return replace(caller, request_id=str(uuid4()))


@pytest.mark.parametrize(("act", "event"), [("confirm", "confirmed"), ("forget", "forgotten"), ("tag", "edited")])
async def test_an_act_of_several_batches_is_one_request_and_is_undone_as_one(memory, caller, archive, act, event):
    ids = await fill(archive, caller.tenant, 3 * undo.BATCH + 1)
    rows = "select f::text from facts f where tenant_id = $1 order by id"
    before = await archive.rows(rows, caller.tenant)
    doer = fresh(caller)
    answer = await perform(memory, doer, FACT, ids, act, ["one", "two"])
    assert answer == {"act": act, "changed": len(ids), "left_alone": 0}
    events = await archive.events(caller.tenant)
    found = Counter((each["event_type"], each["request_id"]) for each in events)
    assert found == {(f"fact_{event}", doer.request_id): len(ids)}
    undone = await undo.undo(memory, fresh(caller), doer.request_id, REQUEST)
    assert (undone["number"], len(undone["undone"])) == (len(ids), 100)
    assert await archive.rows(rows, caller.tenant) == before


async def test_what_is_restored_takes_only_keys_that_are_free(memory, caller, archive, tools):
    kept = await tools.fact("old", "Ada", "diet")
    await tools("memory_forget", memory_type="fact", memory_id=kept)
    taken = await tools.fact("older", "Bob", "phone")
    await tools("memory_forget", memory_type="fact", memory_id=taken)
    await tools.fact("newer", "Bob", "phone")
    twice = []
    for content in ("first", "second"):
        twice.append(await tools.fact(content, "Cy", "car"))
        await tools("memory_forget", memory_type="fact", memory_id=twice[-1])
    live = await tools.fact("lives", "Dan", "home")
    ids = [UUID(each) for each in (kept, taken, *twice, live)]
    answer = await perform(memory, fresh(caller), FACT, ids, "restore")
    assert answer == {"act": "restore", "changed": 2, "left_alone": 3}
    states = [(await archive.row("fact", str(each)))["validity"] for each in ids]
    assert states == ["active", "retracted", "retracted", "active", "active"]


async def test_only_live_memories_are_tagged_and_too_many_tags_change_nothing(memory, caller, archive, tools):
    stored = [await tools.fact(f"fact {number}", predicate=f"p{number}", tags=["a"]) for number in range(3)]
    await tools("memory_forget", memory_type="fact", memory_id=stored[0])
    ids = [UUID(each) for each in stored]
    answer = await perform(memory, fresh(caller), FACT, ids, "tag", ["b", "a"])
    assert answer == {"act": "tag", "changed": 2, "left_alone": 1}
    assert [json.loads((await archive.row("fact", each))["tags"]) for each in stored] == [
        ["a"],
        ["a", "b"],
        ["a", "b"],
    ]
    before = await archive.everything(caller.tenant)
    with pytest.raises(InvalidInput):
        await perform(memory, fresh(caller), FACT, ids, "tag", [f"tag {number}" for number in range(1_000)])
    with pytest.raises(Conflict, match="nothing was changed"):
        await perform(memory, fresh(caller), FACT, ids, "tag", ["a"])
    with pytest.raises(NotFound):
        await perform(memory, caller_of(memory), FACT, ids, "forget")
    assert await archive.everything(caller.tenant) == before


async def test_fifty_acts_at_once_twice_each_with_one_killed_leave_whole_acts(memory, caller, archive):
    """Beside them a neighbour calls."""
    ids = await fill(archive, caller.tenant, 300)
    requests = [
        (fresh(caller), act, Request("bulk", {"act": act, "number": number}, str(uuid4())))
        for number, act in enumerate(["forget", "restore", "confirm", "tag"] * 13)
    ][:50]
    calls = [
        asyncio.create_task(perform(memory, who, FACT, ids, act, ["x"] if act == "tag" else [], request))
        for who, act, request in requests * 2
    ]
    neighbour = caller_of(memory)
    other = await fill(archive, neighbour.tenant, 1)
    slowest = 0.0
    for number, call in enumerate(calls):
        if number == 7:
            call.cancel()
        if number % 10 == 0:
            started = time.perf_counter()
            await perform(memory, fresh(neighbour), FACT, other, "confirm")
            slowest = max(slowest, time.perf_counter() - started)
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert slowest < 5
    assert all(isinstance(each, dict | Conflict | asyncio.CancelledError) for each in answers), answers
    done = {
        who.request_id: answer
        for (who, _, _), answer in zip(requests * 2, answers, strict=True)
        if isinstance(answer, dict)
    }
    found = Counter(each["request_id"] for each in await archive.events(caller.tenant))
    assert {each: found[each] for each in done} == {each: answer["changed"] for each, answer in done.items()}
    assert set(found.values()) == {300}
    states = Counter(
        row["validity"]
        for row in await archive.rows("select validity from facts where tenant_id = $1", caller.tenant)
    )
    assert len(states) == 1


async def test_an_act_that_is_killed_half_way_changes_nothing(memory, caller, archive):
    ids = await fill(archive, caller.tenant, 20 * undo.BATCH)
    before = await archive.everything(caller.tenant)
    call = asyncio.create_task(perform(memory, fresh(caller), FACT, ids, "forget"))
    await asyncio.sleep(0.1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await archive.everything(caller.tenant) == before


async def test_any_number_of_keys_leaves_locks_to_others(memory, caller):
    """The server has some ten thousands of locks for all tenants and fails every call without one."""
    async with memory.transaction(caller) as tx:
        await facts.lock_keys(tx, caller, [f"key {number}" for number in range(60_000)])
        held = await tx.fetchval(
            "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"
        )
    assert held <= 512
