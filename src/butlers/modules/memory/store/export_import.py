"""Queries that export and import every record of a tenant."""

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
"""The first batch waits for the whole sort."""


class RecordKind(StrEnum):
    """The kinds of records, each after those it refers to."""

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
    """A record, with its vector where vectors are exported; the first row holds the counts of each kind."""

    kind: str
    record: Record
    embedding: Any | None


@dataclass(frozen=True, slots=True)
class SearchableText:
    """The searchable text of a memory and its vector."""

    id: UUID
    text: str
    vector: Any


async def stream_records(tx: Connection, caller: Caller, *, vectors: bool) -> AsyncIterator[list[ExportRow]]:
    """Every record of the tenant in one snapshot, a batch at a time."""
    async with _sql.stream_records_cursor(tx, tenant_id=caller.tenant, vectors=vectors) as opening:
        cursor = await opening
        while rows := await cursor.fetch(BATCH, timeout=_FETCH_SECONDS):
            yield [ExportRow(**row) for row in rows]


async def disable_idle_timeout(tx: Connection) -> None:
    """Let this transaction be idle without a limit."""
    await _sql.disable_idle_timeout(tx)


async def try_lock_import(tx: Connection, caller: Caller) -> bool:
    """Lock the tenant against other imports; False while one runs."""
    return bool(await _sql.try_lock_import(tx, tenant_id=caller.tenant))


async def has_records(tx: Connection, caller: Caller) -> bool:
    """Whether the tenant has any record."""
    return bool(await _sql.has_records(tx, tenant_id=caller.tenant))


async def find_key_conflict(tx: Connection, caller: Caller, facts: Sequence[Record]) -> tuple[UUID, UUID] | None:
    """One of these live facts, and the other live fact that has its key."""
    row = await _sql.find_key_conflict(tx, tenant_id=caller.tenant, records=facts)
    return (row["id"], row["holder_id"]) if row else None


async def find_merged_entity(tx: Connection, caller: Caller, facts: Sequence[Record]) -> tuple[UUID, UUID] | None:
    """One of these facts that is new and live, and its entity that was merged away."""
    row = await _sql.find_merged_entity(tx, tenant_id=caller.tenant, records=facts)
    return (row["id"], row["entity_id"]) if row else None


async def insert(tx: Connection, caller: Caller, kind: RecordKind, records: Sequence[Record]) -> list[UUID]:
    """Insert records; returns the ids of those that were not there yet (for links: of their sources)."""
    rows = getattr(_sql, f"insert_{kind}")(tx, tenant_id=caller.tenant, records=records)
    return [row["id"] async for row in rows]


async def insert_memories(
    tx: Connection,
    caller: Caller,
    kind: RecordKind,
    records: Sequence[Record],
    searchables: Sequence[SearchableText],
    version_id: UUID,
) -> list[UUID]:
    """Insert memories; returns the ids of those that were not there yet."""
    rows = getattr(_sql, f"insert_{kind}")(
        tx,
        tenant_id=caller.tenant,
        records=records,
        ids=[each.id for each in searchables],
        searchables=[each.text for each in searchables],
        # asyncpg would read a list of lists as an array of two dimensions.
        embeddings=[Vector(each.vector) for each in searchables],
        version=version_id,
    )
    return [row["id"] async for row in rows]


async def write_supersedes(tx: Connection, caller: Caller, superseded: Mapping[UUID, UUID]) -> None:
    """Write which facts these facts superseded."""
    await _sql.write_supersedes(
        tx, tenant_id=caller.tenant, ids=list(superseded), superseded=list(superseded.values())
    )
