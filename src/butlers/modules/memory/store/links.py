"""Queries on the memory_links table."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.model import MemoryType, Relation
from butlers.modules.memory.store.statements import statements

_sql = statements("links")


@dataclass(frozen=True, slots=True)
class Link:
    """A directed link between two memories."""

    source_type: MemoryType
    source_id: UUID
    target_type: MemoryType
    target_id: UUID
    relation: Relation


async def create_link(tx: Connection, caller: Caller, link: Link) -> None:
    """Create a link; an existing one stays as it is."""
    await _sql.create_link(tx, tenant_id=caller.tenant, **asdict(link))


async def create_links(tx: Connection, caller: Caller, links: Sequence[Link]) -> None:
    """Create several links."""
    await _sql.create_links(
        tx,
        tenant_id=caller.tenant,
        source_types=[link.source_type for link in links],
        source_ids=[link.source_id for link in links],
        target_types=[link.target_type for link in links],
        target_ids=[link.target_id for link in links],
        relations=[link.relation for link in links],
    )


async def is_independent(
    tx: Connection, caller: Caller, memory_type: MemoryType, memory_id: UUID, episode_ids: Sequence[UUID]
) -> bool:
    """Whether one of these episodes is neither a source of the memory nor of the same session as one."""
    return bool(
        await _sql.is_independent(
            tx, tenant_id=caller.tenant, memory_type=memory_type, memory_id=memory_id, episode_ids=list(episode_ids)
        )
    )


async def of_memory(
    tx: Connection, caller: Caller, memory_type: MemoryType, memory_id: UUID, *, outgoing: bool, incoming: bool
) -> Sequence[Mapping[str, Any]]:
    """The links of one memory in the given directions."""
    rows = _sql.of_memory(
        tx,
        tenant_id=caller.tenant,
        memory_type=memory_type,
        memory_id=memory_id,
        outgoing=outgoing,
        incoming=incoming,
    )
    return [dict(row) async for row in rows]


async def is_linked(tx: Connection, caller: Caller, memory_type: str, memory_id: UUID, other_id: UUID) -> bool:
    """Whether two memories of one type are linked, in either direction."""
    return bool(
        await _sql.is_linked(tx, tenant_id=caller.tenant, memory_type=memory_type, id=memory_id, other_id=other_id)
    )


async def delete_related(tx: Connection, caller: Caller, memory_type: str, memory_id: UUID, other_id: UUID) -> None:
    """Delete the link that says that two memories of one type are both true."""
    await _sql.delete_related(tx, tenant_id=caller.tenant, memory_type=memory_type, id=memory_id, other_id=other_id)


async def settle_contradiction(
    tx: Connection, caller: Caller, memory_type: str, memory_id: UUID, other_id: UUID
) -> bool:
    """Let two memories that contradict each other hold together; False where no link says that they do."""
    settled = await _sql.settle_contradiction(
        tx, tenant_id=caller.tenant, memory_type=memory_type, id=memory_id, other_id=other_id
    )
    return settled is not None
