"""Everything a tenant has, out of the tables and back into them."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from pgvector import Vector

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.store.statements import statements

_sql = statements("export_import")

BATCH = 500
_FETCH_SECONDS = 600.0
"""The first batch waits for everything to be put in order."""


class RecordKind(StrEnum):
    """What a tenant has, each kind after those it names."""

    EMBEDDING_VERSION = "embedding_version"
    ENTITY = "entity"
    EPISODE = "episode"
    FACT = "fact"
    RULE = "rule"
    LINK = "link"
    RULE_APPLICATION = "rule_application"
    EVENT = "event"


RECORD_ORDER = tuple(RecordKind)
MEMORY_KINDS = (RecordKind.EPISODE, RecordKind.FACT, RecordKind.RULE)

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ExportRow:
    """A record with its vector, if that was asked for; the first of all is the counts of each kind."""

    kind: str
    record: Record
    embedding: Any | None


@dataclass(frozen=True, slots=True)
class SearchableText:
    """What makes a memory findable."""

    id: UUID
    text: str
    vector: Any


async def stream_records(tx: Connection, caller: Caller, *, vectors: bool) -> AsyncIterator[list[ExportRow]]:
    """All that the tenant has, a batch at a time, as it was at one moment."""
    async with _sql.everything_cursor(tx, tenant_id=caller.tenant, vectors=vectors) as unopened:
        cursor = await unopened
        while rows := await cursor.fetch(BATCH, timeout=_FETCH_SECONDS):
            yield [ExportRow(row["kind"], row["record"], row["embedding"]) for row in rows]


async def disable_idle_timeout(tx: Connection) -> None:
    """Let this transaction be idle for as long as it takes."""
    await _sql.be_patient(tx)


async def try_lock_import(tx: Connection, caller: Caller) -> bool:
    """Keep other imports away from the tenant; False when one is under way."""
    return bool(await _sql.alone(tx, tenant_id=caller.tenant))


async def has_records(tx: Connection, caller: Caller) -> bool:
    """Whether the tenant has anything."""
    return bool(await _sql.occupied(tx, tenant_id=caller.tenant))


async def find_key_conflict(tx: Connection, caller: Caller, facts: Sequence[Record]) -> tuple[UUID, UUID] | None:
    """One of these live facts, and the other live fact that holds its key already."""
    row = await _sql.rivals(tx, tenant_id=caller.tenant, records=facts)
    return (row["id"], row["held_by"]) if row else None


async def find_merged_entity(tx: Connection, caller: Caller, facts: Sequence[Record]) -> tuple[UUID, UUID] | None:
    """One of these live facts that is new, and its entity, which was merged away."""
    row = await _sql.buried(tx, tenant_id=caller.tenant, records=facts)
    return (row["id"], row["entity_id"]) if row else None


async def insert(tx: Connection, caller: Caller, kind: RecordKind, records: Sequence[Record]) -> list[UUID]:
    """The ids of those that were not there yet; for links, of what they lead from."""
    statement = {
        RecordKind.EMBEDDING_VERSION: _sql.insert_embedding_versions,
        RecordKind.ENTITY: _sql.insert_entities,
        RecordKind.LINK: _sql.insert_links,
        RecordKind.RULE_APPLICATION: _sql.insert_rule_applications,
        RecordKind.EVENT: _sql.insert_events,
    }[kind]
    return [row["id"] async for row in statement(tx, tenant_id=caller.tenant, records=records)]


async def insert_memories(
    tx: Connection,
    caller: Caller,
    kind: RecordKind,
    records: Sequence[Record],
    made: Sequence[SearchableText],
    version_id: UUID,
) -> list[UUID]:
    """The ids of those that were not there yet."""
    statement = {
        RecordKind.EPISODE: _sql.insert_episodes,
        RecordKind.FACT: _sql.insert_facts,
        RecordKind.RULE: _sql.insert_rules,
    }[kind]
    rows = statement(
        tx,
        tenant_id=caller.tenant,
        records=records,
        ids=[each.id for each in made],
        searchables=[each.text for each in made],
        # A list of lists would be one array of two dimensions.
        embeddings=[Vector(each.vector) for each in made],
        version=version_id,
    )
    return [row["id"] async for row in rows]


async def write_supersedes(tx: Connection, caller: Caller, superseded: Mapping[UUID, UUID]) -> None:
    """Name what these facts superseded, once it is there."""
    await _sql.tie(tx, tenant_id=caller.tenant, ids=list(superseded), superseded=list(superseded.values()))
