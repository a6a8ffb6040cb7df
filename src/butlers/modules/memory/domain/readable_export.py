"""Formats of an export for other programs and people: the MCP memory server's JSON Lines, and Markdown."""

import json
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Protocol

_DIGEST = re.compile(r"#[0-9a-f]{8}\Z")
_BLOCK_MARK = re.compile(r"\A(\s*)(#|>|```|~~~|[-*+]\s|\d+[.)]\s)")
_RULES = "rules"
_HEADINGS = {"relation": "Relations", "rule": "Rules", "episode": "Episodes"}


class ReadableRecord(Protocol):
    """A live record, in the order of `stream_live`."""

    @property
    def kind(self) -> str:
        """One of entity, fact, relation, rule and episode."""

    @property
    def name(self) -> str:
        """The name of the entity, or of what a fact is about."""

    @property
    def entity_type(self) -> str:
        """The type of an entity."""

    @property
    def predicate(self) -> str:
        """The predicate of a fact."""

    @property
    def content(self) -> str:
        """The text."""

    @property
    def scope(self) -> str:
        """The scope of a fact or rule."""

    @property
    def relation(self) -> str:
        """The kind of a relation, as the system wrote it that it came from."""

    @property
    def created_at(self) -> datetime:
        """The time of an episode."""


class McpMemoryWriter:
    """Writes the lines of the MCP memory server; episodes have no place there."""

    def __init__(self) -> None:
        self._name, self._type = "", ""
        self._observations: list[str] = []

    def lines(self, records: Iterable[ReadableRecord]) -> Iterator[str]:
        """Yield the lines of entities that are complete, and of relations."""
        for record in records:
            if record.kind == "relation":
                kind = record.relation or base_predicate(record.predicate)
                yield _line(type="relation", **{"from": record.name}, to=record.content, relationType=kind)
            elif record.kind != "episode":
                yield from self._add(record)

    def finish(self) -> Iterator[str]:
        """Yield the line of the last entity."""
        if self._name:
            yield _line(
                type="entity", name=self._name, entityType=self._type or "subject", observations=self._observations
            )

    def _add(self, record: ReadableRecord) -> Iterator[str]:
        name = _RULES if record.kind == "rule" else record.name
        if name != self._name:
            yield from self.finish()
            self._name, self._type, self._observations = name, _RULES if record.kind == "rule" else "", []
        if record.kind == "entity":
            self._type = record.entity_type
        else:
            self._observations.append(_observation(record))


class MarkdownWriter:
    """Writes a list of facts for each subject, then relations, rules and episodes, and nothing that changes alone."""

    def __init__(self, title: str) -> None:
        self._title, self._name, self._section = title, "", ""

    def lines(self, records: Iterable[ReadableRecord]) -> Iterator[str]:
        """Yield the lines of these records."""
        for record in records:
            section = _HEADINGS.get(record.kind, "Facts")
            if not self._section:
                yield f"# {_heading(self._title)}\n"
            if section != self._section:
                self._section = section
                yield f"\n## {section}\n\n" if section != "Facts" else "\n## Facts\n"
            yield from self._record(record)

    def finish(self) -> Iterator[str]:
        """Yield what a tenant without memories has."""
        if not self._section:
            yield f"# {_heading(self._title)}\n"

    def _record(self, record: ReadableRecord) -> Iterator[str]:
        where = f" ({_heading(record.scope)})" if record.scope not in {"", "global"} else ""
        match record.kind:
            case "entity" | "fact":
                yield from self._fact(record, where)
            case "relation":
                relation = record.relation or base_predicate(record.predicate)
                yield f"- {_heading(record.name)} — {_heading(relation)} → {_text(record.content)}{where}\n"
            case "rule":
                yield f"- {_text(record.content)}{where}\n"
            case _:
                yield f"- {record.created_at:%Y-%m-%d}: {_text(record.content)}{where}\n"

    def _fact(self, record: ReadableRecord, where: str) -> Iterator[str]:
        if record.name != self._name:
            self._name = record.name
            kind = f" ({_heading(record.entity_type)})" if record.entity_type else ""
            yield f"\n### {_heading(record.name)}{kind}\n\n"
        if record.kind == "fact":
            yield f"- **{_heading(base_predicate(record.predicate))}**: {_text(record.content)}{where}\n"


def base_predicate(predicate: str) -> str:
    """Return a predicate without the digest that an import adds to tell several apart."""
    return _DIGEST.sub("", predicate)


def _observation(record: ReadableRecord) -> str:
    predicate = base_predicate(record.predicate)
    return record.content if predicate in {"", "note"} else f"{predicate}: {record.content}"


def _line(**values: object) -> str:
    return json.dumps(values, ensure_ascii=True, separators=(",", ":")) + "\n"


def _heading(text: str) -> str:
    return " ".join(_visible(text).split())


def _text(text: str) -> str:
    """Return a text as one item of a list: its lines are indented, and none begins a heading, list or tag."""
    lines = [_BLOCK_MARK.sub(r"\1\\\2", line.rstrip()) for line in _visible(text).splitlines()]
    return "\n".join(f"  {line}" if number and line else line for number, line in enumerate(lines))


def _visible(text: str) -> str:
    kept = "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in text)
    return kept.replace("&", "&amp;").replace("<", "&lt;")
