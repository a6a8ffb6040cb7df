"""Reader of mcp-memory-service: its JSON export and its SQLite database."""

from collections.abc import Iterator, Mapping
from typing import Any

from butlers.memory_formats.documents import json_values
from butlers.memory_formats.json_items import InvalidJson, parse_json
from butlers.memory_formats.records import ForeignEpisode, ForeignFact, ForeignLink, ForeignRecord, LeftOut, Problem
from butlers.memory_formats.source import Source
from butlers.memory_formats.values import importance, mapping, moment, slug, small_metadata, text, texts

_COLUMNS = ("content_hash", "content", "tags", "memory_type", "metadata", "created_at", "updated_at", "deleted_at")
_GRAPH_COLUMNS = {"source_hash", "target_hash", "relationship_type"}
_HAPPENINGS = {"session", "observation", "error", "task"}
_MARKS = (b'"content_hash"', b'"exporter_version"')


def is_mcp_memory_service(source: Source) -> bool:
    """Return whether a file is an export or a database of the service."""
    if source.is_sqlite:
        with source.database() as database:
            return {"content_hash", "content"} <= database.columns("memories")
    return any(mark in source.head for mark in _MARKS)


def read_mcp_memory_service(source: Source) -> Iterator[ForeignRecord]:
    """Yield every memory: an observation, a task, an error or a session as an episode, all others as facts."""
    if source.is_sqlite:
        yield from _read_database(source)
        return
    for item in json_values(source, "*.json"):
        if isinstance(item, Problem):
            yield item
        elif item.is_item and item.key in {"", "memories"}:
            yield from _read_memory(mapping(item.value), item.place)


def _read_memory(values: Mapping[str, Any], place: str) -> Iterator[ForeignRecord]:
    hash_, content = text(values.get("content_hash")), text(values.get("content"))
    if not hash_:
        yield Problem(place, "a memory needs a content_hash")
        return
    if not content:
        yield LeftOut("a memory without a text")
        return
    kind = text(values.get("memory_type")) or "note"
    metadata = mapping(values.get("metadata"))
    named = texts(values.get("tags"))
    tags = tuple(each for each in named if each != "untagged" and not each.startswith("source:"))
    common: dict[str, Any] = {
        "id": hash_,
        "content": content,
        "tags": tags,
        "created_at": moment(values.get("created_at")),
        "updated_at": moment(values.get("updated_at")),
        "importance": importance(metadata.get("quality_score")),
        "metadata": small_metadata(
            {**metadata, "type": kind, "sources": [each for each in named if each not in tags]}
        ),
    }
    if kind.lower() in _HAPPENINGS:
        yield ForeignEpisode(**common)
    else:
        yield ForeignFact(subject=tags[0] if tags else "note", predicate=slug(kind), **common)


def _read_database(source: Source) -> Iterator[ForeignRecord]:
    with source.database() as database:
        known = database.columns("memories")
        if not {"content_hash", "content"} <= known:
            yield Problem(source.name, "it has no table memories of mcp-memory-service")
            return
        columns = [name if name in known else f"null as {name}" for name in _COLUMNS]
        query = f"select {', '.join(columns)} from memories order by content_hash"  # noqa: S608 — names of ours
        for row in database.rows(query):
            values = dict(zip(_COLUMNS, row, strict=True))
            if values["deleted_at"] is not None:
                yield LeftOut("a memory that was deleted")
            else:
                yield from _read_memory({**values, "metadata": _parse(values["metadata"])}, "a row of memories")
        if database.columns("memory_graph") >= _GRAPH_COLUMNS:
            for start, end, kind in database.rows(
                "select source_hash, target_hash, relationship_type from memory_graph order by 1, 2"
            ):
                yield _link(text(start), text(end), text(kind))


def _link(start: str, end: str, kind: str) -> ForeignRecord:
    if not start or not end or start == end:
        return LeftOut("a relation of a memory with itself")
    if kind in {"contradicts", "supports"}:
        return ForeignLink(start, end, "contradicts" if kind == "contradicts" else "supports")
    return ForeignLink(start, end)


def _parse(metadata: Any) -> Mapping[str, Any]:
    try:
        return mapping(parse_json(metadata.encode())) if isinstance(metadata, str) else {}
    except InvalidJson:
        return {}
