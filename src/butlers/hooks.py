"""The hooks of a Claude Code session: memories at its start, an episode at its end."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from butlers import app
from butlers.config import Configuration
from butlers.config_types import http_address
from butlers.environment import read_environment
from butlers.errors import Fault, InvalidInput, Unavailable
from butlers.host.session_summary import summarize_session

HOOK_TIMEOUT_SECONDS = 8.0
_HEADING = "# Memory Context"
_MAX_TRANSCRIPT_BYTES = 8 * 1024 * 1024
_MAX_PROMPTS = 5
_CONNECT_TIMEOUT_SECONDS, _HEALTH_TIMEOUT_SECONDS, _ANSWER_TIMEOUT_SECONDS = 0.5, 1.0, 5.0


async def session_start(folder: Path, event_json: str) -> str:
    """Return the hook output that adds this project's memories to a new session; empty without memories."""
    event = _parse_event(event_json)
    config = app.load_configuration(folder)
    project = Path(str(event.get("cwd") or ".")).name or "this project"
    arguments = {"trigger_prompt": f"Work in the project {project}", "butler": config.butler.name}
    async with asyncio.timeout(HOOK_TIMEOUT_SECONDS):
        block = await _call_tool(config, "memory_context", arguments, {})
    if not isinstance(block, str) or "\n- " not in block:
        return ""
    output = {"hookEventName": "SessionStart", "additionalContext": block.strip()}
    return json.dumps({"hookSpecificOutput": output})


async def session_end(folder: Path, event_json: str) -> bool:
    """Store the session as an episode; return False if it had no prompt."""
    event = _parse_event(event_json)
    transcript = await asyncio.to_thread(_read_transcript, Path(str(event.get("transcript_path") or "")))
    if not transcript.prompts:
        return False
    config = app.load_configuration(folder)
    session_id = str(UUID(str(event["session_id"])))
    prompts = " / ".join(transcript.prompts[:_MAX_PROMPTS])
    episode = {
        "content": summarize_session(prompts, transcript.tools, transcript.injected, answer=transcript.last),
        "butler": config.butler.name,
        "session_id": session_id,
        "idempotency_key": f"claude-code {session_id} {len(transcript.prompts)}",
    }
    details = {"outcome": str(event.get("reason") or "ended"), "trigger_source": "claude-code"}
    async with asyncio.timeout(HOOK_TIMEOUT_SECONDS):
        await _call_tool(config, "memory_store_episode", episode, details)
    return True


def _parse_event(event_json: str) -> dict[str, Any]:
    try:
        event = json.loads(event_json)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        raise InvalidInput("a hook expects its event as a JSON object on stdin")
    return event


@dataclass(slots=True)
class Transcript:
    """The parts of a transcript that an episode needs."""

    prompts: list[str] = field(default_factory=list)
    tools: Counter[str] = field(default_factory=Counter)
    last: str = ""
    injected: str = ""

    def add_entry(self, entry: Mapping[str, Any]) -> None:
        """Add one line of the transcript file."""
        message = entry.get("message")
        content = message.get("content") if isinstance(message, Mapping) else None
        content = [{"type": "text", "text": content}] if isinstance(content, str) else content
        parts = [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []
        texts = [text for part in parts if isinstance(text := part.get("text"), str) and text.strip()]
        if entry.get("type") == "user" and not entry.get("isMeta"):
            self.prompts += [text for text in texts if not text.lstrip().startswith("<")]
        elif entry.get("type") == "assistant":
            self.tools.update(str(part.get("name")) for part in parts if part.get("type") == "tool_use")
            self.last = "\n".join(texts) or self.last
        self.injected += "".join(_injected_context(entry))


def _injected_context(value: Any) -> Iterator[str]:
    """Yield the memories that were put into the session, from anywhere in a transcript entry."""
    if isinstance(value, str) and _HEADING in value:
        yield value[value.index(_HEADING) :] + "\n"
    elif isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _injected_context(item)


def _read_transcript(path: Path) -> Transcript:
    """Return the transcript, of a very long one the end; empty if the file can't be read."""
    transcript = Transcript()
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _MAX_TRANSCRIPT_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return transcript
    for line in lines:
        # A line that is not JSON, or nested too deeply, is left out; the others still count.
        with suppress(ValueError, RecursionError):
            entry = json.loads(line)
            if isinstance(entry, dict):
                transcript.add_entry(entry)
    return transcript


async def _call_tool(config: Configuration, tool: str, arguments: dict[str, Any], details: dict[str, str]) -> Any:
    """Return the answer of a tool, from the running butler, which is faster, or else in this process."""
    try:
        return await _call_over_http(config, tool, arguments)
    except Unavailable:
        return await _call_in_process(config, tool, arguments, details)


async def _call_over_http(config: Configuration, tool: str, arguments: dict[str, Any]) -> Any:
    """Return the answer of the running butler; raise `Unavailable` if it is not this one or needs a key."""
    import httpx2

    butler = config.butler
    if butler.auth.mode != "local" or not butler.port:
        raise Unavailable("the butler needs a key or has no fixed port")
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    headers = {"Accept": "application/json, text/event-stream"}
    base = http_address(butler.http.host, butler.port)
    timeout = httpx2.Timeout(_ANSWER_TIMEOUT_SECONDS, connect=_CONNECT_TIMEOUT_SECONDS)
    try:
        async with httpx2.AsyncClient(timeout=timeout, trust_env=False) as http:
            health = await http.get(f"{base}/health", timeout=_HEALTH_TIMEOUT_SECONDS)
            if health.json().get("butler") != butler.name:
                raise Unavailable("another butler listens there")
            answer = (await http.post(f"{base}/mcp", json=message, headers=headers)).json()["result"]
    except (httpx2.HTTPError, ValueError, KeyError, AttributeError):
        raise Unavailable("the butler is not running") from None
    if answer.get("isError"):
        raise Fault(str(answer["content"][0]["text"])[:300])
    content = answer.get("structuredContent") or {}
    return content.get("result", content)


async def _call_in_process(
    config: Configuration, tool: str, arguments: dict[str, Any], details: dict[str, str]
) -> Any:
    async with app.open_butler(config, read_environment()) as butler:
        caller = replace(butler.caller(actor="claude-code"), details=details)
        for module in butler.modules:
            for candidate in module.tools():
                if candidate.name == tool:
                    return await candidate.function(module.state, caller, **arguments)
    return None
