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

_sql = statements("portability")

BATCH = 500
_FETCH_SECONDS = 600.0
"""The first batch waits for everything to be put in order."""


class Kind(StrEnum):
    """What a tenant has, each kind after those it names."""

    EMBEDDING_VERSION = "embedding_version"
    ENTITY = "entity"
    EPISODE = "episode"
    FACT = "fact"
    RULE = "rule"
    LINK = "link"
    RULE_APPLICATION = "rule_application"
    EVENT = "event"


ORDER = tuple(Kind)
MEMORIES = (Kind.EPISODE, Kind.FACT, Kind.RULE)

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """A record with its vector, if that was asked for; the first of all is the counts of each kind."""

    kind: str
    record: Record
    embedding: Any | None


@dataclass(frozen=True, slots=True)
class Searchable:
    """What makes a memory findable."""

    id: UUID
    text: str
    vector: Any


async def everything(tx: Connection, caller: Caller, *, vectors: bool) -> AsyncIterator[list[Row]]:
    """All that the tenant has, a batch at a time, as it was at one moment."""
    async with _sql.everything_cursor(tx, tenant_id=caller.tenant, vectors=vectors) as unopened:
        cursor = await unopened
        while rows := await cursor.fetch(BATCH, timeout=_FETCH_SECONDS):
            yield [Row(row["kind"], row["record"], row["embedding"]) for row in rows]


async def be_patient(tx: Connection) -> None:
    """Let this transaction be idle for as long as it takes."""
    await _sql.be_patient(tx)


async def alone(tx: Connection, caller: Caller) -> bool:
    """Keep other imports away from the tenant; False when one is under way."""
    return bool(await _sql.alone(tx, tenant_id=caller.tenant))


async def occupied(tx: Connection, caller: Caller) -> bool:
    """Whether the tenant has anything."""
    return bool(await _sql.occupied(tx, tenant_id=caller.tenant))


async def rivals(tx: Connection, caller: Caller, facts: Sequence[Record]) -> tuple[UUID, UUID] | None:
    """One of these live facts, and the other live fact that holds its key already."""
    row = await _sql.rivals(tx, tenant_id=caller.tenant, records=facts)
    return (row["id"], row["held_by"]) if row else None


async def buried(tx: Connection, caller: Caller, facts: Sequence[Record]) -> tuple[UUID, UUID] | None:
    """One of these live facts that is new, and its entity, which was merged away."""
    row = await _sql.buried(tx, tenant_id=caller.tenant, records=facts)
    return (row["id"], row["entity_id"]) if row else None


async def insert(tx: Connection, caller: Caller, kind: Kind, records: Sequence[Record]) -> list[UUID]:
    """The ids of those that were not there yet; for links, of what they lead from."""
    statement = {
        Kind.EMBEDDING_VERSION: _sql.insert_embedding_versions,
        Kind.ENTITY: _sql.insert_entities,
        Kind.LINK: _sql.insert_links,
        Kind.RULE_APPLICATION: _sql.insert_rule_applications,
        Kind.EVENT: _sql.insert_events,
    }[kind]
    return [row["id"] async for row in statement(tx, tenant_id=caller.tenant, records=records)]


async def insert_memories(
    tx: Connection,
    caller: Caller,
    kind: Kind,
    records: Sequence[Record],
    made: Sequence[Searchable],
    version_id: UUID,
) -> list[UUID]:
    """The ids of those that were not there yet."""
    statement = {
        Kind.EPISODE: _sql.insert_episodes,
        Kind.FACT: _sql.insert_facts,
        Kind.RULE: _sql.insert_rules,
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


async def tie(tx: Connection, caller: Caller, superseded: Mapping[UUID, UUID]) -> None:
    """Name what these facts superseded, once it is there."""
    await _sql.tie(tx, tenant_id=caller.tenant, ids=list(superseded), superseded=list(superseded.values()))
