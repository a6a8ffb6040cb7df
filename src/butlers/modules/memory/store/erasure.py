"""Deleting for good, and looking whether anything is left."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.store.statements import statements

_sql = statements("erasure")
_ERASE = {
    MemoryType.FACT: _sql.erase_fact,
    MemoryType.RULE: _sql.erase_rule,
    MemoryType.EPISODE: _sql.erase_episode,
}
# In an order in which nothing refers to what goes.
TABLES: Mapping[str, Any] = {
    "memory_links": _sql.some_links,
    "facts": _sql.some_facts,
    "rules": _sql.some_rules,
    "episodes": _sql.some_episodes,
    "entities": _sql.some_entities,
    "sessions": _sql.some_sessions,
    "idempotency_keys": _sql.some_answers,
    "consolidation_runs": _sql.some_runs,
    "job_runs": _sql.some_job_runs,
}


@dataclass(frozen=True, slots=True)
class ErasedEntity:
    """An entity that was erased."""

    id: UUID
    names: Sequence[str]


async def erase_memory(tx: Connection, caller: Caller, kind: MemoryType, memory_id: UUID) -> str | None:
    """Delete a memory; what it said, or None when there was none."""
    said: str | None = await _ERASE[kind](tx, tenant_id=caller.tenant, id=memory_id)
    return said


async def erase_traces(tx: Connection, caller: Caller, kind: MemoryType, ids: Sequence[UUID]) -> None:
    """Delete the edges of memories that are no more, and kept answers that name them."""
    await _sql.erase_links(tx, tenant_id=caller.tenant, memory_type=kind.value, ids=list(ids))
    await erase_stored_answers(tx, caller, ids)


async def erase_stored_answers(tx: Connection, caller: Caller, ids: Sequence[UUID]) -> None:
    """Delete kept answers that name what is no more."""
    await _sql.erase_answers(tx, tenant_id=caller.tenant, ids=[str(each) for each in ids])


async def erase_facts_of_entity(tx: Connection, caller: Caller, entity_id: UUID) -> list[UUID]:
    """Delete every fact about an entity; which there were."""
    rows = _sql.erase_facts_of_entity(tx, tenant_id=caller.tenant, entity_id=entity_id)
    return [row["id"] async for row in rows]


async def erase_entity(tx: Connection, caller: Caller, entity_id: UUID) -> list[ErasedEntity]:
    """Delete an entity and those that were merged into it; which there were."""
    rows = _sql.erase_entity(tx, tenant_id=caller.tenant, entity_id=entity_id)
    return [ErasedEntity(row["id"], [row["canonical_name"], *row["aliases"]]) async for row in rows]


async def erase_rows(tx: Connection, caller: Caller, table: str, most: int) -> int:
    """Delete some of a tenant's rows of a table; how many there were."""
    gone: int = await TABLES[table](tx, tenant_id=caller.tenant, most=most)
    return gone


async def count_remaining(tx: Connection, caller: Caller) -> dict[str, int]:
    """What there is of a tenant, table by table."""
    return dict(await _sql.left_of_tenant(tx, tenant_id=caller.tenant))


async def find_mentions(tx: Connection, caller: Caller, words: str, most: int) -> list[tuple[str, UUID]]:
    """Where these words still stand, as kind and id."""
    rows = _sql.still_said(tx, tenant_id=caller.tenant, words=words, most=most)
    return [(row["kind"], row["id"]) async for row in rows]
