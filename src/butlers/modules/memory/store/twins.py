"""Queries for near-duplicates: the newest facts and rules with their vectors, and entities with one name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.store.statements import statements

_sql = statements("twins")

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two records that may be one, and how similar they are."""

    id: UUID
    other_id: UUID
    similarity: float


async def newest_facts(tx: Connection, caller: Caller, version: UUID, limit: int) -> list[Record]:
    """The newest live facts with their vectors."""
    rows = _sql.newest_facts(tx, tenant_id=caller.tenant, version=version, max_rows=limit)
    return [{**row, "embedding": row["embedding"].to_numpy()} async for row in rows]


async def newest_rules(tx: Connection, caller: Caller, version: UUID, limit: int) -> list[Record]:
    """The newest live rules with their vectors."""
    rows = _sql.newest_rules(tx, tenant_id=caller.tenant, version=version, max_rows=limit)
    return [{**row, "embedding": row["embedding"].to_numpy()} async for row in rows]


async def unlinked(tx: Connection, caller: Caller, memory_type: str, pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs that no link connects."""
    rows = _sql.linked_pairs(
        tx,
        tenant_id=caller.tenant,
        memory_type=memory_type,
        ids=[each.id for each in pairs],
        other_ids=[each.other_id for each in pairs],
    )
    linked = {(row["id"], row["other_id"]) async for row in rows}
    return [each for each in pairs if (each.id, each.other_id) not in linked]


async def contradicting_facts(tx: Connection, caller: Caller, limit: int) -> list[Pair]:
    """The newest pairs of live facts of which one contradicts the other."""
    rows = _sql.contradicting_facts(tx, tenant_id=caller.tenant, max_rows=limit)
    return [Pair(**row) async for row in rows]


async def entity_pairs(tx: Connection, caller: Caller, newest: int, limit: int) -> list[Pair]:
    """Pairs of live entities with one name, one of them among the newest."""
    rows = _sql.entity_pairs(tx, tenant_id=caller.tenant, max_newest=newest, max_rows=limit)
    return [Pair(**row) async for row in rows]
