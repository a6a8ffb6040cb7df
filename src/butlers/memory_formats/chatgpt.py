"""Reader of a ChatGPT export: conversations as episodes, custom instructions as rules, saved memories as facts."""

from collections.abc import Iterator, Mapping
from typing import Any

from butlers.memory_formats.conversations import conversation_episode
from butlers.memory_formats.documents import json_values
from butlers.memory_formats.records import ForeignFact, ForeignRecord, ForeignRule, Problem
from butlers.memory_formats.source import Source
from butlers.memory_formats.values import mapping, moment, text

_ROLES = {"user", "assistant"}
_TEXT_TYPES = {"text", "multimodal_text"}
_FILES = ("conversations.json", "conversations-*.json")


def is_chatgpt(source: Source) -> bool:
    """Return whether the conversations are trees of messages."""
    return any(b'"mapping"' in file.head() for file in source.files(*_FILES))


def read_chatgpt(source: Source) -> Iterator[ForeignRecord]:
    """Yield the memories of every conversation."""
    for item in json_values(source, *_FILES):
        if isinstance(item, Problem):
            yield item
        else:
            yield from _read_conversation(mapping(item.value), item.place)


def _read_conversation(values: Mapping[str, Any], place: str) -> Iterator[ForeignRecord]:
    nodes = values.get("mapping")
    id_ = text(values.get("conversation_id")) or text(values.get("id"))
    if not isinstance(nodes, Mapping) or not id_:
        yield Problem(place, "a conversation needs an id and a mapping")
        return
    messages: list[tuple[str, str]] = []
    for message in _current_branch(nodes, values.get("current_node")):
        role, content = text(mapping(message.get("author")).get("role")), mapping(message.get("content"))
        if role == "assistant" and message.get("recipient") == "bio":
            yield from _saved_memory(message)
        elif content.get("content_type") == "user_editable_context":
            yield from _custom_instructions(content)
        elif role in _ROLES and _is_shown(message) and (said := _said(message)):
            messages.append((role, said))
    yield conversation_episode(
        id_,
        text(values.get("title")),
        messages,
        created_at=moment(values.get("create_time")),
        updated_at=moment(values.get("update_time")),
    )


def _current_branch(nodes: Mapping[str, Any], last: Any) -> list[Mapping[str, Any]]:
    """Return the messages from the root to the current node; other branches are answers that were generated again."""
    node = last if isinstance(last, str) and last in nodes else _last_leaf(nodes)
    found: list[Mapping[str, Any]] = []
    visited: set[str] = set()
    while isinstance(node, str) and node in nodes and node not in visited:
        visited.add(node)
        values = mapping(nodes[node])
        if isinstance(message := values.get("message"), Mapping):
            found.append(message)
        node = values.get("parent")
    return found[::-1]


def _last_leaf(nodes: Mapping[str, Any]) -> str | None:
    return next((name for name, node in reversed(list(nodes.items())) if not mapping(node).get("children")), None)


def _said(message: Mapping[str, Any]) -> str:
    content = mapping(message.get("content"))
    parts = content.get("parts") if content.get("content_type") in _TEXT_TYPES else None
    return "\n".join(each for each in parts if isinstance(each, str)).strip() if isinstance(parts, list) else ""


def _is_shown(message: Mapping[str, Any]) -> bool:
    is_hidden = mapping(message.get("metadata")).get("is_visually_hidden_from_conversation")
    return not is_hidden and message.get("recipient", "all") in {"all", None}


def _saved_memory(message: Mapping[str, Any]) -> Iterator[ForeignRecord]:
    content = mapping(message.get("content"))
    if saved := _said(message) or text(content.get("text")):
        yield ForeignFact(
            id=f"saved\n{saved}",
            subject="user",
            predicate="saved_memory",
            content=saved,
            created_at=moment(message.get("create_time")),
        )


def _custom_instructions(content: Mapping[str, Any]) -> Iterator[ForeignRecord]:
    if profile := text(content.get("user_profile")):
        yield ForeignFact(id=f"profile\n{profile}", subject="user", predicate="profile", content=profile)
    if instructions := text(content.get("user_instructions")):
        yield ForeignRule(id=f"instructions\n{instructions}", content=instructions)
