"""Reader of mem0: the answer of `get_all` as JSON, and the SQLite history of a local installation."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from butlers.memory_formats.documents import JsonValue, json_values
from butlers.memory_formats.records import ForeignEntity, ForeignFact, ForeignRecord, LeftOut, Problem
from butlers.memory_formats.source import Source
from butlers.memory_formats.values import mapping, moment, slug, small_metadata, text, texts

_HISTORY_COLUMNS = {"memory_id", "new_memory", "event", "created_at", "is_deleted"}
_LIVE_TEXTS = """
    select memory_id, new_memory, created_at, updated_at, event
      from (select *, row_number() over (
                       partition by memory_id order by coalesce(updated_at, created_at) desc, rowid desc
                   ) as place
              from history)
     where place = 1
     order by memory_id
"""
_OWNERS = ("user_id", "agent_id", "run_id")
_KEPT = ("run_id", "agent_id", "actor_id", "role", "hash", "expiration_date")


def is_mem0(source: Source) -> bool:
    """Return whether a JSON file has memories as mem0 answers them, or a database mem0's history."""
    if source.is_sqlite:
        with source.database() as database:
            return database.columns("history") >= _HISTORY_COLUMNS
    return b'"memory"' in source.head and any(f'"{name}"'.encode() in source.head for name in ("hash", *_OWNERS))


def read_mem0(source: Source) -> Iterator[ForeignRecord]:
    """Yield every memory as a fact about its user."""
    if source.is_sqlite:
        yield from _read_history(source)
        return
    seen: set[str] = set()
    for item in json_values(source, "*.json"):
        if isinstance(item, Problem):
            yield item
        elif item.is_item and item.key in {"", "results", "memories", "relations"}:
            yield from _read_item(item, seen)


def _read_item(item: JsonValue, seen: set[str]) -> Iterator[ForeignRecord]:
    if not isinstance(item.value, Mapping):
        yield Problem(item.place, "it is no object")
    elif item.key == "relations":
        yield from _read_relation(item.value, item.place)
    else:
        yield from _read_memory(item.value, item.place, seen)


def _read_memory(values: Mapping[str, Any], place: str, seen: set[str]) -> Iterator[ForeignRecord]:
    content, id_ = text(values.get("memory") or values.get("text")), text(values.get("id"))
    owner = next((text(values.get(name)) for name in _OWNERS if text(values.get(name))), "user")
    expires = moment(values.get("expiration_date"))
    if not id_:
        yield Problem(place, "a memory needs an id")
        return
    # mem0 keeps one text once for each run; its own hash is of the text.
    copy = f"{owner}\n{text(values.get('hash')) or content}"
    if not content:
        yield LeftOut("a memory without a text")
    elif expires and expires < datetime.now(UTC):
        yield LeftOut("a memory that has expired")
    elif copy in seen:
        yield LeftOut("the same text of the same user again")
    else:
        seen.add(copy)
        yield from _entity_of(values)
        yield _fact(values, id_, owner, content)


def _entity_of(values: Mapping[str, Any]) -> Iterator[ForeignRecord]:
    if user := text(values.get("user_id")):
        yield ForeignEntity(name=user, entity_type="person", metadata={"type": "user"})


def _fact(values: Mapping[str, Any], id_: str, owner: str, content: str) -> ForeignFact:
    metadata = mapping(values.get("metadata"))
    categories = texts(values.get("categories"))
    category = text(metadata.get("category")) or (categories[0] if categories else "")
    return ForeignFact(
        id=id_,
        subject=owner,
        predicate=slug(category),
        content=content,
        entity=text(values.get("user_id")),
        tags=categories or ((category,) if category else ()),
        created_at=moment(values.get("created_at")),
        updated_at=moment(values.get("updated_at")),
        is_volatile=values.get("expiration_date") is not None,
        metadata=small_metadata({**metadata, **{name: values.get(name) for name in _KEPT}}),
    )


def _read_relation(values: Mapping[str, Any], place: str) -> Iterator[ForeignRecord]:
    start, kind = text(values.get("source")), text(values.get("relationship"))
    end = text(values.get("target")) or text(values.get("destination"))
    if not start or not kind or not end:
        yield Problem(place, "a relation needs source, relationship and target")
        return
    yield ForeignEntity(name=start)
    yield ForeignFact(
        id=f"relation\n{start}\n{kind}\n{end}",
        subject=start,
        predicate=slug(kind),
        content=end,
        entity=start,
        tags=("relation",),
        metadata={"relation": kind, "to_entity": end},
    )


def _read_history(source: Source) -> Iterator[ForeignRecord]:
    """Yield the last text of every memory that was not deleted; the history does not say whose memory it is."""
    with source.database() as database:
        if not database.columns("history") >= _HISTORY_COLUMNS:
            yield Problem(source.name, "it has no table history of mem0")
            return
        for memory_id, content, created_at, updated_at, event in database.rows(_LIVE_TEXTS):
            if event == "DELETE":
                yield LeftOut("a memory that was deleted")
            elif not text(content) or not text(memory_id):
                yield LeftOut("a memory without a text")
            else:
                yield ForeignFact(
                    id=text(memory_id),
                    subject="user",
                    predicate="note",
                    content=content,
                    created_at=moment(created_at),
                    updated_at=moment(updated_at),
                )
