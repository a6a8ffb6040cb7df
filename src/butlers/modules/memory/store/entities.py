"""Queries on the entities table, and on the facts of entities in a merge."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any
from uuid import UUID

import asyncpg

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.entities import EntityChange, NewEntity
from butlers.modules.memory.domain.entity_merge import ConflictingFact, ConflictResolution, MergeSide
from butlers.modules.memory.domain.entity_resolution import (
    MAX_CANDIDATES,
    MAX_COMPARED_FACTS,
    EntityCandidate,
    KeywordOverlap,
    NameMatch,
)
from butlers.modules.memory.domain.errors import EntityMergedAway, EntityNameTaken, EntityNotFound
from butlers.modules.memory.store.statements import statements

_sql = statements("entities")

Record = Mapping[str, Any]


async def lock_live(tx: Connection, caller: Caller, entity_id: UUID) -> None:
    """Lock a live entity against a merge; raises `EntityNotFound` or `EntityMergedAway`."""
    row = await _sql.lock_live(tx, tenant_id=caller.tenant, id=entity_id)
    if row is None:
        raise EntityNotFound(entity_id)
    if row["merged_into"]:
        raise EntityMergedAway(entity_id, await successor(tx, caller, entity_id))


async def lock_live_all(tx: Connection, caller: Caller, entity_ids: Iterable[UUID]) -> set[UUID]:
    """Lock entities against a merge; returns the ids of those that are merged already."""
    rows = _sql.lock_live_all(tx, tenant_id=caller.tenant, ids=list(entity_ids))
    return {row["id"] async for row in rows if row["merged_into"]}


async def successor(tx: Connection, caller: Caller, entity_id: UUID) -> str:
    """The id of the entity that a merged one ended up in."""
    return str(await _sql.successor(tx, tenant_id=caller.tenant, id=entity_id))


async def insert(tx: Connection, caller: Caller, entity: NewEntity) -> UUID:
    """Store an entity; returns its id. Raises `EntityNameTaken`."""
    async with _guard_name(tx, caller, entity.canonical_name, entity.entity_type):
        entity_id: UUID = await _sql.insert(tx, tenant_id=caller.tenant, **asdict(entity))
    return entity_id


async def update(tx: Connection, caller: Caller, entity_id: UUID, entity_type: str, change: EntityChange) -> Record:
    """Change an entity; returns it as it is afterwards. Raises `EntityNameTaken`."""
    async with _guard_name(tx, caller, change.canonical_name or "", entity_type):
        row = await _sql.update(tx, tenant_id=caller.tenant, id=entity_id, **asdict(change))
    return dict(row)


@asynccontextmanager
async def _guard_name(tx: Connection, caller: Caller, name: str, entity_type: str) -> AsyncIterator[None]:
    """Guard a write that the unique index on names may refuse; raises `EntityNameTaken` with the holder's id."""
    try:
        # A savepoint, so that the holder can be looked up after a refusal.
        async with tx.transaction():
            yield
    except asyncpg.UniqueViolationError:
        holder = await _sql.holder_of_name(tx, tenant_id=caller.tenant, canonical_name=name, entity_type=entity_type)
        raise EntityNameTaken(name, entity_type, holder) from None


async def get(tx: Connection, caller: Caller, entity_id: UUID) -> Record:
    """A whole entity, merged or not."""
    row = await _sql.get(tx, tenant_id=caller.tenant, id=entity_id)
    if row is None:
        raise EntityNotFound(entity_id)
    return dict(row)


async def list_by_name(
    tx: Connection, caller: Caller, entity_type: str | None, *, merged: bool, limit: int
) -> Sequence[Record]:
    """Entities by name: the live ones, or those that were merged away."""
    rows = _sql.list_by_name(tx, tenant_id=caller.tenant, entity_type=entity_type, merged=merged, max_rows=limit)
    return [dict(row) async for row in rows]


async def lock(tx: Connection, caller: Caller, *entity_ids: UUID) -> dict[UUID, tuple[MergeSide, str]]:
    """Lock live entities; returns each with its type. Raises `EntityNotFound` or `EntityMergedAway`."""
    locked = {}
    async for row in _sql.lock(tx, tenant_id=caller.tenant, ids=list(entity_ids)):
        side = MergeSide(row["id"], row["canonical_name"], tuple(row["aliases"]), row["metadata"])
        locked[side.id] = (side, row["entity_type"])
    for entity_id in entity_ids:
        if entity_id not in locked:
            raise EntityNotFound(entity_id)
        if locked[entity_id][0].merged_away:
            raise EntityMergedAway(entity_id, await successor(tx, caller, entity_id))
    return locked


async def find_candidates(
    tx: Connection, name: str, entity_type: str | None, *, fuzzy: bool
) -> list[EntityCandidate]:
    """Live entities that a name may mean, once for each way they match."""
    rows = _sql.find_candidates(tx, name=name, entity_type=entity_type, fuzzy=fuzzy, max_rows=MAX_CANDIDATES)
    return [
        EntityCandidate(**{**row, "aliases": tuple(row["aliases"]), "match": NameMatch(row["match"])})
        async for row in rows
    ]


async def keyword_overlaps(
    tx: Connection, caller: Caller, entity_ids: Sequence[UUID], hints: str, name: str
) -> dict[UUID, KeywordOverlap]:
    """The keywords that the hints share with the facts of each entity, by entity id."""
    rows = _sql.keyword_overlaps(
        tx, tenant_id=caller.tenant, ids=list(entity_ids), hints=hints, name=name, max_rows=MAX_COMPARED_FACTS
    )
    return {row["id"]: KeywordOverlap(row["shared"], row["total"]) async for row in rows}


async def live_facts(tx: Connection, caller: Caller, *entity_ids: UUID, lock: bool) -> list[ConflictingFact]:
    """The live facts of these entities; with `lock`, all their facts are locked."""
    statement = _sql.lock_facts if lock else _sql.live_facts
    rows = statement(tx, tenant_id=caller.tenant, ids=list(entity_ids))
    return [
        ConflictingFact(
            row["id"], row["entity_id"], row["scope"], row["predicate"], row["confidence"], row["content"]
        )
        async for row in rows
        if row["validity"] == "active"
    ]


async def supersede_facts(tx: Connection, caller: Caller, conflicts: Sequence[ConflictResolution]) -> None:
    """Supersede the losing facts of conflicts, and name them in the facts that stay."""
    kept = [conflict.kept.id for conflict in conflicts]
    superseded = [conflict.superseded.id for conflict in conflicts]
    await _sql.supersede_facts(tx, tenant_id=caller.tenant, superseded=superseded)
    await _sql.write_supersedes(tx, tenant_id=caller.tenant, kept=kept, superseded=superseded)


# Every column that refers to an entity, and the statement that a merge moves it with. A test compares this with the
# foreign keys of the database.
ENTITY_REFERENCES: Mapping[tuple[str, str], Any] = {("facts", "entity_id"): _sql.repoint_facts}


async def repoint_references(
    tx: Connection, caller: Caller, source_id: UUID, target_id: UUID
) -> dict[tuple[str, str], int]:
    """Move every reference from one entity to another; returns the number of rows by table and column."""
    return {
        column: len(
            [row async for row in statement(tx, tenant_id=caller.tenant, source_id=source_id, target_id=target_id)]
        )
        for column, statement in ENTITY_REFERENCES.items()
    }


async def write_merge_target(
    tx: Connection, caller: Caller, entity_id: UUID, aliases: Sequence[str], metadata: Mapping[str, Any]
) -> None:
    """Write the aliases and metadata of an entity after a merge."""
    await _sql.write_merge_target(tx, tenant_id=caller.tenant, id=entity_id, aliases=list(aliases), metadata=metadata)


async def write_merge_source(tx: Connection, caller: Caller, entity_id: UUID, metadata: Mapping[str, Any]) -> None:
    """Mark an entity as merged away."""
    await _sql.write_merge_source(tx, tenant_id=caller.tenant, id=entity_id, metadata=metadata)
