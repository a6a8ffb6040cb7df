"""Memories whose vectors another version made, and their new ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pgvector import Vector

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.model import MemoryType, fact_text
from butlers.modules.memory.store.statements import statements

_sql = statements("reembedding")
_STALE: Mapping[MemoryType, Any] = {
    MemoryType.FACT: _sql.stale_facts,
    MemoryType.RULE: _sql.stale_rules,
    MemoryType.EPISODE: _sql.stale_episodes,
}
_RENEW: Mapping[MemoryType, Any] = {
    MemoryType.FACT: _sql.renew_facts,
    MemoryType.RULE: _sql.renew_rules,
    MemoryType.EPISODE: _sql.renew_episodes,
}


@dataclass(frozen=True, slots=True)
class StaleMemory:
    """A memory to be embedded anew: what it says, and the text its vector is made of."""

    id: UUID
    content: str
    searchable: str


async def has_stale(tx: Connection, caller: Caller, version: UUID) -> bool:
    """Whether the tenant has a memory that this version did not embed."""
    return bool(await _sql.is_stale(tx, tenant_id=caller.tenant, version=version))


async def count_stale(tx: Connection, caller: Caller, version: UUID) -> int:
    """How many memories this version did not embed."""
    counted: int = await _sql.count_stale(tx, tenant_id=caller.tenant, version=version)
    return counted


async def fetch_stale(
    tx: Connection, caller: Caller, kind: MemoryType, version: UUID, after: UUID, most: int
) -> list[StaleMemory]:
    """The next memories of that kind behind an id that this version did not embed."""
    rows = _STALE[kind](tx, tenant_id=caller.tenant, version=version, after=after, most=most)
    return [StaleMemory(row["id"], row["content"], _searchable(kind, row)) async for row in rows]


def _searchable(kind: MemoryType, row: Any) -> str:
    """The same text as when it was written."""
    if kind is MemoryType.FACT:
        return fact_text(row["subject"], row["predicate"], row["content"])
    return str(row["content"])


async def write_embeddings(
    tx: Connection,
    caller: Caller,
    kind: MemoryType,
    version: UUID,
    memories: Sequence[StaleMemory],
    vectors: Sequence[Sequence[float]],
) -> int:
    """Give memories their new vectors; how many were still the same."""
    rows = _RENEW[kind](
        tx,
        tenant_id=caller.tenant,
        version=version,
        ids=[memory.id for memory in memories],
        contents=[memory.content for memory in memories],
        # A list of lists would be taken for an array of two dimensions.
        vectors=[Vector(list(vector)) for vector in vectors],
    )
    return len([row async for row in rows])
