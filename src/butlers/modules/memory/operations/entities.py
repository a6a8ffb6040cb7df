"""Operations on entities: create, get, list, update, resolve a name, merge."""

from dataclasses import asdict
from uuid import UUID

from butlers.caller import Caller
from butlers.db import WRITE_TIMEOUT_SECONDS, Connection
from butlers.modules.memory.domain import entity_merge, entity_resolution
from butlers.modules.memory.domain.entities import MERGED_INTO, EntityChange, EntityType, NewEntity, validate_name
from butlers.modules.memory.domain.entity_merge import ConflictResolution, MergeSide
from butlers.modules.memory.domain.entity_resolution import FUZZY_FROM, ResolutionHints, ScoredCandidate
from butlers.modules.memory.domain.errors import EntityMergedWithItself
from butlers.modules.memory.domain.model import MemoryType, Relation
from butlers.modules.memory.operations.change_events import append_changes
from butlers.modules.memory.operations.idempotency import Answer, Request, run_once
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import entities, events, links, states
from butlers.modules.memory.store.events import Event
from butlers.modules.memory.store.links import Link

_ENTITY = "entity"


async def create(memory: Memory, caller: Caller, entity: NewEntity, request: Request) -> Answer:
    """Create an entity; a name that is taken raises a fault with the id of its entity."""

    async def work(tx: Connection) -> Answer:
        entity_id = await entities.insert(tx, caller, entity)
        payload = {"entity_type": entity.entity_type.value}
        await events.append(tx, caller, Event("entity_created", _ENTITY, entity_id, payload))
        return {"id": str(entity_id), "entity_id": str(entity_id)}

    return await run_once(memory.transaction(caller), caller, request, work)


async def get(memory: Memory, caller: Caller, entity_id: UUID) -> Answer:
    """Return an entity; `merged_into` is the id of a merged one's successor, else None."""
    async with memory.transaction(caller) as tx:
        found = await entities.get(tx, caller, entity_id)
        is_merged = MERGED_INTO in found["metadata"]
        merged_into = await entities.successor(tx, caller, entity_id) if is_merged else None
    return {**found, "entity_id": entity_id, "merged_into": merged_into}


async def list_entities(
    memory: Memory, caller: Caller, entity_type: EntityType | None, *, merged: bool, limit: int
) -> list[Answer]:
    """Return entities by name: the live ones, or the merged ones."""
    async with memory.transaction(caller) as tx:
        return [dict(row) for row in await entities.list_by_name(tx, caller, entity_type, merged=merged, limit=limit)]


async def update(memory: Memory, caller: Caller, entity_id: UUID, change: EntityChange, request: Request) -> Answer:
    """Change the name or aliases of an entity, or add to its metadata."""

    async def work(tx: Connection) -> Answer:
        _, entity_type = (await entities.lock(tx, caller, entity_id))[entity_id]
        before = await states.fetch(tx, caller, _ENTITY, [entity_id])
        row = dict(await entities.update(tx, caller, entity_id, entity_type, change))
        await append_changes(tx, caller, "entity_updated", _ENTITY, before, {"fields": change.fields}, always=True)
        ids = {"id": str(entity_id), "entity_id": str(entity_id), "changed": change.fields}
        return {**ids, **row, "updated_at": row["updated_at"].isoformat()}

    return await run_once(memory.transaction(caller), caller, request, work)


async def resolve(
    memory: Memory, caller: Caller, name: str, entity_type: EntityType | None, hints: ResolutionHints, *, fuzzy: bool
) -> list[ScoredCandidate]:
    """Return the entities a name may refer to, best first; none is created."""
    name = validate_name("name", name)
    async with memory.transaction(caller) as tx:
        candidates = await entities.find_candidates(tx, name, entity_type, fuzzy=fuzzy and len(name) >= FUZZY_FROM)
        matches = entity_resolution.best_matches(candidates)
        ids = [each.id for each in matches]
        overlaps = await entities.keyword_overlaps(tx, caller, ids, hints.text, name) if ids and hints.text else {}
    return entity_resolution.rank_candidates(matches, overlaps, hints.domain_scores)


async def preview_merge(memory: Memory, caller: Caller, source_id: UUID, target_id: UUID) -> Answer:
    """Return both entities and, for each conflict, the fact a merge would keep; nothing changes."""
    if source_id == target_id:
        raise EntityMergedWithItself
    async with memory.transaction(caller) as tx:
        await entities.lock(tx, caller, source_id, target_id)
        source, target = [await entities.get(tx, caller, each) for each in (source_id, target_id)]
        live = await entities.live_facts(tx, caller, source_id, target_id, lock=False)
    conflicts = entity_merge.resolve_conflicts(live, source_id, target_id)
    return {"source": dict(source), "target": dict(target), "conflicts": [asdict(each) for each in conflicts]}


async def merge(memory: Memory, caller: Caller, source_id: UUID, target_id: UUID, request: Request) -> Answer:
    """Merge the source into the target: its facts and aliases move, and searches no longer find the source."""
    if source_id == target_id:
        raise EntityMergedWithItself

    async def work(tx: Connection) -> Answer:
        locked = await entities.lock(tx, caller, source_id, target_id)
        source, target = locked[source_id][0], locked[target_id][0]
        conflicts = await _supersede_conflicts(tx, caller, source, target)
        moved = await entities.repoint_references(tx, caller, source_id, target_id)
        aliases, metadata = entity_merge.merged_aliases(source, target), entity_merge.merged_metadata(source, target)
        await entities.write_merge_source(tx, caller, source_id, entity_merge.merged_away_metadata(source, target))
        await entities.write_merge_target(tx, caller, target_id, aliases, metadata)
        payload = {
            "source_entity_id": str(source_id),
            "target_entity_id": str(target_id),
            "facts_repointed": moved["facts", "entity_id"],
            "facts_superseded": len(conflicts),
            "aliases_added": len(aliases) - len(target.aliases),
        }
        await events.append(
            tx, caller, Event("entity_merge", _ENTITY, target_id, payload), *map(_superseded_event, conflicts)
        )
        return {"id": str(target_id), **payload}

    return await run_once(memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS), caller, request, work)


async def _supersede_conflicts(
    tx: Connection, caller: Caller, source: MergeSide, target: MergeSide
) -> list[ConflictResolution]:
    """Supersede one of the two live facts under each key that both entities have."""
    live = await entities.live_facts(tx, caller, source.id, target.id, lock=True)
    conflicts = entity_merge.resolve_conflicts(live, source.id, target.id)
    # Before any fact moves: two live facts under one key are never allowed.
    await entities.supersede_facts(tx, caller, conflicts)
    supersedes = [
        Link(MemoryType.FACT, each.kept.id, MemoryType.FACT, each.superseded.id, Relation.SUPERSEDES)
        for each in conflicts
    ]
    await links.create_links(tx, caller, supersedes)
    return conflicts


def _superseded_event(conflict: ConflictResolution) -> Event:
    payload = {"superseded_by": str(conflict.kept.id), "by": "entity_merge"}
    return events.fact_superseded(conflict.superseded.id, conflict.superseded.confidence, payload)
