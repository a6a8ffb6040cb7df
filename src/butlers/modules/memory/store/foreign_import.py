"""Queries for imports from other systems: records that the tenant has already, keys that are taken, past imports."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.store.statements import statements

_sql = statements("foreign_import")


async def known_memories(
    tx: Connection, caller: Caller, memory_type: MemoryType, ids: Sequence[UUID]
) -> dict[UUID, str]:
    """Those of these memories that the tenant has, in any state, each with the MD5 digest of its content."""
    rows = _sql.known_memories(tx, tenant_id=caller.tenant, memory_type=memory_type, ids=list(ids))
    return {row["id"]: row["digest"] async for row in rows}


async def recorded_sessions(tx: Connection, caller: Caller, session_ids: Sequence[UUID]) -> set[UUID]:
    """Those of these sessions that have an episode."""
    rows = _sql.recorded_sessions(tx, tenant_id=caller.tenant, session_ids=list(session_ids))
    return {row["session_id"] async for row in rows}


async def known_entities(tx: Connection, caller: Caller, ids: Sequence[UUID]) -> dict[UUID, UUID]:
    """Those of these entities that the tenant has, each with itself or the live entity it was merged into."""
    rows = _sql.known_entities(tx, tenant_id=caller.tenant, ids=list(ids))
    return {row["asked"]: row["id"] async for row in rows}


async def entities_named(tx: Connection, caller: Caller, names: Sequence[str]) -> dict[str, list[tuple[UUID, str]]]:
    """The ids and types of the live entities with these lower-case names."""
    found: dict[str, list[tuple[UUID, str]]] = {}
    async for row in _sql.entities_named(tx, tenant_id=caller.tenant, names=list(names)):
        found.setdefault(row["name"], []).append((row["id"], row["entity_type"]))
    return found


async def held_keys(tx: Connection, caller: Caller, keys: Sequence[Mapping[str, Any]]) -> set[int]:
    """The numbers of those keys that a live fact has."""
    return {row["number"] async for row in _sql.held_keys(tx, tenant_id=caller.tenant, records=keys)}


async def imported_ids(tx: Connection, caller: Caller, import_id: UUID) -> dict[str, list[UUID]]:
    """The ids of the records that an import brought, by kind."""
    found: dict[str, list[UUID]] = {}
    async for row in _sql.imported_ids(tx, tenant_id=caller.tenant, import_id=import_id):
        found.setdefault(row["kind"], []).extend(UUID(each) for each in row["ids"])
    return found


async def get_import(tx: Connection, caller: Caller, import_id: UUID) -> dict[str, Any] | None:
    """The time, counts and origin of an import."""
    row = await _sql.get_import(tx, tenant_id=caller.tenant, import_id=import_id)
    return dict(row) if row else None


async def list_imports(tx: Connection, caller: Caller, max_rows: int) -> list[dict[str, Any]]:
    """The times, counts and origins of the newest imports."""
    return [dict(row) async for row in _sql.list_imports(tx, tenant_id=caller.tenant, max_rows=max_rows)]
