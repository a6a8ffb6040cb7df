"""Who and what facts are about."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

import asyncpg

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.entities import EntityChange, NewEntity
from butlers.modules.memory.domain.entity_merge import ConflictingFact, ConflictResolution, MergeSide
from butlers.modules.memory.domain.entity_resolution import (
    MOST_CANDIDATES,
    MOST_FACTS,
    EntityCandidate,
    KeywordOverlap,
    NameMatch,
)
from butlers.modules.memory.domain.errors import EntityMergedAway, EntityNameTaken, EntityNotFound
from butlers.modules.memory.store.statements import statements

_sql = statements("entities")
T = TypeVar("T")

Record = Mapping[str, Any]


async def lock_live(tx: Connection, caller: Caller, entity_id: UUID) -> None:
    """Keep a live entity from being merged away until the transaction ends."""
    row = await _sql.live(tx, tenant_id=caller.tenant, id=entity_id)
    if row is None:
        raise EntityNotFound(entity_id)
    if row["merged_into"]:
        raise await merged_away_fault(tx, caller, entity_id)


async def lock_live_all(tx: Connection, caller: Caller, entity_ids: Iterable[UUID]) -> set[UUID]:
    """Keep these entities from being merged away until the transaction ends; those that are merged already."""
    rows = _sql.live_all(tx, tenant_id=caller.tenant, ids=list(entity_ids))
    return {row["id"] async for row in rows if row["merged_into"]}


async def merged_away_fault(tx: Connection, caller: Caller, entity_id: UUID) -> EntityMergedAway:
    """The refusal of a merged entity, with the one that stands for it."""
    return EntityMergedAway(entity_id, await successor(tx, caller, entity_id))


async def successor(tx: Connection, caller: Caller, entity_id: UUID) -> str:
    """The id of the entity that stands for a merged one."""
    return str(await _sql.successor(tx, tenant_id=caller.tenant, id=entity_id))


async def insert(tx: Connection, caller: Caller, entity: NewEntity) -> UUID:
    """A new entity's id; refused where its name is taken."""
    kind = entity.entity_type.value

    async def write() -> UUID:
        made: UUID = await _sql.insert(
            tx,
            tenant_id=caller.tenant,
            canonical_name=entity.canonical_name,
            entity_type=kind,
            aliases=list(entity.aliases),
            metadata=entity.metadata,
        )
        return made

    return await _guard_name(tx, caller, entity.canonical_name, kind, write)


async def update(tx: Connection, caller: Caller, entity_id: UUID, entity_type: str, changed: EntityChange) -> Record:
    """An entity as it is after the change; refused where its new name is taken."""

    async def write() -> Record:
        row = await _sql.change(
            tx,
            tenant_id=caller.tenant,
            id=entity_id,
            canonical_name=changed.canonical_name,
            aliases=None if changed.aliases is None else list(changed.aliases),
            metadata=changed.metadata,
        )
        return dict(row)

    return await _guard_name(tx, caller, changed.canonical_name or "", entity_type, write)


async def _guard_name(
    tx: Connection, caller: Caller, name: str, entity_type: str, write: Callable[[], Awaitable[T]]
) -> T:
    """Write under a name that the database guards, or say who has it."""
    try:
        # A savepoint: after a refusal there is one more question.
        async with tx.transaction():
            return await write()
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
    tx: Connection, caller: Caller, entity_type: str | None, *, merged: bool, most: int
) -> Sequence[Record]:
    """Entities in the order of their names: the live ones, or those that were merged away."""
    rows = _sql.list_by_name(tx, tenant_id=caller.tenant, entity_type=entity_type, merged=merged, most=most)
    return [dict(row) async for row in rows]


async def lock(tx: Connection, caller: Caller, *entity_ids: UUID) -> dict[UUID, tuple[MergeSide, str]]:
    """These live entities and their types, until the transaction ends; two that lock the same wait in line."""
    found = {}
    async for row in _sql.lock(tx, tenant_id=caller.tenant, ids=list(entity_ids)):
        party = MergeSide(row["id"], row["canonical_name"], tuple(row["aliases"]), row["metadata"])
        found[party.id] = (party, row["entity_type"])
    for entity_id in entity_ids:
        if entity_id not in found:
            raise EntityNotFound(entity_id)
        if found[entity_id][0].merged_away:
            raise await merged_away_fault(tx, caller, entity_id)
    return found


async def find_candidates(
    tx: Connection, name: str, entity_type: str | None, *, fuzzy: bool, most: int = MOST_CANDIDATES
) -> list[EntityCandidate]:
    """Live entities of the transaction's tenant that a name may mean; one that matches twice is there twice."""
    rows = _sql.candidates(tx, name=name, entity_type=entity_type, fuzzy=fuzzy, most=most)
    return [
        EntityCandidate(
            row["id"],
            row["canonical_name"],
            row["entity_type"],
            tuple(row["aliases"]),
            NameMatch(row["match"]),
            row["as_written"],
        )
        async for row in rows
    ]


async def keyword_overlaps(
    tx: Connection, caller: Caller, entity_ids: Sequence[UUID], hints: str, name: str
) -> dict[UUID, KeywordOverlap]:
    """What the hints have in common with the facts of each of these entities."""
    rows = _sql.overlaps(tx, tenant_id=caller.tenant, ids=list(entity_ids), hints=hints, name=name, most=MOST_FACTS)
    return {row["id"]: KeywordOverlap(row["shared"], row["total"]) async for row in rows}


async def live_facts(tx: Connection, caller: Caller, *entity_ids: UUID, held: bool) -> list[ConflictingFact]:
    """The live facts of these entities; held, nobody changes any fact of theirs until the transaction ends."""
    statement = _sql.lock_facts if held else _sql.live_facts
    rows = statement(tx, tenant_id=caller.tenant, ids=list(entity_ids))
    return [
        ConflictingFact(
            row["id"], row["entity_id"], row["scope"], row["predicate"], row["confidence"], row["content"]
        )
        async for row in rows
        if row["validity"] == "active"
    ]


async def supersede_facts(tx: Connection, caller: Caller, conflicts: Sequence[ConflictResolution]) -> None:
    """Take the losers of these conflicts out of every search, and name them in the facts that stay."""
    kept, gone = [each.kept.id for each in conflicts], [each.superseded.id for each in conflicts]
    await _sql.supersede_facts(tx, tenant_id=caller.tenant, superseded=gone)
    await _sql.chain_facts(tx, tenant_id=caller.tenant, kept=kept, superseded=gone)


# Every column that refers to an entity, and the statement that moves it when two entities become one. A table that
# is new and refers to entities belongs here, and a test that asks the database for them fails until it is.
ENTITY_REFERENCES: Mapping[tuple[str, str], Any] = {("facts", "entity_id"): _sql.move_facts}


async def repoint_references(
    tx: Connection, caller: Caller, source_id: UUID, target_id: UUID
) -> dict[tuple[str, str], int]:
    """Let whatever refers to one entity refer to another; how much there was, by table and column."""
    return {
        column: len(
            [row async for row in statement(tx, tenant_id=caller.tenant, source_id=source_id, target_id=target_id)]
        )
        for column, statement in ENTITY_REFERENCES.items()
    }


async def write_merge_target(
    tx: Connection, caller: Caller, entity_id: UUID, aliases: Sequence[str], metadata: Mapping[str, Any]
) -> None:
    """Give an entity what another brought into it."""
    await _sql.grow(tx, tenant_id=caller.tenant, id=entity_id, aliases=list(aliases), metadata=metadata)


async def write_merge_source(tx: Connection, caller: Caller, entity_id: UUID, metadata: Mapping[str, Any]) -> None:
    """Make an entity one that was merged away."""
    await _sql.bury(tx, tenant_id=caller.tenant, id=entity_id, metadata=metadata)
