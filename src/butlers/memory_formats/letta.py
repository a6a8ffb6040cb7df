"""Reader of Letta's agent files: memory blocks as facts and rules, messages as one episode for each agent."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from butlers.memory_formats.conversations import conversation_episode
from butlers.memory_formats.json_items import MAX_ITEM_BYTES, InvalidJson, parse_json
from butlers.memory_formats.records import ForeignFact, ForeignRecord, ForeignRule, LeftOut, Problem
from butlers.memory_formats.source import Source, SourceFile
from butlers.memory_formats.values import moment, objects, slug, text, texts

_RULE_LABELS = {"persona", "system", "instructions", "guidelines", "policies"}
_LINE_BREAK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*+]|\d+[.)])\s)|\n")
_BULLET = re.compile(r"\A\s*(?:[-*+]|\d+[.)])\s+")
_MARKS = (b"core_memory", b"block_ids", b"llm_config")


def is_letta(source: Source) -> bool:
    """Return whether a file is an agent file."""
    return source.name.endswith(".af") or sum(mark in source.head for mark in _MARKS) > 1


def read_letta(source: Source) -> Iterator[ForeignRecord]:
    """Yield the memories of the agents; tools, models and environment variables are not looked at."""
    for file in source.files("*.af", "*.json"):
        values = _parse(file)
        if isinstance(values, Problem):
            yield values
            continue
        agents = list(objects(values.get("agents"))) or [values]
        blocks = [
            *objects(values.get("blocks")),
            *(each for one in agents for each in objects(one.get("core_memory"))),
        ]
        agent = text(agents[0].get("name")) or file.name
        for block in blocks:
            yield from _read_block(block, agent)
        for each in agents:
            yield from _read_messages(each, agent)


def _parse(file: SourceFile) -> Mapping[str, Any] | Problem:
    """Return the document; some files hold it as a JSON text in JSON."""
    with file.open() as document:
        raw = document.read(MAX_ITEM_BYTES + 1)
    if len(raw) > MAX_ITEM_BYTES:
        return Problem(file.name, f"it is longer than {MAX_ITEM_BYTES:,} bytes")
    try:
        values = parse_json(raw)
        values = parse_json(values.encode("utf-8", "replace")) if isinstance(values, str) else values
    except InvalidJson as error:
        return Problem(file.name, str(error))
    return values if isinstance(values, Mapping) else Problem(file.name, "it is no agent file")


def _read_block(block: Mapping[str, Any], agent: str) -> Iterator[ForeignRecord]:
    label, value = text(block.get("label")) or "note", text(block.get("value"))
    if not value:
        yield LeftOut("an empty memory block")
        return
    tags = texts(block.get("tags"))
    metadata = {"label": label, "agent": agent}
    if label.lower() in _RULE_LABELS:
        yield ForeignRule(
            id=f"{agent}\n{label}\n{value}", content=value, tags=tags, metadata=metadata, is_persona=True
        )
        return
    for line in _LINE_BREAK.split(value):
        if content := _BULLET.sub("", line).strip():
            yield ForeignFact(
                id=f"{agent}\n{label}\n{content}",
                subject="user" if label.lower() == "human" else label,
                predicate=slug(label),
                content=content,
                tags=tags,
                metadata=metadata,
            )


def _read_messages(agent: Mapping[str, Any], name: str) -> Iterator[ForeignRecord]:
    messages = [
        (role, said)
        for message in objects(agent.get("messages"))
        if (role := text(message.get("role"))) in {"user", "assistant"} and (said := _said(message.get("content")))
    ]
    if messages:
        times = [moment(message.get("created_at")) for message in objects(agent.get("messages"))]
        known = [each for each in times if each]
        yield conversation_episode(
            f"{name}\nmessages\n{len(messages)}",
            text(agent.get("name")),
            messages,
            created_at=min(known, default=None),
            updated_at=max(known, default=None),
        )


def _said(content: Any) -> str:
    if isinstance(content, str):
        return content.strip()
    return "\n".join(text(part.get("text")) for part in objects(content) if part.get("type") == "text").strip()
