"""Queries on memories without a vector of the embedding version in use."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from pgvector import Vector

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.model import MemoryType, fact_text
from butlers.modules.memory.store.statements import statements

_sql = statements("reembedding")


@dataclass(frozen=True, slots=True)
class StaleMemory:
    """A memory to embed again; only a fact has a subject and a predicate."""

    id: UUID
    subject: str | None
    predicate: str | None
    content: str

    @property
    def searchable(self) -> str:
        """The text that was embedded when the memory was stored."""
        if self.subject is None or self.predicate is None:
            return self.content
        return fact_text(self.subject, self.predicate, self.content)


async def has_stale(tx: Connection, caller: Caller, version: UUID) -> bool:
    """Whether the tenant has a memory without a vector of this version."""
    return bool(await _sql.has_stale(tx, tenant_id=caller.tenant, version=version))


async def count_stale(tx: Connection, caller: Caller, version: UUID) -> int:
    """The number of memories without a vector of this version."""
    return int(await _sql.count_stale(tx, tenant_id=caller.tenant, version=version))


async def fetch_stale(
    tx: Connection, caller: Caller, memory_type: MemoryType, version: UUID, after: UUID, limit: int
) -> list[StaleMemory]:
    """The next memories of a type after an id without a vector of this version."""
    rows = _sql.fetch_stale(
        tx, tenant_id=caller.tenant, memory_type=memory_type, version=version, after=after, max_rows=limit
    )
    return [StaleMemory(**row) async for row in rows]


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
        memory_type=memory_type,
        version=version,
        ids=[memory.id for memory in memories],
        contents=[memory.content for memory in memories],
        # asyncpg would read a list of lists as an array of two dimensions.
        vectors=[Vector(list(vector)) for vector in vectors],
    )
    return count
