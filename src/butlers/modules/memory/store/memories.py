"""Memories of any kind, by id."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.store.statements import statements

_sql = statements("memories")

Record = Mapping[str, Any]


async def mark_referenced(
    tx: Connection, caller: Caller, *, facts: Sequence[UUID], rules: Sequence[UUID]
) -> dict[UUID, Record]:
    """Note that these were referenced, and give them."""
    # In id order: two recalls of the same memories must not wait for each other in a circle.
    rows = _sql.touch(tx, tenant_id=caller.tenant, fact_ids=sorted(facts), rule_ids=sorted(rules))
    return {row["id"]: dict(row) async for row in rows}


async def fetch_many(
    tx: Connection, caller: Caller, *, facts: Sequence[UUID], rules: Sequence[UUID], episodes: Sequence[UUID]
) -> dict[UUID, Record]:
    """Give these, as a list shows them."""
    rows = _sql.show(
        tx, tenant_id=caller.tenant, fact_ids=list(facts), rule_ids=list(rules), episode_ids=list(episodes)
    )
    return {row["id"]: dict(row) async for row in rows}


async def get(tx: Connection, caller: Caller, memory_type: MemoryType, memory_id: UUID) -> Record | None:
    """A whole memory, noted as referenced."""
    statement = {
        MemoryType.FACT: _sql.get_fact,
        MemoryType.RULE: _sql.get_rule,
        MemoryType.EPISODE: _sql.get_episode,
    }[memory_type]
    row = await statement(tx, tenant_id=caller.tenant, id=memory_id)
    return dict(row) if row else None


async def lifecycle_state(tx: Connection, caller: Caller, memory_type: MemoryType, memory_id: UUID) -> str | None:
    """Where a memory stands in its life; None when there is none."""
    statement = {
        MemoryType.FACT: _sql.state_of_fact,
        MemoryType.RULE: _sql.state_of_rule,
        MemoryType.EPISODE: _sql.state_of_episode,
    }[memory_type]
    found: str | None = await statement(tx, tenant_id=caller.tenant, id=memory_id)
    return found
