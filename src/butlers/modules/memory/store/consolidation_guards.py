"""Queries of the guards of consolidation: what sessions were told, what is near a new memory, predicates in use."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.fact_comparison import Statement
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.store.embedding_versions import EmbeddedText
from butlers.modules.memory.store.statements import statements

_sql = statements("consolidation_guards")
MAX_COMPARED = 2_000
"""The newest facts of a subject, or of a tenant, that are looked at."""


@dataclass(frozen=True, slots=True)
class NearMemory:
    """A memory near a new one."""

    id: UUID
    subject: str | None
    predicate: str | None
    content: str
    similarity: float

    @property
    def statement(self) -> Statement:
        """What it says."""
        return Statement(self.content, self.subject or "", self.predicate or "")


async def told_memories(tx: Connection, caller: Caller, episode_ids: Sequence[UUID]) -> dict[UUID, list[UUID]]:
    """The memories that the session of each episode was told; an episode whose session was told none is left out."""
    rows = _sql.told_memories(tx, tenant_id=caller.tenant, episode_ids=list(episode_ids))
    return {row["episode_id"]: row["memory_ids"] async for row in rows}


async def near_memories(
    tx: Connection,
    caller: Caller,
    memory_type: MemoryType,
    ids: Sequence[UUID],
    embedded: EmbeddedText,
    min_similarity: float,
) -> list[NearMemory]:
    """Those of these memories, in any state, that are near a new one, the nearest first."""
    rows = _sql.near_memories(
        tx,
        tenant_id=caller.tenant,
        memory_type=memory_type,
        ids=list(ids),
        version=embedded.embedding_version_id,
        embedding=embedded.embedding,
        min_similarity=min_similarity,
    )
    return [NearMemory(**row) async for row in rows]


async def near_facts(
    tx: Connection,
    caller: Caller,
    subject: str,
    embedded: EmbeddedText,
    scopes: Sequence[str],
    min_similarity: float,
    limit: int,
) -> list[NearMemory]:
    """The live facts about a subject that are near a new one, the nearest first."""
    rows = _sql.near_facts(
        tx,
        tenant_id=caller.tenant,
        subject=subject,
        scopes=list(scopes),
        version=embedded.embedding_version_id,
        embedding=embedded.embedding,
        min_similarity=min_similarity,
        max_compared=MAX_COMPARED,
        max_rows=limit,
    )
    return [NearMemory(**row) async for row in rows]


async def frequent_predicates(tx: Connection, caller: Caller, scopes: Sequence[str], limit: int) -> list[str]:
    """The predicates of the tenant's facts in scope, the most frequent first."""
    rows = _sql.frequent_predicates(
        tx, tenant_id=caller.tenant, scopes=list(scopes), max_compared=MAX_COMPARED, max_rows=limit
    )
    return [row["predicate"] async for row in rows]
