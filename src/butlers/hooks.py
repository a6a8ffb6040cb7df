"""The hooks around a session of Claude Code: memories in at its start, an episode out at its end."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from butlers import app
from butlers.caller import Caller
from butlers.config import Configuration
from butlers.config_types import http_address
from butlers.environment import read_environment
from butlers.errors import Fault, InvalidInput, Unavailable
from butlers.host.session_summary import summarize_session

HOOK_TIMEOUT_SECONDS = 8.0
_HEADING = "# Memory Context"
_MAX_TRANSCRIPT_BYTES = 8 * 1024 * 1024
_MAX_PROMPTS = 5
_CONNECT_SECONDS, _HEALTH_SECONDS, _ANSWER_SECONDS = 0.5, 1.0, 5.0


async def session_start(folder: Path, told: str) -> str:
    """What Claude Code adds to a session that begins: the memories that matter in this project, or nothing."""
    event = _parse_event(told)
    config = app.load_configuration(folder)
    place = Path(str(event.get("cwd") or ".")).name or "this project"
    asked = {"trigger_prompt": f"Work in the project {place}", "butler": config.butler.name}
    async with asyncio.timeout(HOOK_TIMEOUT_SECONDS):
        block = await _call_tool(config, "memory_context", asked, {})
    if not isinstance(block, str) or "\n- " not in block:
        return ""
    output = {"hookEventName": "SessionStart", "additionalContext": block.strip()}
    return json.dumps({"hookSpecificOutput": output})


async def session_end(folder: Path, told: str) -> bool:
    """Keep what happened in a session that ends; whether there was anything."""
    event = _parse_event(told)
    talk = await asyncio.to_thread(_read_transcript, Path(str(event.get("transcript_path") or "")))
    if not talk.prompts:
        return False
    config = app.load_configuration(folder)
    session_id = str(UUID(str(event["session_id"])))
    asked = " / ".join(talk.prompts[:_MAX_PROMPTS])
    episode = {
        "content": summarize_session(asked, talk.tools, talk.injected, answer=talk.last),
        "butler": config.butler.name,
        "session_id": session_id,
        "idempotency_key": f"claude-code {session_id} {len(talk.prompts)}",
    }
    details = {"outcome": str(event.get("reason") or "ended"), "trigger_source": "claude-code"}
    async with asyncio.timeout(HOOK_TIMEOUT_SECONDS):
        await _call_tool(config, "memory_store_episode", episode, details)
    return True


def _parse_event(told: str) -> dict[str, Any]:
    try:
        event = json.loads(told)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise InvalidInput("a hook is told of its session as a JSON object on stdin")
    return event


@dataclass(slots=True)
class Transcript:
    """What a transcript says: what was asked, which tools were called, the last words, and what memory brought in."""

    prompts: list[str] = field(default_factory=list)
    tools: Counter[str] = field(default_factory=Counter)
    last: str = ""
    injected: str = ""

    def add_entry(self, entry: Mapping[str, Any]) -> None:
        """Take in one line of a transcript."""
        message = entry.get("message")
        content = message.get("content") if isinstance(message, Mapping) else None
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        texts = [text for part in _content_parts(parts) if isinstance(text := part.get("text"), str) and text.strip()]
        if entry.get("type") == "user" and not entry.get("isMeta"):
            self.prompts += [text for text in texts if not text.lstrip().startswith("<")]
        elif entry.get("type") == "assistant":
            self.tools.update(
                str(part.get("name")) for part in _content_parts(parts) if part.get("type") == "tool_use"
            )
            self.last = "\n".join(texts) or self.last
        self.injected += "".join(_injected_context(entry))


def _content_parts(content: Any) -> Iterator[Mapping[str, Any]]:
    for part in content if isinstance(content, list) else ():
        if isinstance(part, Mapping):
            yield part


def _injected_context(value: Any) -> Iterator[str]:
    """What memory put into a session, wherever the transcript keeps it."""
    if isinstance(value, str) and _HEADING in value:
        yield value[value.index(_HEADING) :] + "\n"
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _injected_context(each)
    elif isinstance(value, list):
        for each in value:
            yield from _injected_context(each)


def _read_transcript(path: Path) -> Transcript:
    """A transcript, of a very long one its end; one that is not there says nothing."""
    talk = Transcript()
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _MAX_TRANSCRIPT_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return talk
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            talk.add_entry(entry)
    return talk


async def _call_tool(config: Configuration, tool: str, arguments: dict[str, Any], details: dict[str, str]) -> Any:
    """What a tool of the butler answers: of the one that runs, which is quick, or of its database directly."""
    try:
        return await _call_over_http(config, tool, arguments)
    except Unavailable:
        return await _call_in_process(config, tool, arguments, details)


async def _call_over_http(config: Configuration, tool: str, arguments: dict[str, Any]) -> Any:
    """The answer of the butler that runs, if it is this one and lets us in."""
    import httpx2

    butler = config.butler
    if butler.auth.mode != "local" or not butler.port:
        raise Unavailable("a butler that asks for a key is reached by its database")
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    headers = {"Accept": "application/json, text/event-stream"}
    base = http_address(butler.http.host, butler.port)
    timeout = httpx2.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS)
    try:
        async with httpx2.AsyncClient(timeout=timeout, trust_env=False) as http:
            health = await http.get(f"{base}/health", timeout=_HEALTH_SECONDS)
            if health.json().get("butler") != butler.name:
                raise Unavailable("another butler listens there")
            answer = (await http.post(f"{base}/mcp", json=message, headers=headers)).json()["result"]
    except (httpx2.HTTPError, ValueError, KeyError, AttributeError):
        raise Unavailable("the butler is not running") from None
    if answer.get("isError"):
        raise Fault(str(answer["content"][0]["text"])[:300])
    said = answer.get("structuredContent") or {}
    return said.get("result", said)


async def _call_in_process(
    config: Configuration, tool: str, arguments: dict[str, Any], details: dict[str, str]
) -> Any:
    async with app.open_butler(config, read_environment()) as butler:
        for module in butler.modules:
            for each in module.tools():
                if each.name == tool:
                    who = Caller(
                        tenant=config.butler.auth.tenant,
                        butler=config.butler.name,
                        actor="claude-code",
                        details=details,
                    )
                    return await each.function(module.state, who, **arguments)
    return None
