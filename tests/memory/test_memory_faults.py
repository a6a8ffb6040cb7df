"""Faults: concurrent writers, killed servers, cancelled calls, an embedding model that does not answer."""

import asyncio
import json
import logging
import signal
import socket
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from fastmcp import Client

from butlers.caller import Caller
from butlers.errors import Conflict, Unavailable
from butlers.modules.memory.domain.model import MemoryType, NewFact, NewRule
from butlers.modules.memory.embedding import EmbeddingEngine, EmbeddingVersion, get_embedding_engine
from butlers.modules.memory.operations import management, writing
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import memories
from database.butler_processes import connected, eventually
from memory.memory_fixtures import REQUEST, Archive, Tools, build_tenant_server, write_butler


def color_fact(content: str) -> NewFact:
    return NewFact(subject="user", predicate="color", content=content)


async def assert_linear(archive: Archive, tenant: str, stored: set[str]) -> None:
    """Assert that all facts form one chain with one active fact at its end."""
    rows = await archive.rows(
        "select id::text, supersedes_id::text as before, validity from facts where tenant_id = $1", tenant
    )
    assert {row["id"] for row in rows} == stored
    following = {row["before"]: row for row in rows}
    assert len(following) == len(rows), "no two superseded the same one"
    at, length = following[None], 1
    while at["id"] in following:
        assert at["validity"] == "superseded"
        at, length = following[at["id"]], length + 1
    assert (at["validity"], length) == ("active", len(rows))


async def test_row_01_forty_stores_of_one_key_at_once_all_succeed_in_one_chain(memory, caller, archive):
    """Scenario: Concurrent duplicate active facts prevented"""
    answers = await asyncio.gather(
        *(writing.store_fact(memory, caller, color_fact(f"color {number}"), REQUEST) for number in range(40))
    )
    await assert_linear(archive, caller.tenant, {answer["id"] for answer in answers})
    assert await archive.count("memory_events", caller.tenant) == 40 + 39
    assert await archive.count("memory_links", caller.tenant) == 39


_WRITER = """
import asyncio, sys
from pathlib import Path
from butlers import app
from butlers.environment import read_environment
from butlers.errors import Overloaded
from butlers.modules.memory.domain.model import NewFact
from butlers.modules.memory.operations import writing
from butlers.modules.memory.operations.idempotency import Request

async def store(memory, caller, fact):
    # Twenty at once exceed the pool; on a slow machine some get Overloaded and retry.
    while True:
        try:
            return await writing.store_fact(memory, caller, fact, Request("t", {}))
        except Overloaded:
            await asyncio.sleep(0.1)

async def main(folder, tenant, name):
    async with app.open_butler(app.load_configuration(Path(folder)), read_environment()) as butler:
        memory, caller = butler.modules[0].state, butler.caller(tenant)
        await memory.embedder.embed("warm")
        print("ready:", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        facts = [NewFact(subject="user", predicate="color", content=f"{name} {n}") for n in range(20)]
        answers = await asyncio.gather(*(store(memory, caller, f) for f in facts))
        print("stored:", ",".join(a["id"] for a in answers), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_row_01_the_same_from_two_processes(processes, place, home, caller, archive):
    writers = [
        processes.python("-c", _WRITER, str(place), caller.tenant, name, BUTLERS_HOME=str(home))
        for name in ("one", "two")
    ]
    for writer in writers:
        await asyncio.to_thread(writer.line, "ready:")
    for writer in writers:
        writer.close_stdin()
    lines = [await asyncio.to_thread(writer.line, "stored: ") for writer in writers]
    stored = {each for line in lines for each in line.split(",")}
    assert len(stored) == 40
    await assert_linear(archive, caller.tenant, stored)


async def test_row_01_the_database_itself_refuses_a_second_active_fact(tools, archive):
    """Scenario: Concurrent duplicate active facts prevented"""
    await tools.fact()
    with pytest.raises(asyncpg.UniqueViolationError, match="facts_active_subject_key"):
        await archive.connection.execute(
            "insert into facts (tenant_id, subject, predicate, content) values ($1, 'user', 'color', 'x')",
            tools.tenant,
        )


async def test_an_episode_is_forgotten_once_whichever_transaction_began_first(memory, caller, tools):
    stored = (await tools("memory_store_episode", content="The tap drips", butler=caller.butler))["id"]
    async with memory.transaction(caller) as early:
        await early.execute("select now()")
        await tools("memory_forget", type="episode", id=stored)
        assert not await memories.forget(early, caller, MemoryType.EPISODE, [uuid.UUID(stored)])


async def test_row_02_storing_against_forgetting_ends_in_one_of_the_two_orders(memory, caller, archive):
    for number in range(12):
        old = (await writing.store_fact(memory, caller, color_fact(f"old {number}"), REQUEST))["id"]
        forget = management.forget(memory, caller, MemoryType.FACT, uuid.UUID(old), REQUEST)
        store = writing.store_fact(memory, caller, color_fact(f"new {number}"), REQUEST)
        pair = (forget, store) if number % 2 else (store, forget)
        results: list[Any] = [*await asyncio.gather(*pair, return_exceptions=True)]
        forgotten, stored = results if number % 2 else reversed(results)
        before = await archive.row("fact", old)
        if isinstance(forgotten, Conflict):
            assert (before["validity"], stored["superseded_id"]) == ("superseded", old)
        else:
            assert (before["validity"], "superseded_id" in stored) == ("retracted", False)
        events = await archive.rows(
            "select event_type from memory_events where tenant_id = $1 and entity_id = $2", caller.tenant, old
        )
        assert len(events) == 2, "created, and superseded or forgotten"
        assert await archive.count("facts", caller.tenant, "validity = 'active'") == 1


async def test_row_02_storing_waits_for_a_fact_that_is_being_restored(memory, caller, archive, tools):
    old = await tools.fact("green")
    await tools("memory_forget", type="fact", id=old)
    async with memory.transaction(caller) as tx:
        assert await memories.restore(tx, caller, MemoryType.FACT, uuid.UUID(old))
        storing = asyncio.create_task(writing.store_fact(memory, caller, color_fact("blue"), REQUEST))
        await eventually(lambda: _waits_for_lock(archive), "the store to wait")
    answer = await storing
    assert answer["superseded_id"] == old
    assert await archive.count("facts", caller.tenant, "validity = 'active'") == 1


async def _waits_for_lock(archive: Archive) -> bool:
    (row,) = await archive.rows(
        "select count(*) as waiting from pg_stat_activity"
        " where datname = current_database() and wait_event_type = 'Lock'"
    )
    return bool(row["waiting"])


@pytest.mark.slow
async def test_row_05_a_request_sent_again_after_a_kill_answers_with_the_row_that_was_made(
    processes, tmp_path, home, cluster
):
    name = f"t{uuid.uuid4().hex[:12]}"
    folder = write_butler(tmp_path, name)
    asked = {"subject": "user", "predicate": "color", "content": "blue", "idempotency_key": "once"}
    butler = processes.butler(folder, home, "--port", "0")
    address = await asyncio.to_thread(butler.ready)
    wire = _send_unread(address, "memory_store_fact", asked)
    async with connected(cluster.dsn(f"butler_{name}")) as connection:

        async def committed() -> bool:
            return bool(await connection.fetchval("select count(*) from facts"))

        await eventually(committed, "the row to be committed")
        butler.end(signal.SIGKILL)
        wire.close()
        made = await connection.fetchval("select id::text from facts")
        again = await asyncio.to_thread(processes.butler(folder, home, "--port", "0").ready)
        async with Client(again) as client:
            answers = [await client.call_tool("memory_store_fact", asked) for _ in range(2)]
        assert [answer.structured_content for answer in answers] == [{"id": made}] * 2
        assert await connection.fetchval("select count(*) from facts") == 1
        assert await connection.fetchval("select count(*) from memory_events") == 1


def _send_unread(address: str, tool: str, arguments: dict[str, str]) -> socket.socket:
    """Send a call over a new connection and leave its answer unread."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    body = json.dumps(message).encode()
    at = urlsplit(address)
    wire = socket.create_connection((at.hostname, at.port))
    head = (
        f"POST {at.path} HTTP/1.1\r\nHost: {at.netloc}\r\nContent-Type: application/json\r\n"
        f"Accept: application/json, text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    wire.sendall(head.encode() + body)
    return wire


async def test_row_11_a_cancelled_call_has_done_all_or_nothing(memory, caller, archive):
    for number in range(40):
        call = asyncio.create_task(writing.store_fact(memory, caller, color_fact(f"color {number}"), REQUEST))
        await asyncio.sleep(0.0006 * number)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    stored = {
        row["id"] for row in await archive.rows("select id::text from facts where tenant_id = $1", caller.tenant)
    }
    assert await archive.count("memory_events", caller.tenant, "event_type = 'fact_created'") == len(stored)
    assert await archive.count("memory_links", caller.tenant) == max(0, len(stored) - 1)
    if stored:
        await assert_linear(archive, caller.tenant, stored)
    assert memory.database.usage().idle == memory.database.usage().size, "every connection was given back"


async def test_row_11_a_call_cancelled_inside_its_transaction_leaves_nothing_and_its_key_free(
    memory, caller, archive, tools
):
    held = await tools.fact("green")
    async with archive.connection.transaction():
        await archive.connection.execute("select from facts where id = $1 for update", held)
        request = replace(REQUEST, key="once")
        call = asyncio.create_task(writing.store_fact(memory, caller, color_fact("blue"), request))
        async with connect_again(archive) as watcher:
            await eventually(lambda: _waits_for_lock(watcher), "the call to wait for the row")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert await archive.count("facts", caller.tenant) == 1
    assert await archive.count("idempotency_keys", caller.tenant) == 0
    assert (await writing.store_fact(memory, caller, color_fact("blue"), request))["superseded_id"] == held


class connect_again:  # noqa: N801 — used like a function
    """Another connection to the database of the archive."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    async def __aenter__(self) -> Archive:
        at = self._archive.connection
        name = await at.fetchval("select current_database()")
        host = await at.fetchval("select split_part(current_setting('unix_socket_directories'), ',', 1)")
        self._connection = await asyncpg.connect(database=name, host=host, user="postgres")
        return Archive(self._connection)

    async def __aexit__(self, *_: object) -> None:
        await self._connection.close()


class BrokenEmbedder:
    """An embedder that returns the given vector or raises the given error."""

    def __init__(self, gives: Any, seconds: float = 0.0) -> None:
        self._gives, self._seconds = gives, seconds
        self.version = EmbeddingVersion("all-MiniLM-L6-v2", "1", 384)

    async def embed(self, _: str | None, **_options: str) -> list[float]:
        await asyncio.sleep(self._seconds)
        if isinstance(self._gives, Exception):
            raise self._gives
        return list(self._gives)

    async def embed_batch(self, texts: Any, **_options: str) -> list[list[float]]:
        return [await self.embed(text) for text in texts]

    def count_tokens(self, text: str) -> int:
        if isinstance(self._gives, Exception):
            raise self._gives
        return len(text.split())


def with_embedder(memory: Memory, embedder: Any) -> Memory:
    return replace(memory, embedder=embedder)


@pytest.mark.parametrize(
    "vector",
    [[0.0] * 384, [0.1] * 383, [0.1] * 385, [], [float("nan")] * 384, [float("inf"), *[0.1] * 383]],
    ids=["no length", "short", "long", "empty", "not a number", "infinite"],
)
async def test_row_26_a_vector_that_is_none_is_refused_by_the_database(memory, caller, archive, vector):
    broken = with_embedder(memory, BrokenEmbedder(vector))
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, Unavailable, ValueError)):
        await writing.store_fact(broken, caller, color_fact("blue"), REQUEST)
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, Unavailable, ValueError)):
        await writing.store_rule(broken, caller, NewRule(content="x"), REQUEST)
    assert await archive.count("facts", caller.tenant) == await archive.count("rules", caller.tenant) == 0
    assert await archive.count("memory_events", caller.tenant) == 0


NOT_INSTALLED = Unavailable("the embedding model is not installed")


@pytest.fixture
async def tools_without_model(butler, memory, caller):
    """The tools of a butler without an embedding model."""
    server = build_tenant_server(butler, with_embedder(memory, BrokenEmbedder(NOT_INSTALLED)), caller.tenant)
    async with Client(server.mcp) as client:
        yield Tools(client, caller.tenant)


async def test_row_32_without_the_model_words_still_find_and_the_log_warns(
    tools_without_model, tools, memory, caplog
):
    fact, rule = await tools.fact("drinks green tea"), await tools.rule("Offer tea first")
    caplog.set_level(logging.WARNING, logger="butlers.memory")
    assert set(await tools_without_model.ids("memory_search", query="tea", mode="keyword")) == {fact, rule}
    assert caplog.records == []
    for mode in ("hybrid", "blended"):
        assert set(await tools_without_model.ids("memory_search", query="tea", mode=mode)) == {fact, rule}
    assert set(await tools_without_model.ids("memory_recall", topic="tea")) == {fact, rule}
    text = await tools_without_model("memory_context", trigger_prompt="tea", butler=memory.butler)
    assert "drinks green tea" in text
    warnings = [record.getMessage() for record in caplog.records if record.name == "butlers.memory"]
    assert warnings == ["searching by words alone: the embedding model is not installed"] * 4


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (NOT_INSTALLED, "the embedding model is not installed"),
        (TimeoutError(), "the embedding model is busy: no answer within 5 s"),
    ],
    ids=["missing", "busy"],
)
async def test_row_32_an_answer_by_words_alone_says_so_and_why(butler, memory, caller, tools, caplog, error, reason):
    await tools.fact("drinks green tea")
    caplog.set_level(logging.WARNING, logger="butlers.memory")
    server = build_tenant_server(butler, with_embedder(memory, BrokenEmbedder(error)), caller.tenant)
    note = f"Searched by words alone: {reason}. Memories in other words are missing from this answer."
    async with Client(server.mcp) as client:
        for query in ("tea", "no word of it"):
            result = await client.call_tool("memory_search", {"query": query})
            assert [block.text for block in result.content][-1] == note
            assert result.meta["notes"] == [note]
            assert len(result.structured_content["result"]) == (1 if query == "tea" else 0)
    assert {record.getMessage() for record in caplog.records} == {f"searching by words alone: {reason}"}


async def test_an_answer_by_meaning_has_no_notes(butler, memory, caller, tools):
    await tools.fact("drinks green tea")
    async with Client(build_tenant_server(butler, memory, caller.tenant).mcp) as client:
        result = await client.call_tool("memory_search", {"query": "tea"})
    assert not any("words alone" in block.text for block in result.content)
    assert "notes" not in (result.meta or {})


async def test_row_32_without_the_model_a_semantic_search_and_a_write_say_so(
    tools_without_model, tools, memory, archive
):
    await tools.fact("drinks green tea")
    before = await archive.everything(tools.tenant)
    for name, arguments in (
        ("memory_search", {"query": "tea", "mode": "semantic"}),
        ("memory_store_fact", {"subject": "s", "predicate": "p", "content": "c"}),
        ("memory_store_rule", {"content": "c"}),
        ("memory_store_episode", {"content": "c", "butler": memory.butler}),
        ("memory_store_batch", {"items": [{"type": "rule", "content": "c"}]}),
    ):
        message = await tools_without_model.refusal(name, **arguments)
        assert message == "unavailable: the embedding model is not installed. Retry in a few seconds."
    assert await archive.everything(tools.tenant) == before
    fact = (await tools_without_model("memory_search", query="tea"))[0]["id"]
    assert await tools_without_model("memory_confirm", type="fact", id=fact), "what needs no model works"


async def test_row_32_a_slow_model_is_waited_for_without_holding_a_connection(memory, caller, engine, archive):
    slow = with_embedder(memory, BrokenEmbedder(await engine.embed("tea"), seconds=0.5))
    calls = [
        asyncio.create_task(writing.store_rule(slow, caller, NewRule(content=f"tea {number}"), REQUEST))
        for number in range(30)
    ]
    await asyncio.sleep(0.25)
    usage = memory.database.usage()
    assert usage.idle == usage.size
    assert len({answer["id"] for answer in await asyncio.gather(*calls)}) == 30
    assert await archive.count("rules", caller.tenant) == 30


async def test_row_32_a_damaged_model_is_unavailable_and_nobody_waits_for_ever(tmp_path: Path, engine):
    folder = tmp_path / "models"
    damaged = EmbeddingEngine(folder)
    await engine.embed("made")
    (made,) = Path(engine._cache_folder).glob("*.onnx")
    folder.mkdir()
    (folder / made.name).write_bytes(b"no graph at all")
    results = await asyncio.gather(*(damaged.embed(f"text {n}") for n in range(5)), return_exceptions=True)
    assert all(isinstance(each, Unavailable) for each in results), results


async def test_a_text_becomes_384_numbers_and_a_blank_one_those_of_a_space(engine):
    """Scenario: Single text embedding"""
    vector = await engine.embed("tea")
    assert len(vector) == 384
    assert all(isinstance(each, float) for each in vector)
    blank = await engine.embed(" ")
    assert await engine.embed(None) == await engine.embed("") == await engine.embed("\n") == blank


async def test_a_batch_gives_one_vector_for_each_text(engine):
    """Scenario: Batch embedding"""
    vectors = await engine.embed_batch(["tea", "coffee", "tea", ""])
    assert [len(vector) for vector in vectors] == [384] * 4
    assert vectors[0] == vectors[2] != vectors[1]
    assert await engine.embed_batch([]) == []


async def test_the_engine_is_one_and_loaded_when_first_needed(tmp_path: Path, home: Path, engine):
    """Scenario: Lazy singleton initialization
    Scenario: Lazy embedding engine initialization
    """
    assert get_embedding_engine(home) is get_embedding_engine(home) is engine
    fresh = EmbeddingEngine(home / "models")
    assert fresh._model is None
    await asyncio.gather(*(fresh.embed(f"text {number}") for number in range(8)))
    loaded = fresh._model
    await fresh.embed("more")
    assert fresh._model is loaded is not None


def test_no_memory_is_written_or_read_without_a_tenant():
    for tenant in ("", " ", "a b", "*"):
        with pytest.raises(Exception, match="a tenant name is"):
            Caller(tenant=tenant, butler="b")


async def test_the_vector_index_serves_a_cosine_search(archive, tools):
    """Scenario: Vector similarity search uses index"""
    await tools.fact()
    (index,) = await archive.rows("select pg_get_indexdef('facts_embedding'::regclass) as definition")
    # Upkeep replaces the first index by a graph of halved vectors once other tests have filled the table.
    vector = "embedding::halfvec(384)" if "halfvec" in index["definition"] else "embedding"
    async with archive.connection.transaction():
        await archive.connection.execute("set local enable_seqscan = off; set local enable_sort = off")
        nearest = "select id from facts order by embedding <=> (select embedding from facts limit 1) limit 10"
        plan = await archive.rows("explain " + nearest.replace("embedding", vector))
    assert any("facts_embedding" in row["QUERY PLAN"] for row in plan), plan
