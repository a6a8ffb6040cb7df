"""Receipts of what sessions were told: their lines, their evidence for marks, their retention and their walls."""

import asyncio
import json
import time
from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport

from butlers.modules.memory.config import MemoryModuleConfig
from butlers.modules.memory.domain.model import MemoryType, SearchMode
from butlers.modules.memory.domain.receipt import Receipt, ReceiptLine, ReceiptSource, ToldOutcome
from butlers.modules.memory.operations import cleanup, context, erasure, feedback, reading, receipts
from butlers.modules.memory.store import receipts as receipt_store
from memory.memory_fixtures import REQUEST, Tools, build_tenant_server, serve_http


@pytest.fixture
def session(caller):
    """A caller in a session of the tenant."""
    return replace(caller, session_id=str(uuid4()))


async def told_at_start(memory, session, prompt="diet", budget=None):
    """Build the context of a session; return the text and the receipts of the session."""
    text = await context.build_context(memory, session, prompt, memory.butler, budget)
    return text, (await receipts.receipts_of_session(memory, session, UUID(session.session_id)))["receipts"]


async def recall(memory, session, topic="diet", limit=10):
    types = (MemoryType.FACT, MemoryType.RULE)
    return await reading.recall(memory, session, topic, scope=None, limit=limit, types=types)


async def test_a_session_keeps_what_it_was_told_as_ids_and_numbers(memory, session, tools, archive):
    word = f"marzipan-{uuid4().hex[:6]}"
    fact, rule = await tools.fact(f"no meat {word}", predicate="diet"), await tools.rule(f"Mind the diet {word}")
    episode = (await tools("memory_store_episode", content=f"Diet {word}", butler=memory.butler))["id"]
    text, (receipt,) = await told_at_start(memory, session)
    assert word in text
    assert (receipt["source"], receipt["told"], receipt["left_out"]) == ("context", 3, 0)
    assert receipt["token_budget"] == memory.config.retrieval.context_token_budget
    assert memory.embedder.count_tokens(text) <= receipt["tokens"] < 200
    lines = {(line["memory_type"], str(line["memory_id"])): line for line in receipt["lines"]}
    assert set(lines) == {("fact", fact), ("rule", rule), ("episode", episode)}
    assert {line["outcome"] for line in lines.values()} == {"told"}
    assert all(line["tokens"] > 0 for line in lines.values())
    best = await recall(memory, replace(session, session_id=None))
    assert [lines[each["memory_type"], str(each["id"])]["rank"] for each in best] == [1, 2]
    for table in ("session_receipts", "session_receipt_lines"):
        assert not await archive.count(table, session.tenant, f"t::text like '%{word}%'".replace("t::", f"{table}::"))


async def test_what_was_left_out_has_its_reason(memory, session, tools):
    for number in range(24):
        await tools.fact(f"diet number {number} " + "very long " * 10, predicate=f"diet_{number}")
    await tools.fact("diet " + "x" * 2_000, predicate="diet_long", importance=10)
    text, (receipt,) = await told_at_start(memory, session, budget=200)
    outcomes = [line["outcome"] for line in receipt["lines"]]
    assert outcomes.count("told") == receipt["told"] == text.count("\n- ")
    assert outcomes.count("beyond_best") == 5
    assert outcomes.count("too_long") == 1
    assert outcomes.count("no_room") == receipt["left_out"] - 6
    refused = next(line for line in receipt["lines"] if line["outcome"] == "no_room")
    assert refused["tokens"] > 0
    beyond = [line["rank"] for line in receipt["lines"] if line["outcome"] == "beyond_best"]
    assert beyond == [21, 22, 23, 24, 25]


async def test_recalls_searches_and_reads_of_a_session_are_receipts(memory, session, tools):
    fact = await tools.fact("no meat", predicate="diet")
    found = await recall(memory, session)
    await reading.get(memory, session, MemoryType.FACT, UUID(fact))
    options = {"scope": None, "mode": SearchMode.KEYWORD, "limit": 5, "min_confidence": 0.2}
    await reading.search(memory, session, "diet", types=list(MemoryType), **options)
    answer = await receipts.receipts_of_session(memory, session, UUID(session.session_id))
    first, second, third = answer["receipts"]
    assert (first["source"], first["lines"][0]["score"]) == ("recall", found[0]["score"])
    assert (second["source"], str(second["lines"][0]["memory_id"])) == ("get", fact)
    assert (third["source"], str(third["lines"][0]["memory_id"])) == ("search", fact)


async def test_a_call_without_a_session_leaves_no_receipt(memory, caller, tools, archive):
    await tools.fact("no meat", predicate="diet")
    await tools("memory_context", trigger_prompt="diet", butler=memory.butler)
    await tools.ids("memory_recall", topic="diet")
    await tools.ids("memory_search", query="diet")
    await receipts.settle(memory)
    assert await archive.count("session_receipts", caller.tenant) == 0


async def test_receipts_change_no_memory_and_no_event(memory, session, tools, archive):
    await tools.fact("no meat", predicate="diet")
    before = await archive.everything(session.tenant)
    await told_at_start(memory, session)
    assert await archive.everything(session.tenant) == before


async def test_receipts_are_off_where_none_are_kept(memory, session, tools, archive):
    rule = await tools.rule("Mind the diet")
    off = replace(memory, config=MemoryModuleConfig.model_validate({"receipt_days": 0}))
    await told_at_start(off, session)
    assert await archive.count("session_receipts", session.tenant) == 0
    mark = await feedback.mark_helpful(off, session, UUID(rule), REQUEST)
    assert mark["evidence"] == "unknown"


# Who was told


async def test_who_was_told_a_memory_is_listed_newest_first(memory, caller, tools):
    fact = await tools.fact("no meat", predicate="diet")
    sessions = [replace(caller, session_id=str(uuid4()), details={"agent": "codex"}) for _ in range(3)]
    for session in sessions:
        await told_at_start(memory, session)
    await recall(memory, sessions[0])
    answer = await tools("memory_told", memory_type="fact", memory_id=fact)
    assert answer["sessions"] == 3
    assert [each["session_id"] for each in answer["told"]] == [sessions[number].session_id for number in (0, 2, 1, 0)]
    assert {each["agent"] for each in answer["told"]} == {"codex"}
    assert answer["told"][0]["source"] == "recall"
    untold = await tools.fact("Ada", predicate="name")
    nobody = await tools("memory_told", memory_type="fact", memory_id=untold)
    assert (nobody["sessions"], nobody["told"], nobody["last_told_at"]) == (0, [], None)


async def test_a_memory_left_out_was_not_told(memory, session, tools):
    await tools.fact("diet " + "x" * 2_000, predicate="diet_long")
    _, (receipt,) = await told_at_start(memory, session, budget=100)
    (line,) = receipt["lines"]
    assert line["outcome"] == "too_long"
    assert (await receipts.told_sessions(memory, session, MemoryType.FACT, line["memory_id"]))["sessions"] == 0


async def test_the_memories_told_to_sessions_are_found_by_session(memory, session, caller, tools):
    fact, rule = await tools.fact("no meat", predicate="diet"), await tools.rule("Mind the diet")
    await told_at_start(memory, session)
    other = uuid4()
    async with memory.transaction(caller) as tx:
        told = await receipt_store.told_in_sessions(tx, caller, [UUID(session.session_id), other])
    assert told == {
        UUID(session.session_id): {(MemoryType.FACT, UUID(fact)), (MemoryType.RULE, UUID(rule))},
        other: set(),
    }


# Evidence of marks


async def test_a_mark_says_how_its_session_came_to_know_the_rule(memory, caller, tools, archive):
    rule = UUID(await tools.rule("Mind the diet"))
    told, recalled, neither = (replace(caller, session_id=str(uuid4())) for _ in range(3))
    await context.build_context(memory, told, "diet", memory.butler, None)
    await recall(memory, recalled)
    marks = [
        (await feedback.mark_helpful(memory, each, rule, REQUEST))["evidence"]
        for each in (told, recalled, neither, caller)
    ]
    assert marks == ["told", "recalled", "none", "none"]
    events = [json.loads(each["payload"]) for each in await archive.events(caller.tenant)]
    assert [each["evidence"] for each in events if "evidence" in each] == marks
    record = await tools("memory_get", memory_type="rule", memory_id=str(rule))
    assert record["applied_count"] == 4, "a mark without evidence is taken"


async def test_a_rule_that_was_left_out_is_no_evidence(memory, session, tools):
    rule = UUID(await tools.rule("Mind the diet " + "x" * 2_000))
    await told_at_start(memory, session, budget=100)
    assert (await feedback.mark_harmful(memory, session, rule, None, REQUEST))["evidence"] == "none"


async def test_the_receipt_of_another_tenant_is_no_evidence(memory, session, tools, stranger):
    rule = UUID(await tools.rule("Mind the diet"))
    line = ReceiptLine(MemoryType.RULE, rule, 1)
    receipts.record(memory, replace(session, tenant=stranger.tenant), Receipt(ReceiptSource.CONTEXT, [line]))
    assert (await feedback.mark_helpful(memory, session, rule, REQUEST))["evidence"] == "none"


# Walls, retention, stress


async def test_a_tenant_sees_only_its_own_receipts(memory, session, tools, stranger):
    fact = await tools.fact("no meat", predicate="diet")
    await told_at_start(memory, session)
    assert (await stranger("memory_receipts", session_id=session.session_id))["receipts"] == []
    foreign = await stranger.refusal("memory_told", memory_type="fact", memory_id=fact)
    assert foreign.startswith("not_found: no fact ")
    assert len((await tools("memory_receipts", session_id=session.session_id))["receipts"]) == 1
    refused = await tools.refusal("memory_receipts", session_id="yesterday")
    assert refused == "invalid_input: session_id is not an id. Send the session's UUID."


async def test_old_receipts_go_in_batches_with_their_lines(memory, caller, archive, stranger):
    days = [1, 89, *([91] * (cleanup.BATCH + 1))]
    for tenant in (caller.tenant, stranger.tenant):
        await archive.connection.execute(
            "with r as (insert into session_receipts"
            " (tenant_id, session_id, source, butler, told, left_out, told_at)"
            " select $1, gen_random_uuid(), 'recall', 'b', 1, 0, now() - make_interval(days => d)"
            " from unnest($2::int[]) d returning id, session_id, told_at)"
            " insert into session_receipt_lines"
            " (tenant_id, receipt_id, memory_type, memory_id, session_id, told_at, rank, outcome)"
            " select $1, id, 'fact', gen_random_uuid(), session_id, told_at, 1, 'told' from r",
            tenant,
            days,
        )
    await cleanup.preview(memory, caller)
    assert await archive.count("session_receipts", caller.tenant) == len(days), "a dry run leaves them"
    await cleanup.clean_up(memory, caller)
    for table in ("session_receipts", "session_receipt_lines"):
        assert await archive.count(table, caller.tenant) == 2
        assert await archive.count(table, stranger.tenant) == len(days)


async def test_an_erased_memory_is_in_no_receipt(memory, session, tools, archive):
    fact = await tools.fact("no meat", predicate="diet")
    await tools.rule("Mind the diet")
    await told_at_start(memory, session)
    await erasure.erase_memory(memory, session, MemoryType.FACT, UUID(fact))
    left = await archive.rows("select memory_type from session_receipt_lines where tenant_id = $1", session.tenant)
    assert [row["memory_type"] for row in left] == ["rule"]


async def test_fifty_sessions_at_once_each_have_their_receipt_and_a_neighbour_is_not_slowed(
    memory, caller, tools, stranger, archive
):
    fact = await tools.fact("no meat", predicate="diet")
    sessions = [replace(caller, session_id=str(uuid4())) for _ in range(50)]

    async def twice(session):
        for _ in range(2):
            await context.build_context(memory, session, "diet", memory.butler, None)

    async def neighbour():
        started = time.monotonic()
        await stranger.fact("the neighbour's", predicate="note")
        return time.monotonic() - started

    *_, seconds = await asyncio.gather(*map(twice, sessions), neighbour())
    await receipts.settle(memory, 30)
    assert await archive.count("session_receipts", caller.tenant) == 100
    assert await archive.count("session_receipt_lines", caller.tenant) == 100
    assert (await tools("memory_told", memory_type="fact", memory_id=fact))["sessions"] == 50
    assert seconds < 10


async def test_a_database_that_refuses_loses_receipts_and_no_answer(memory, session, tools, caplog):
    await tools.fact("no meat", predicate="diet")
    broken = Receipt(ReceiptSource.CONTEXT, [ReceiptLine(MemoryType.FACT, uuid4(), 1)] * 2)
    receipts.record(memory, session, broken)
    await receipts.settle(memory)
    assert "1 receipts were not stored" in caplog.text
    text, kept = await told_at_start(memory, session)
    assert "no meat" in text
    assert len(kept) == 1, "later receipts are stored"


def test_a_receipt_counts_all_and_stores_the_best_of_those_left_out():
    told = [ReceiptLine(MemoryType.FACT, uuid4(), rank) for rank in (1, 2)]
    left = [ReceiptLine(MemoryType.FACT, uuid4(), rank, ToldOutcome.BEYOND_BEST) for rank in range(200, 2, -1)]
    receipt = Receipt(ReceiptSource.CONTEXT, left + told)
    assert (receipt.told, receipt.left_out) == (2, 198)
    assert [line.rank for line in receipt.stored_lines] == [1, 2, *range(3, 63)]


# The session that a client names


async def test_a_client_names_its_session_in_a_header(butler, memory, caller, tools, archive):
    await tools.fact("no meat", predicate="diet")
    named, agent = str(uuid4()), "claude-code"
    async with serve_http(build_tenant_server(butler, memory, caller.tenant)) as address:
        for headers in ({"X-Session-Id": named, "X-Agent-Name": agent}, {"X-Session-Id": "yesterday"}, {}):
            async with Client(StreamableHttpTransport(address, headers=headers)) as client:
                await Tools(client, caller.tenant)("memory_recall", topic="diet")
    await receipts.settle(memory)
    rows = await archive.rows(
        "select session_id::text, agent, source from session_receipts where tenant_id = $1", caller.tenant
    )
    assert rows == [{"session_id": named, "agent": agent, "source": "recall"}]


async def test_an_agent_name_that_is_none_is_left_out(butler, memory, caller, tools, archive):
    headers = {"X-Session-Id": str(uuid4()), "X-Agent-Name": "<script>"}
    async with (
        serve_http(build_tenant_server(butler, memory, caller.tenant)) as address,
        Client(StreamableHttpTransport(address, headers=headers)) as client,
    ):
        await Tools(client, caller.tenant)("memory_recall", topic="diet")
    await receipts.settle(memory)
    assert await archive.count("session_receipts", caller.tenant, "agent is null") == 1
