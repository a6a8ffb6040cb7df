"""Knowing whom a fact is about: entities are made, found by name, changed, and merged where two are one."""

from dataclasses import asdict
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import WRITE_TIMEOUT_SECONDS, Connection
from butlers.modules.memory.domain import entity_merge, entity_resolution
from butlers.modules.memory.domain.entities import MERGED_INTO, EntityChange, EntityType, NewEntity, validate_name
from butlers.modules.memory.domain.entity_merge import ConflictResolution, MergeSide
from butlers.modules.memory.domain.entity_resolution import FUZZY_FROM, ResolutionHints, ScoredCandidate
from butlers.modules.memory.domain.errors import EntityMergedWithItself
from butlers.modules.memory.domain.model import MemoryType, Relation
from butlers.modules.memory.operations.idempotency import Answer, Request, run_once
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import entities, events, links
from butlers.modules.memory.store.events import Event
from butlers.modules.memory.store.links import Link

_ENTITY = "entity"


async def create(memory: Memory, caller: Caller, entity: NewEntity, request: Request) -> Answer:
    """Know somebody new; the name of one who is known already is refused, and who has it is said."""
    async with memory.transaction(caller) as tx:

        async def work() -> Answer:
            entity_id = await entities.insert(tx, caller, entity)
            payload = {"entity_type": entity.entity_type.value}
            await events.append(tx, caller, Event("entity_created", _ENTITY, entity_id, payload))
            return {"id": str(entity_id), "entity_id": str(entity_id)}

        return await run_once(tx, caller, request, work)


async def get(memory: Memory, caller: Caller, entity_id: UUID) -> Answer:
    """A whole entity; one that was merged away says which stands for it now."""
    async with memory.transaction(caller) as tx:
        found = dict(await entities.get(tx, caller, entity_id))
        if MERGED_INTO in found["metadata"]:
            found["merged_into"] = await entities.successor(tx, caller, entity_id)
    return {**found, "entity_id": entity_id}


async def list_entities(
    memory: Memory, caller: Caller, entity_type: EntityType | None, *, merged: bool, limit: int
) -> list[Answer]:
    """Entities in the order of their names: the live ones, or those that were merged away."""
    async with memory.transaction(caller) as tx:
        return [dict(row) for row in await entities.list_by_name(tx, caller, entity_type, merged=merged, limit=limit)]


async def update(memory: Memory, caller: Caller, entity_id: UUID, changed: EntityChange, request: Request) -> Answer:
    """Give an entity another name or other aliases, or add to its metadata."""
    async with memory.transaction(caller) as tx:

        async def work() -> Answer:
            _, entity_type = (await entities.lock(tx, caller, entity_id))[entity_id]
            after = dict(await entities.update(tx, caller, entity_id, entity_type, changed))
            await events.append(tx, caller, Event("entity_updated", _ENTITY, entity_id, {"fields": changed.fields}))
            updated_at = after["updated_at"].isoformat()
            told = {"id": str(entity_id), "entity_id": str(entity_id), "changed": changed.fields}
            return {**told, **after, "updated_at": updated_at}

        return await run_once(tx, caller, request, work)


async def resolve(
    memory: Memory, caller: Caller, name: str, entity_type: EntityType | None, hints: ResolutionHints, *, fuzzy: bool
) -> list[ScoredCandidate]:
    """Whom a name may mean, the likeliest first; nobody is made up."""
    asked = validate_name("name", name)
    async with memory.transaction(caller) as tx:
        found = await entities.find_candidates(tx, asked, entity_type, fuzzy=fuzzy and len(asked) >= FUZZY_FROM)
        matches = entity_resolution.best_matches(found)
        ids = [each.id for each in matches]
        overlaps = await entities.keyword_overlaps(tx, caller, ids, hints.text, asked) if ids and hints.text else {}
    return entity_resolution.rank_candidates(matches, overlaps, hints.domain_scores)


async def preview_merge(memory: Memory, caller: Caller, source_id: UUID, target_id: UUID) -> Answer:
    """What a merge would do: the two as they are, and each conflict with the fact that would stay."""
    if source_id == target_id:
        raise EntityMergedWithItself
    async with memory.transaction(caller) as tx:
        await entities.lock(tx, caller, source_id, target_id)
        source, target = [await entities.get(tx, caller, each) for each in (source_id, target_id)]
        known = await entities.live_facts(tx, caller, source_id, target_id, lock=False)
    conflicts = entity_merge.resolve_conflicts(known, source_id, target_id)
    return {"source": dict(source), "target": dict(target), "conflicts": [asdict(each) for each in conflicts]}


async def merge(memory: Memory, caller: Caller, source_id: UUID, target_id: UUID, request: Request) -> Answer:
    """Make two entities one: what is known of the source is known of the target, and the source is out of sight."""
    if source_id == target_id:
        raise EntityMergedWithItself
    async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:

        async def work() -> Answer:
            locked = await entities.lock(tx, caller, source_id, target_id)
            source, target = locked[source_id][0], locked[target_id][0]
            conflicts = await _supersede_conflicts(tx, caller, source, target)
            moved = await entities.repoint_references(tx, caller, source_id, target_id)
            aliases = entity_merge.merged_aliases(source, target)
            await entities.write_merge_source(
                tx, caller, source_id, entity_merge.merged_away_metadata(source, target)
            )
            await entities.write_merge_target(
                tx, caller, target_id, aliases, entity_merge.merged_metadata(source, target)
            )
            counts = {
                "facts_repointed": moved["facts", "entity_id"],
                "facts_superseded": len(conflicts),
                "aliases_added": len(aliases) - len(target.aliases),
            }
            return await _record_merge(tx, caller, source, target, counts, conflicts)

        return await run_once(tx, caller, request, work)


async def _supersede_conflicts(
    tx: Connection, caller: Caller, source: MergeSide, target: MergeSide
) -> list[ConflictResolution]:
    """Leave one live fact under each key that both have."""
    known = await entities.live_facts(tx, caller, source.id, target.id, lock=True)
    conflicts = entity_merge.resolve_conflicts(known, source.id, target.id)
    # Before anything moves: at no moment are there two live facts under one key.
    await entities.supersede_facts(tx, caller, conflicts)
    edges = [
        Link(MemoryType.FACT, each.kept.id, MemoryType.FACT, each.superseded.id, Relation.SUPERSEDES)
        for each in conflicts
    ]
    await links.create_links(tx, caller, edges)
    return conflicts


async def _record_merge(
    tx: Connection,
    caller: Caller,
    source: MergeSide,
    target: MergeSide,
    counts: dict[str, int],
    conflicts: list[ConflictResolution],
) -> Answer:
    about: dict[str, Any] = {"source_entity_id": str(source.id), "target_entity_id": str(target.id), **counts}
    superseded = (
        Event(
            "fact_superseded",
            MemoryType.FACT,
            each.superseded.id,
            {"superseded_by": str(each.kept.id), "by": "entity_merge"},
        )
        for each in conflicts
    )
    await events.append(tx, caller, Event("entity_merge", _ENTITY, target.id, about), *superseded)
    return {"id": str(target.id), **about}
