"""Queries on the memory_events table, the audit trail; events hold no content."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.store.statements import statements

_sql = statements("events")


@dataclass(frozen=True, slots=True)
class Event:
    """A change of one memory or entity."""

    event_type: str
    entity_type: str
    entity_id: UUID
    payload: Mapping[str, Any] = field(default_factory=dict)


def caller_payload(caller: Caller) -> dict[str, Any]:
    """The butler, session and, for an elevated call, the home tenant of a caller; part of every event."""
    known = {"butler": caller.butler, "elevated_from": caller.home_tenant, "session_id": caller.session_id}
    return {name: value for name, value in known.items() if value is not None}


async def append(tx: Connection, caller: Caller, *events: Event) -> None:
    """Append the events of a change, in its transaction."""
    origin = caller_payload(caller)
    await _sql.append(
        tx,
        tenant_id=caller.tenant,
        event_types=[event.event_type for event in events],
        entity_types=[event.entity_type for event in events],
        entity_ids=[event.entity_id for event in events],
        actor=caller.actor,
        request_id=caller.request_id,
        payloads=[{**origin, **event.payload} for event in events],
    )


async def of_memory(
    tx: Connection, caller: Caller, memory_type: str, memory_id: UUID, limit: int
) -> Sequence[Mapping[str, Any]]:
    """The events of one memory, oldest first."""
    rows = _sql.of_memory(tx, tenant_id=caller.tenant, entity_type=memory_type, entity_id=memory_id, max_rows=limit)
    return [dict(row) async for row in rows]
