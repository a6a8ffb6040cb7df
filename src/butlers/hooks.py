"""The hooks of a Claude Code session: memories at its start, an episode at its end."""

import asyncio
import json
import logging
import os
import re
import stat
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from butlers import app, local_socket
from butlers.config import Configuration
from butlers.environment import read_environment
from butlers.errors import Fault, InvalidInput, Unavailable
from butlers.host.session_summary import summarize_session
from butlers.http_body import read_json_object
from butlers.prompt_text import escape_line, escape_lines

log = logging.getLogger("butlers.hooks")

HOOK_TIMEOUT_SECONDS = 8.0
# Shorter than connect._HOOK_TIMEOUT_SECONDS, after which Claude Code ends the hook without a word.
_EXIT_SECONDS = 9.0
_HEADING = "# Memory Context"
# How Claude Code puts the output of a hook into a message: in a reminder, after a label or without one.
_INJECTED_TEXT = re.compile(
    rf"\s*<system-reminder>\s*(?:SessionStart(?::[a-z]+)? hook [a-z ]+:\s*)?(?={re.escape(_HEADING)})"
)
_MAX_TRANSCRIPT_BYTES = 8 * 1024 * 1024
_MAX_PROMPTS = 5
_MAX_ANSWER_BYTES = 1024 * 1024
_MAX_ERROR_CHARACTERS = 300
_ACCEPT = "application/json, text/event-stream"
_CONNECT_TIMEOUT_SECONDS, _HEALTH_TIMEOUT_SECONDS, _ANSWER_TIMEOUT_SECONDS = 0.5, 1.0, 5.0


@contextmanager
def end_process_in_time(report: Callable[[str], None]) -> Iterator[None]:
    """End the process, with a report, if the block takes longer than a hook may.

    A thread that waits for a file lock or a program can't be cancelled, and Python waits for its threads.
    """

    def give_up() -> None:
        report(f"the hook took longer than {_EXIT_SECONDS:g} s")
        os._exit(0)

    timer = threading.Timer(_EXIT_SECONDS, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


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
    output = {"hookEventName": "SessionStart", "additionalContext": escape_lines(block).strip()}
    return json.dumps({"hookSpecificOutput": output})


async def session_end(folder: Path, event_json: str) -> bool:
    """Store the session as an episode; return False if it had no prompt."""
    event = _parse_event(event_json)
    path = Path(str(event.get("transcript_path") or ""))
    async with asyncio.timeout(HOOK_TIMEOUT_SECONDS):
        transcript = await asyncio.to_thread(_read_transcript, path)
        return bool(transcript.prompts) and await _store_episode(folder, event, transcript)


async def _store_episode(folder: Path, event: Mapping[str, Any], transcript: "Transcript") -> bool:
    config = app.load_configuration(folder)
    session_id = str(UUID(str(event["session_id"])))
    prompts = " / ".join(transcript.prompts[:_MAX_PROMPTS])
    episode = {
        "content": summarize_session(
            prompts, transcript.tools, "\n".join(transcript.injected), answer=transcript.last
        ),
        "butler": config.butler.name,
        "session_id": session_id,
        "idempotency_key": f"claude-code {session_id} {len(transcript.prompts)}",
    }
    details = {"outcome": str(event.get("reason") or "ended"), "trigger_source": "claude-code"}
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
    injected: list[str] = field(default_factory=list)
    context_calls: set[str] = field(default_factory=set)
    """The ids of the session's own calls of memory_context."""

    def add_entry(self, entry: Mapping[str, Any]) -> None:
        """Add one line of the transcript file."""
        message = entry.get("message")
        parts = _parts(message.get("content")) if isinstance(message, Mapping) else []
        texts = _texts(parts)
        if entry.get("type") == "user" and not entry.get("isMeta"):
            self.prompts += [text for text in texts if not text.lstrip().startswith("<")]
        elif entry.get("type") == "assistant":
            calls = [part for part in parts if part.get("type") == "tool_use"]
            self.tools.update(str(part.get("name")) for part in calls)
            self.context_calls.update(str(part.get("id")) for part in calls if _is_memory_context(part))
            self.last = "\n".join(texts) or self.last
        self.injected += self._injected_blocks(entry, parts)

    def _injected_blocks(self, entry: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        """Yield the memories that were put into the session; a file, a page or an output can't pass for them."""
        attachment = entry.get("attachment")
        texts = []
        if isinstance(attachment, Mapping) and attachment.get("type") == "hook_additional_context":
            texts = _texts(_parts(attachment.get("content")))
        elif entry.get("type") == "user":
            texts = [text for text in _texts(parts) if _INJECTED_TEXT.match(text)]
            for part in parts:
                if part.get("type") == "tool_result" and str(part.get("tool_use_id")) in self.context_calls:
                    texts += _texts(_parts(part.get("content")))
        for text in texts:
            if (start := text.find(_HEADING)) >= 0:
                yield text[start:]


def _parts(content: Any) -> list[Mapping[str, Any]]:
    """The parts of a content, which is a text or a list of texts and parts."""
    items = [content] if isinstance(content, str) else content if isinstance(content, list) else []
    parts = [{"type": "text", "text": item} if isinstance(item, str) else item for item in items]
    return [part for part in parts if isinstance(part, Mapping)]


def _texts(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    return [text for part in parts if isinstance(text := part.get("text"), str) and text.strip()]


def _is_memory_context(call: Mapping[str, Any]) -> bool:
    return str(call.get("name")).endswith("memory_context")


def _read_transcript(path: Path) -> Transcript:
    """Return the transcript, of a very long one the end; empty unless it is a file that can be read."""
    transcript = Transcript()
    try:
        # Without waiting for a writer: the path may be that of a pipe.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return transcript
            file.seek(max(0, status.st_size - _MAX_TRANSCRIPT_BYTES))
            lines = file.read(_MAX_TRANSCRIPT_BYTES).decode("utf-8", "replace").split("\n")
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
        path = local_socket.find_socket(read_environment().home, config.folder)
    except Unavailable as fault:
        log.warning("the running butler is not asked: %s. %s", fault.message, fault.hint)
        path = None
    if path is not None:
        with suppress(Unavailable):
            return await _call_running_butler(path, config.butler.name, tool, arguments)
    return await _call_in_process(config, tool, arguments, details)


async def _call_running_butler(path: Path, butler: str, tool: str, arguments: dict[str, Any]) -> Any:
    """Return the answer of the butler at a socket; raise `Unavailable` if it is another one or can't answer.

    Only this user can listen at the socket. A port is no proof: any process can listen there and give any name.
    """
    import httpx2

    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    transport = httpx2.AsyncHTTPTransport(uds=str(path))
    timeout = httpx2.Timeout(_ANSWER_TIMEOUT_SECONDS, connect=_CONNECT_TIMEOUT_SECONDS)
    try:
        async with httpx2.AsyncClient(transport=transport, timeout=timeout, base_url="http://localhost") as http:
            async with http.stream("GET", "/health", timeout=_HEALTH_TIMEOUT_SECONDS) as response:
                health = await read_json_object(response, _MAX_ANSWER_BYTES)
            if health is None or health.get("butler") != butler:
                raise Unavailable("another butler listens there")
            async with http.stream("POST", "/mcp", json=message, headers={"Accept": _ACCEPT}) as response:
                answer = await read_json_object(response, _MAX_ANSWER_BYTES)
    except httpx2.HTTPError:
        raise Unavailable("the butler is not running") from None
    return _tool_result(answer or {})


def _tool_result(answer: Mapping[str, Any]) -> Any:
    """Return the result of a tool call; raise the tool's error as a `Fault`, or `Unavailable` without a result."""
    result = answer.get("result")
    if not isinstance(result, Mapping):
        raise Unavailable("the answer has no result")
    if result.get("isError"):
        raise Fault(escape_line(" ".join(_texts(_parts(result.get("content"))))[:_MAX_ERROR_CHARACTERS]))
    content = result.get("structuredContent")
    return content.get("result", content) if isinstance(content, Mapping) else None


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
