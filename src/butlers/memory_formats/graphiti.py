"""Reader of Graphiti: a JSON line for each dumped node and edge, with a `kind`."""

from collections.abc import Iterator, Mapping
from typing import Any

from butlers.memory_formats.documents import json_values
from butlers.memory_formats.json_items import InvalidJson, parse_json
from butlers.memory_formats.mcp_memory import entity_type_named
from butlers.memory_formats.records import (
    EntityType,
    ForeignEntity,
    ForeignEpisode,
    ForeignFact,
    ForeignLink,
    ForeignRecord,
    LeftOut,
    Problem,
)
from butlers.memory_formats.source import Source
from butlers.memory_formats.values import mapping, moment, slug, text, texts

_KINDS = {"entity", "episode", "edge"}


def is_graphiti(source: Source) -> bool:
    """Return whether the first line is a node or an edge."""
    try:
        first = parse_json(source.head.split(b"\n", 1)[0])
    except InvalidJson:
        return False
    return isinstance(first, Mapping) and first.get("kind") in _KINDS and "uuid" in first


def read_graphiti(source: Source) -> Iterator[ForeignRecord]:
    """Yield entities, episodes and facts; an edge names its entities by their ids, so these come before it."""
    names: dict[str, str] = {}
    for line in json_values(source, "*.jsonl", is_lines=True):
        if isinstance(line, Problem):
            yield line
        else:
            yield from _read_line(mapping(line.value), line.place, names)


def _read_line(values: Mapping[str, Any], place: str, names: dict[str, str]) -> Iterator[ForeignRecord]:
    kind, id_ = values.get("kind"), text(values.get("uuid"))
    if kind not in _KINDS:
        yield LeftOut("a line that is no entity, episode or edge")
    elif not id_:
        yield Problem(place, "it needs a uuid")
    elif kind == "entity":
        yield from _read_entity(values, id_, place, names)
    elif kind == "episode":
        yield _read_episode(values, id_)
    else:
        yield from _read_edge(values, id_, place, names)


def _read_entity(values: Mapping[str, Any], id_: str, place: str, names: dict[str, str]) -> Iterator[ForeignRecord]:
    name = text(values.get("name"))
    if not name:
        yield Problem(place, "an entity needs a name")
        return
    names[id_] = name
    labels = texts(values.get("labels"))
    types: list[EntityType] = [found for each in labels if (found := entity_type_named(each)) != "other"]
    yield ForeignEntity(name=name, entity_type=types[0] if types else "other", metadata={"type": ", ".join(labels)})
    if summary := text(values.get("summary")):
        yield ForeignFact(
            id=f"summary\n{id_}",
            subject=name,
            predicate="summary",
            content=summary,
            entity=name,
            created_at=moment(values.get("created_at")),
        )


def _read_episode(values: Mapping[str, Any], id_: str) -> ForeignRecord:
    content = text(values.get("content"))
    if not content:
        return LeftOut("an episode without a text")
    return ForeignEpisode(
        id=id_,
        content=content,
        created_at=moment(values.get("valid_at")) or moment(values.get("created_at")),
        metadata={"name": text(values.get("name")), "source": text(values.get("source_description"))},
    )


def _read_edge(values: Mapping[str, Any], id_: str, place: str, names: Mapping[str, str]) -> Iterator[ForeignRecord]:
    start, end = (names.get(text(values.get(f"{side}_node_uuid"))) for side in ("source", "target"))
    content = text(values.get("fact"))
    if not start or not end or not content:
        yield Problem(place, "an edge needs a fact and two entities, which come before it in the file")
    elif values.get("invalid_at") or values.get("expired_at"):
        yield LeftOut("an edge that no longer holds")
    else:
        yield ForeignFact(
            id=id_,
            subject=start,
            predicate=f"{slug(text(values.get('name')))}:{end}",
            content=content,
            entity=start,
            created_at=moment(values.get("valid_at")) or moment(values.get("created_at")),
            metadata={"relation": text(values.get("name")), "to_entity": end},
        )
        for episode in texts(values.get("episodes")):
            yield ForeignLink(id_, episode, "derived_from")
