"""Model servers for tests: HTTP servers on loopback that answer by a script and record the requests."""

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastmcp import Client

from butlers.caller import Caller
from butlers.db import Database


@dataclass(frozen=True)
class RecordedRequest:
    """A recorded request."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]

    @property
    def tools(self) -> list[str]:
        """The names of the offered tools, in either API."""
        return [tool.get("function", tool)["name"] for tool in self.body.get("tools", [])]

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages of the conversation."""
        messages: list[dict[str, Any]] = self.body["messages"]
        return messages

    @property
    def prompt(self) -> str:
        """The text of all user messages, in either API."""
        return "\n".join(_text(message["content"]) for message in self.messages if message["role"] == "user")

    @property
    def system(self) -> str:
        """The text of the system prompt, in either API."""
        contents = [message["content"] for message in self.messages if message["role"] == "system"]
        return "\n".join(_text(content) for content in (self.body.get("system", []), *contents))


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content)


@dataclass(frozen=True)
class Reply:
    """An answer, sent after some seconds and cut after some bytes."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    cut_after: int | None = None


Script = Sequence[Reply] | Callable[[RecordedRequest], Reply]


@dataclass
class Model:
    """A running model server. A list of replies is sent in order, and its last reply is repeated."""

    script: Script
    path: str
    asked: list[RecordedRequest] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request and close the connection."""
        try:
            request = await _read_request(reader)
            reply = self._reply(request) if self.path in {"*", request.path.split("?")[0]} else Reply(status=404)
            await asyncio.sleep(reply.seconds)
            await _send(writer, reply)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has closed the connection
        finally:
            writer.close()

    def _reply(self, request: RecordedRequest) -> Reply:
        self.asked.append(request)
        if callable(self.script):
            return self.script(request)
        return self.script[min(len(self.asked), len(self.script)) - 1]


async def _read_request(reader: asyncio.StreamReader) -> RecordedRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return RecordedRequest(first.split(" ")[1], headers, json.loads(body or b"{}"))


async def _send(writer: asyncio.StreamWriter, reply: Reply) -> None:
    headers = {"Content-Length": str(len(reply.body)), "Connection": "close", **reply.headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f"HTTP/1.1 {reply.status} Reply\r\n{lines}\r\n".encode("latin-1"))
    writer.write(reply.body[: reply.cut_after])
    await writer.drain()


@asynccontextmanager
async def _listening(model: Model, socket: Path | None = None) -> AsyncIterator[Model]:
    connections: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(model.handle(reader, writer))
        connections.add(task)
        task.add_done_callback(connections.discard)

    if socket is None:
        server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=1 << 20)
        model.port = server.sockets[0].getsockname()[1]
    else:
        server = await asyncio.start_unix_server(accept, socket, limit=1 << 20)
    try:
        yield model
    finally:
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


def chat(script: Script) -> AbstractAsyncContextManager[Model]:
    """A server with the chat completions API."""
    return _listening(Model(script, "/v1/chat/completions"))


def messages(script: Script) -> AbstractAsyncContextManager[Model]:
    """A server with the messages API, which the Claude CLI uses."""
    return _listening(Model(script, "/v1/messages"))


def anything(script: Script, socket: Path | None = None) -> AbstractAsyncContextManager[Model]:
    """A server that answers requests to any path, on a port or on a Unix socket."""
    return _listening(Model(script, "*"), socket)


def as_json(content: Any, **options: Any) -> Reply:
    """A reply with JSON content."""
    return Reply(json.dumps(content).encode(), headers={"Content-Type": "application/json"}, **options)


def completion(message: Mapping[str, Any], taken: int = 11, given: int = 7, **options: Any) -> Reply:
    """A chat completion with that message."""
    usage = {"prompt_tokens": taken, "completion_tokens": given, "total_tokens": taken + given}
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return as_json({"id": "chatcmpl-1", "object": "chat.completion", "choices": [choice], "usage": usage}, **options)


def talks(text: Any, **options: Any) -> Reply:
    """A chat completion with that text."""
    return completion({"content": text}, **options)


def calls(*wanted: tuple[str, Any], **options: Any) -> Reply:
    """A chat completion that calls tools; arguments that are not text become JSON."""
    tool_calls = [
        {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)},
        }
        for number, (name, given) in enumerate(wanted)
    ]
    return completion({"content": None, "tool_calls": tool_calls}, **options)


def writes(text: str, taken: int = 23, given: int = 5) -> Reply:
    """The events of a message with that text."""
    return _streamed({"type": "text", "text": ""}, {"type": "text_delta", "text": text}, "end_turn", taken, given)


def uses(tool: str, given: Mapping[str, Any], taken: int = 23, number: int = 5) -> Reply:
    """The events of a message that uses a tool."""
    block = {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex}", "name": tool, "input": {}}
    delta = {"type": "input_json_delta", "partial_json": json.dumps(given)}
    return _streamed(block, delta, "tool_use", taken, number)


def refuses(status: int, kind: str, text: str) -> Reply:
    """An error of the messages API that tells the CLI not to retry."""
    body = {"type": "error", "error": {"type": kind, "message": text}}
    headers = {"Content-Type": "application/json", "x-should-retry": "false"}
    return Reply(json.dumps(body).encode(), status, headers)


def _streamed(block: Mapping[str, Any], delta: Mapping[str, Any], reason: str, taken: int, given: int) -> Reply:
    usage = {
        "input_tokens": taken,
        "cache_creation_input_tokens": 2,
        "cache_read_input_tokens": 3,
        "output_tokens": 1,
    }
    message: dict[str, Any] = {
        "id": f"msg_{uuid.uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "model": "test-model",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": {"output_tokens": given},
        },
        {"type": "message_stop"},
    ]
    body = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events)
    return Reply(body.encode(), headers={"Content-Type": "text/event-stream"})


def lessons(prompt: str) -> str:
    """The answer to a consolidation prompt: one fact for each episode, and one rule for all of them."""
    episodes = re.findall(r'<episode id="([0-9a-f-]{36})"', prompt)
    facts = [
        {
            "subject": "user",
            "predicate": f"likes_{number}",
            "content": f"tea number {number}",
            "permanence": "stable",
            "importance": 7,
            "evidence": [episode],
        }
        for number, episode in enumerate(episodes)
    ]
    rule = {"content": "Offer tea before anything else", "evidence": episodes}
    learned = {"new_facts": facts, "updated_facts": [], "new_rules": [rule], "confirmations": []}
    return f"This is what I learned.\n\n```json\n{json.dumps(learned)}\n```\n"


async def remembered(database: Database, caller: Caller) -> dict[str, list[dict[str, Any]]]:
    """The rows of a tenant in the tables that sessions and consolidation write."""
    queries = {
        "facts": "select predicate, content, source_butler, validity from facts order by predicate",
        "rules": "select content, source_butler from rules",
        "links": "select source_type, relation, target_type, count(*) as links from memory_links group by 1, 2, 3"
        " order by 1",
        "episodes": "select content, consolidation_status as status, lease_token from episodes order by content",
        "runs": "select status, episodes, facts_created, rules_created, input_tokens, output_tokens,"
        " tokens_estimated, error, session_id from consolidation_runs",
        "sessions": "select id, status, runtime, trigger_source, internal, prompt, usage, error from sessions",
    }
    async with database.transaction(caller) as tx:
        return {name: [dict(row) for row in await tx.fetch(statement)] for name, statement in queries.items()}


async def assert_consolidates(site: Any, tenant: str, *, runtime: str, taken: int, given: int) -> None:
    """Consolidate two episodes with a model that answers with `lessons`; check facts, rules, links and counts."""
    async with Client(site.mcp) as client:
        butler = site.server.config.name
        for content in ("She asked for green tea.", "She asked for black tea."):
            await client.call_tool("memory_store_episode", {"content": content, "butler": butler})
        result = (await client.call_tool("memory_run_consolidation", {})).structured_content or {}
    stored = await remembered(site.server.database, Caller(tenant=tenant, butler=butler, actor="a test"))
    assert (result["status"], result["episodes"], result["facts_created"], result["rules_created"]) == (
        "finished",
        2,
        2,
        1,
    )
    assert result["tokens"] == {"input": taken, "output": given, "estimated": False}
    assert result["errors"] == []
    assert stored["facts"] == [
        {"predicate": f"likes_{n}", "content": f"tea number {n}", "source_butler": butler, "validity": "active"}
        for n in range(2)
    ]
    assert stored["rules"] == [{"content": "Offer tea before anything else", "source_butler": butler}]
    assert stored["links"] == [
        {"source_type": "fact", "relation": "derived_from", "target_type": "episode", "links": 2},
        {"source_type": "rule", "relation": "derived_from", "target_type": "episode", "links": 2},
    ]
    assert [(episode["status"], episode["lease_token"]) for episode in stored["episodes"]] == [
        ("consolidated", None)
    ] * 2
    (run,), (session,) = stored["runs"], stored["sessions"]
    assert (run["status"], run["episodes"], run["facts_created"], run["rules_created"]) == ("succeeded", 2, 2, 1)
    assert (run["input_tokens"], run["output_tokens"], run["tokens_estimated"]) == (taken, given, False)
    assert (run["session_id"], run["error"]) == (session["id"], None)
    assert (session["status"], session["runtime"], session["internal"]) == ("succeeded", runtime, True)
    assert (session["trigger_source"], session["error"]) == ("schedule:consolidation", None)
    assert session["usage"] == {"input_tokens": taken, "output_tokens": given}
    assert session["prompt"] == "", "the prompt contains memories"
