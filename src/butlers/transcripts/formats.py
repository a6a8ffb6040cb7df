"""The transcript formats of the agents: what one entry says, and what an agent puts around a prompt."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from butlers.transcripts.transcript import HEADING, Piece

Entry = Mapping[str, Any]
EntryReader = Callable[[Entry], Iterator[Piece]]
PromptReader = Callable[[str], Iterator[Piece]]

# How Claude Code puts the output of a hook into a message: in a reminder, after a label or without one.
_REMINDER = re.compile(
    rf"\s*<system-reminder>\s*(?:SessionStart(?::[a-z]+)? hook [a-z ]+:\s*)?(?={re.escape(HEADING)})"
)
_HOOK_CONTEXT = re.compile(r"\s*<hook_context>(.*?)</hook_context>\s*", re.DOTALL)
_QUERY_START, _QUERY_END = "<user_query>", "</user_query>"


def _claude_entry(entry: Entry) -> Iterator[Piece]:
    """Yield the pieces of an entry of Claude Code."""
    attachment = entry.get("attachment")
    if isinstance(attachment, Mapping) and attachment.get("type") == "hook_additional_context":
        yield from (Piece("context", text) for text in _texts(_parts(attachment.get("content"))))
    is_own = any(entry.get(mark) for mark in ("isMeta", "isSidechain", "isCompactSummary"))
    for piece in _message(str(entry.get("type")), entry.get("message"), _claude_prompt):
        # A text of Claude Code itself or of a subagent is no prompt and no answer, but may show memories.
        if not is_own or piece.kind == "context":
            yield piece


def _cursor_entry(entry: Entry) -> Iterator[Piece]:
    """Yield the pieces of an entry of Cursor."""
    yield from _message(str(entry.get("role")), entry.get("message"), _cursor_prompt)


def _message(role: str, message: Any, prompt: PromptReader) -> Iterator[Piece]:
    """Yield the pieces of a message whose content has the parts of the Anthropic API."""
    parts = _parts(message.get("content")) if isinstance(message, Mapping) else []
    if role == "user":
        for text in _texts(parts):
            yield from prompt(text)
        yield from (_result(part) for part in parts if part.get("type") == "tool_result")
    elif role == "assistant":
        calls = [part for part in parts if part.get("type") == "tool_use"]
        yield from (Piece("call", str(call.get("name")), str(call.get("id"))) for call in calls)
        yield from _answer(_texts(parts))


def _result(part: Mapping[str, Any]) -> Piece:
    return Piece("result", "\n".join(_texts(_parts(part.get("content")))), str(part.get("tool_use_id")))


def _codex_entry(entry: Entry) -> Iterator[Piece]:
    """Yield the pieces of an entry of Codex."""
    item = entry.get("payload")
    if entry.get("type") != "response_item" or not isinstance(item, Mapping):
        return
    kind, call = item.get("type"), str(item.get("call_id"))
    if kind == "message":
        texts = _texts(_parts(item.get("content")))
        yield from _codex_message(item.get("role"), texts)
    elif kind in {"function_call", "custom_tool_call"}:
        yield Piece("call", str(item.get("name")), call)
    elif kind in {"function_call_output", "custom_tool_call_output"}:
        yield Piece("result", _output_text(item.get("output")), call)


def _codex_message(role: Any, texts: Sequence[str]) -> Iterator[Piece]:
    if role == "user":
        for text in texts:
            yield from _prompt(text)
    elif role == "assistant":
        yield from _answer(texts)
    elif role == "developer":
        yield from (Piece("context", text) for text in texts if text.lstrip().startswith(HEADING))


def _gemini_entry(entry: Entry) -> Iterator[Piece]:
    """Yield the pieces of an entry of Gemini CLI."""
    changed, kind = entry.get("$set"), entry.get("type")
    if "$rewindTo" in entry:
        yield Piece("rewind", id=str(entry["$rewindTo"]))
    elif isinstance(changed, Mapping) and isinstance(messages := changed.get("messages"), list):
        yield Piece("restart")
        for message in messages:
            if isinstance(message, Mapping) and "$set" not in message:
                yield from _gemini_entry(message)
    elif kind == "user":
        yield from _gemini_user(entry)
    elif kind == "gemini":
        yield from _gemini_calls(entry.get("toolCalls"))
        yield from _answer(_texts(_parts(entry.get("content"))))


def _gemini_user(entry: Entry) -> Iterator[Piece]:
    """Yield the prompt as its user sees it; the content also has memories and the text of files."""
    pieces = [piece for text in _texts(_parts(entry.get("content"))) for piece in _gemini_prompt(text)]
    yield from (piece for piece in pieces if piece.kind == "context")
    shown = _texts(_parts(entry.get("displayContent"))) or [piece.text for piece in pieces if piece.kind == "prompt"]
    for text in shown:
        yield from _prompt(text, str(entry.get("id")))


def _gemini_calls(calls: Any) -> Iterator[Piece]:
    for call in calls if isinstance(calls, list) else []:
        if isinstance(call, Mapping):
            yield Piece("call", str(call.get("name")), str(call.get("id")))
            yield Piece("result", _output_text(call.get("result")), str(call.get("id")))


def _copilot_entry(entry: Entry) -> Iterator[Piece]:
    """Yield the pieces of an entry of GitHub Copilot in VS Code."""
    data, kind = entry.get("data"), entry.get("type")
    if not isinstance(data, Mapping):
        return
    if kind == "user.message":
        for text in _texts(_parts(data.get("content"))):
            yield from _prompt(text)
    elif kind == "assistant.message":
        yield from _answer(_texts(_parts(data.get("content"))))
    elif kind == "tool.execution_start":
        yield Piece("call", str(data.get("toolName")), str(data.get("toolCallId")))
    elif kind == "tool.execution_complete":
        yield Piece("result", _output_text(data.get("result")), str(data.get("toolCallId")))


def _opencode_entry(entry: Entry) -> Iterator[Piece]:
    """Yield the pieces of a message of OpenCode."""
    info, parts = entry.get("info"), _parts(entry.get("parts"))
    role = info.get("role") if isinstance(info, Mapping) else None
    texts = _texts([part for part in parts if part.get("type") == "text" and not part.get("synthetic")])
    if role == "user":
        for text in texts:
            yield from _prompt(text)
    elif role == "assistant":
        for part in parts:
            if part.get("type") == "tool":
                yield Piece("call", str(part.get("tool")), str(part.get("callID")))
                yield Piece("result", _output_text(part.get("state")), str(part.get("callID")))
        yield from _answer(texts)


def _prompt(text: str, id_: str = "") -> Iterator[Piece]:
    """Yield a prompt; a text that begins with a tag comes from the agent, not from its user."""
    if text.strip() and not text.lstrip().startswith("<"):
        yield Piece("prompt", text, id_)


def _claude_prompt(text: str) -> Iterator[Piece]:
    if _REMINDER.match(text):
        yield Piece("context", text)
    yield from _prompt(text)


def _gemini_prompt(text: str) -> Iterator[Piece]:
    start = 0
    while injected := _HOOK_CONTEXT.match(text, start):
        yield Piece("context", injected[1])
        start = injected.end()
    yield from _prompt(text[start:])


def _cursor_prompt(text: str) -> Iterator[Piece]:
    start, query = text.find(_QUERY_START), text.rstrip()
    if start >= 0 and query.endswith(_QUERY_END):
        text = query[start + len(_QUERY_START) : -len(_QUERY_END)].strip()
    yield from _prompt(text)


def _answer(texts: Sequence[str]) -> Iterator[Piece]:
    if texts:
        yield Piece("answer", "\n".join(texts))


def _parts(content: Any) -> list[Mapping[str, Any]]:
    """Return the parts of a content, which is a text or a list of texts and parts."""
    items = [content] if isinstance(content, str) else content if isinstance(content, list) else []
    parts = [{"type": "text", "text": item} if isinstance(item, str) else item for item in items]
    return [part for part in parts if isinstance(part, Mapping)]


def _texts(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    return [text for part in parts if isinstance(text := part.get("text"), str) and text.strip()]


_OUTPUT_KEYS = ("output", "text", "content", "result", "response", "functionResponse")
_MAX_OUTPUT_DEPTH = 8


def _output_text(output: Any, depth: int = 0) -> str:
    """Return the texts of a tool's output, which each agent wraps in its own way."""
    if isinstance(output, str):
        return output
    if depth == _MAX_OUTPUT_DEPTH:
        return ""
    inner = output if isinstance(output, list) else []
    if isinstance(output, Mapping):
        inner = [output[key] for key in _OUTPUT_KEYS if key in output]
    return "\n".join(text for item in inner if (text := _output_text(item, depth + 1)))


@dataclass(frozen=True, slots=True)
class Format:
    """How one agent writes its transcripts."""

    read_entry: EntryReader
    read_prompt: PromptReader = _prompt


FORMATS: Mapping[str, Format] = {
    "claude": Format(_claude_entry, _claude_prompt),
    "codex": Format(_codex_entry),
    "copilot": Format(_copilot_entry),
    "cursor": Format(_cursor_entry, _cursor_prompt),
    "gemini": Format(_gemini_entry, _gemini_prompt),
    "opencode": Format(_opencode_entry),
}
