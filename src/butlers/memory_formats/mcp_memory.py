"""Reader of the knowledge graph of the MCP memory server: a JSON line for each entity and relation."""

from collections.abc import Iterator, Mapping
from typing import Any

from butlers.memory_formats.documents import json_values
from butlers.memory_formats.json_items import InvalidJson, parse_json
from butlers.memory_formats.records import EntityType, ForeignEntity, ForeignFact, ForeignRecord, LeftOut, Problem
from butlers.memory_formats.source import Source
from butlers.memory_formats.values import slug, text

RELATION_TAG = "relation"
_TYPES: Mapping[str, EntityType] = {
    "person": "person",
    "people": "person",
    "user": "person",
    "organization": "organization",
    "organisation": "organization",
    "company": "organization",
    "place": "place",
    "location": "place",
    "city": "place",
    "country": "place",
}


def is_mcp_memory(source: Source) -> bool:
    """Return whether the first line is an entity or a relation of the server."""
    try:
        first = parse_json(source.head.split(b"\n", 1)[0])
    except InvalidJson:
        return False
    return isinstance(first, Mapping) and first.get("type") in {"entity", "relation"}


def read_mcp_memory(source: Source) -> Iterator[ForeignRecord]:
    """Yield the entities with their observations, and the relations, as facts."""
    for line in json_values(source, "*.json*", is_lines=True):
        if isinstance(line, Problem):
            yield line
        else:
            yield from _read_line(line.value, line.place)


def entity_type_named(name: str) -> EntityType:
    """Return the type of an entity whose foreign type has this name."""
    return _TYPES.get(name.strip().lower(), "other")


def _read_line(values: Any, place: str) -> Iterator[ForeignRecord]:
    kind = values.get("type") if isinstance(values, Mapping) else None
    if kind == "entity":
        yield from _read_entity(values, place)
    elif kind == "relation":
        yield _read_relation(values, place)
    else:
        yield LeftOut("a line that is neither an entity nor a relation")


def _read_entity(values: Mapping[str, Any], place: str) -> Iterator[ForeignRecord]:
    name, foreign_type = text(values.get("name")), text(values.get("entityType"))
    observations = values.get("observations") or []
    if not name or not isinstance(observations, list):
        yield Problem(place, "an entity needs a name and a list of observations")
        return
    spaced = " ".join(name.replace("_", " ").split())
    aliases = (spaced,) if spaced not in {name, ""} else ()
    yield ForeignEntity(
        name=name, entity_type=entity_type_named(foreign_type), aliases=aliases, metadata={"type": foreign_type}
    )
    for observation in observations:
        if not isinstance(observation, str):
            yield Problem(place, "an observation is no text")
        elif observation.strip():
            yield ForeignFact(
                id=f"observation\n{name}\n{observation.strip()}",
                subject=name,
                predicate="note",
                content=observation,
                entity=name,
            )
        else:
            yield LeftOut("a blank observation")


def _read_relation(values: Mapping[str, Any], place: str) -> ForeignRecord:
    start, kind, end = (text(values.get(name)) for name in ("from", "relationType", "to"))
    if not start or not kind or not end:
        return Problem(place, "a relation needs from, relationType and to")
    return ForeignFact(
        id=f"relation\n{start}\n{kind}\n{end}",
        subject=start,
        predicate=slug(kind, "related_to"),
        content=end,
        entity=start,
        tags=(RELATION_TAG,),
        metadata={"relation": kind, "to_entity": end},
    )
