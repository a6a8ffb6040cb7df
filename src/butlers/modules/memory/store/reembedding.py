"""Queries on memories without a vector of the embedding version in use."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pgvector import Vector

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.model import MemoryType, fact_text
from butlers.modules.memory.store.statements import statements

_sql = statements("reembedding")


@dataclass(frozen=True, slots=True)
class StaleMemory:
    """A memory to embed again: its content, and the text its vector is made of."""

    id: UUID
    content: str
    searchable: str


async def has_stale(tx: Connection, caller: Caller, version: UUID) -> bool:
    """Whether the tenant has a memory without a vector of this version."""
    return bool(await _sql.has_stale(tx, tenant_id=caller.tenant, version=version))


async def count_stale(tx: Connection, caller: Caller, version: UUID) -> int:
    """The number of memories without a vector of this version."""
    count: int = await _sql.count_stale(tx, tenant_id=caller.tenant, version=version)
    return count


async def fetch_stale(
    tx: Connection, caller: Caller, memory_type: MemoryType, version: UUID, after: UUID, limit: int
) -> list[StaleMemory]:
    """The next memories of a type after an id without a vector of this version."""
    rows = _sql.fetch_stale(
        tx, tenant_id=caller.tenant, memory_type=memory_type.value, version=version, after=after, max_rows=limit
    )
    return [StaleMemory(row["id"], row["content"], _searchable(memory_type, row)) async for row in rows]


def _searchable(memory_type: MemoryType, row: Any) -> str:
    """The text that was embedded when the memory was stored."""
    if memory_type is MemoryType.FACT:
        return fact_text(row["subject"], row["predicate"], row["content"])
    return str(row["content"])


async def write_embeddings(
    tx: Connection,
    caller: Caller,
    memory_type: MemoryType,
    version: UUID,
    memories: Sequence[StaleMemory],
    vectors: Sequence[Sequence[float]],
) -> int:
    """Write new vectors; returns the number of memories whose content had not changed meanwhile."""
    count: int = await _sql.write_embeddings(
        tx,
        tenant_id=caller.tenant,
        memory_type=memory_type.value,
        version=version,
        ids=[memory.id for memory in memories],
        contents=[memory.content for memory in memories],
        # asyncpg would read a list of lists as an array of two dimensions.
        vectors=[Vector(list(vector)) for vector in vectors],
    )
    return count
