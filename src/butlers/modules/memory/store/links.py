"""Edges between memories: where a memory came from and what it replaced."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.model import MemoryType, Relation
from butlers.modules.memory.store.statements import statements

_sql = statements("links")


@dataclass(frozen=True, slots=True)
class Link:
    """A directed edge."""

    source_type: MemoryType
    source_id: UUID
    target_type: MemoryType
    target_id: UUID
    relation: Relation


async def create_link(tx: Connection, caller: Caller, link: Link) -> None:
    """Make an edge; one that is there already stays as it is."""
    await _sql.insert(
        tx,
        tenant_id=caller.tenant,
        source_type=link.source_type.value,
        source_id=link.source_id,
        target_type=link.target_type.value,
        target_id=link.target_id,
        relation=link.relation.value,
    )


async def create_links(tx: Connection, caller: Caller, links: Sequence[Link]) -> None:
    """Make several edges at once."""
    await _sql.insert_all(
        tx,
        tenant_id=caller.tenant,
        source_types=[link.source_type.value for link in links],
        source_ids=[link.source_id for link in links],
        target_types=[link.target_type.value for link in links],
        target_ids=[link.target_id for link in links],
        relations=[link.relation.value for link in links],
    )


async def is_independent(
    tx: Connection, caller: Caller, memory_type: MemoryType, memory_id: UUID, episode_ids: Sequence[UUID]
) -> bool:
    """Whether one of these episodes is neither one the memory came from, nor of the same session as one of those."""
    return bool(
        await _sql.is_independent(
            tx,
            tenant_id=caller.tenant,
            memory_type=memory_type.value,
            memory_id=memory_id,
            episode_ids=list(episode_ids),
        )
    )


async def of_memory(
    tx: Connection, caller: Caller, memory_type: MemoryType, memory_id: UUID, *, outgoing: bool, incoming: bool
) -> Sequence[Mapping[str, Any]]:
    """The edges of one memory, in the directions asked for."""
    rows = _sql.of_memory(
        tx,
        tenant_id=caller.tenant,
        memory_type=memory_type.value,
        memory_id=memory_id,
        outgoing=outgoing,
        incoming=incoming,
    )
    return [dict(row) async for row in rows]
