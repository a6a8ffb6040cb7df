"""Reader of a Claude.ai export: memories as facts, conversations as episodes, instructions of projects as rules."""

import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from butlers.memory_formats.conversations import conversation_episode
from butlers.memory_formats.documents import JsonValue, json_values
from butlers.memory_formats.json_items import MAX_ITEM_BYTES
from butlers.memory_formats.records import ForeignFact, ForeignRecord, ForeignRule, LeftOut, Problem
from butlers.memory_formats.source import Source
from butlers.memory_formats.values import mapping, moment, objects, slug, text

_HEADING = re.compile(r"\A(?:\*\*(.{1,120}?)\*\*|#{1,4} (.{1,120}))\s*\Z")
_PARAGRAPH = re.compile(r"\n\s*\n")
_MEMORY_IMPORTANCE = 7.0
_MARKS = (b'"chat_messages"', b'"conversations_memory"', b'"prompt_template"')
_ROLES = {"human": "user", "assistant": "assistant"}


def is_claude_ai(source: Source) -> bool:
    """Return whether a file has conversations, memories or projects of Claude.ai."""
    return any(mark in file.head() for file in source.files("*.json") for mark in _MARKS)


def read_claude_ai(source: Source) -> Iterator[ForeignRecord]:
    """Yield the memories of every file of the export; projects come first, because memories name them."""
    projects: dict[str, str] = {}
    for values, place in _read_objects(source):
        yield from [place] if isinstance(place, Problem) else _read_object(values, place, projects)


def _read_objects(source: Source) -> Iterator[tuple[Mapping[str, Any], str | Problem]]:
    """Yield the objects of the files, and their places; a file is an array of objects, or one object."""
    for file, items in groupby(json_values(source, "*.json", first="project"), key=_file_of):
        members: dict[str, Any] = {}
        size = 0
        for item in items:
            if isinstance(item, Problem):
                yield {}, item
            elif not item.key:
                yield mapping(item.value), item.place
            elif (size := size + item.size) <= MAX_ITEM_BYTES:
                _add_member(members, item)
        if size > MAX_ITEM_BYTES:
            yield {}, Problem(file, f"it is one object of more than {MAX_ITEM_BYTES:,} bytes")
        elif members:
            yield members, file


def _add_member(members: dict[str, Any], item: JsonValue) -> None:
    if item.is_item:
        members.setdefault(item.key, []).append(item.value)
    else:
        members[item.key] = item.value


def _file_of(item: JsonValue | Problem) -> str:
    return item.place if isinstance(item, Problem) else item.file


def _read_object(values: Mapping[str, Any], place: str, projects: dict[str, str]) -> Iterator[ForeignRecord]:
    """Yield the memories of a conversation, of an account's memories or of a project."""
    if "chat_messages" in values:
        yield _read_conversation(values, place)
    elif "conversations_memory" in values or "project_memories" in values:
        yield from _read_prose("user", text(values.get("conversations_memory")))
        for project, prose in mapping(values.get("project_memories")).items():
            yield from _read_prose(projects.get(str(project), f"project {project}"), text(prose))
    elif "prompt_template" in values:
        yield from _read_project(values, projects)
    elif values:
        yield LeftOut("an object without memories, such as an account")


def _read_conversation(values: Mapping[str, Any], place: str) -> ForeignRecord:
    if not text(values.get("uuid")):
        return Problem(place, "a conversation needs a uuid")
    messages = [
        (_ROLES[sender], said)
        for message in objects(values.get("chat_messages"))
        if (sender := text(message.get("sender"))) in _ROLES and (said := _said(message))
    ]
    return conversation_episode(
        text(values.get("uuid")),
        text(values.get("name")),
        messages,
        created_at=moment(values.get("created_at")),
        updated_at=moment(values.get("updated_at")),
    )


def _said(message: Mapping[str, Any]) -> str:
    parts = [text(part.get("text")) for part in objects(message.get("content")) if part.get("type") == "text"]
    return "\n".join(part for part in parts if part) or text(message.get("text"))


def _read_prose(subject: str, prose: str) -> Iterator[ForeignRecord]:
    """Yield each paragraph as a fact, whose predicate is the heading above it."""
    heading = "memory"
    for paragraph in _PARAGRAPH.split(prose):
        if matched := _HEADING.match(paragraph.strip()):
            heading = slug(matched[1] or matched[2], "memory")
        elif paragraph.strip():
            yield ForeignFact(
                id=f"memory\n{subject}\n{paragraph.strip()}",
                subject=subject,
                predicate=heading,
                content=paragraph,
                importance=_MEMORY_IMPORTANCE,
            )


def _read_project(values: Mapping[str, Any], projects: dict[str, str]) -> Iterator[ForeignRecord]:
    id_, name = text(values.get("uuid")), text(values.get("name"))
    if id_ and name:
        projects[id_] = name
    if instructions := text(values.get("prompt_template")):
        yield ForeignRule(
            id=f"instructions\n{id_}",
            content=f"{name}: {instructions}" if name else instructions,
            tags=("project",),
            created_at=moment(values.get("created_at")),
            updated_at=moment(values.get("updated_at")),
            metadata={"project": name},
        )
    for _ in objects(values.get("docs")):
        yield LeftOut("a document of a project")
