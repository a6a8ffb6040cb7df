"""Queries of the dashboard on one memory or entity. They change nothing."""

from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.store.statements import statements
from butlers.modules.memory.store.viewing import Record

_sql = statements("viewing_details")


async def _rows(rows: Any) -> list[Record]:
    return [dict(row) async for row in rows]


async def memory(
    tx: Connection, caller: Caller, memory_type: str, memory_id: UUID, max_characters: int
) -> Record | None:
    """A memory in any state, with the beginning of its content."""
    statement = getattr(_sql, memory_type)
    row = await statement(tx, tenant_id=caller.tenant, id=memory_id, max_characters=max_characters)
    return dict(row) if row else None


async def entity(tx: Connection, caller: Caller, entity_id: UUID) -> Record | None:
    """An entity, merged or not."""
    row = await _sql.entity(tx, tenant_id=caller.tenant, id=entity_id)
    return dict(row) if row else None


async def events(tx: Connection, caller: Caller, entity_type: str, entity_id: UUID, limit: int) -> list[Record]:
    """The latest events of one memory or entity, newest first."""
    return await _rows(
        _sql.events(tx, tenant_id=caller.tenant, entity_type=entity_type, entity_id=entity_id, max_rows=limit)
    )


async def superseded(
    tx: Connection, caller: Caller, fact_id: UUID, max_characters: int, limit: int
) -> tuple[list[Record], list[Record]]:
    """The facts that a fact superseded, latest first: as versions of it, and in merges of entities."""
    values = {"tenant_id": caller.tenant, "id": fact_id, "max_characters": max_characters, "max_rows": limit}
    return await _rows(_sql.superseded(tx, **values)), await _rows(_sql.superseded_in_merges(tx, **values))


async def superseding(tx: Connection, caller: Caller, fact_id: UUID, max_characters: int, limit: int) -> list[Record]:
    """The facts that superseded a fact, earliest first."""
    return await _rows(
        _sql.superseding(tx, tenant_id=caller.tenant, id=fact_id, max_characters=max_characters, max_rows=limit)
    )


async def evidence(
    tx: Connection, caller: Caller, memory_type: str, memory_id: UUID, max_characters: int, limit: int
) -> list[Record]:
    """The episodes that a memory is derived from or supported by, deleted ones included."""
    return await _rows(
        _sql.evidence(
            tx,
            tenant_id=caller.tenant,
            memory_type=memory_type,
            id=memory_id,
            max_characters=max_characters,
            max_rows=limit,
        )
    )


async def run(tx: Connection, caller: Caller, run_id: UUID) -> Record | None:
    """A consolidation run."""
    row = await _sql.run(tx, tenant_id=caller.tenant, id=run_id)
    return dict(row) if row else None


async def marks(tx: Connection, caller: Caller, rule_id: UUID, limit: int) -> list[Record]:
    """The latest marks on a rule, newest first."""
    return await _rows(_sql.marks(tx, tenant_id=caller.tenant, rule_id=rule_id, max_rows=limit))


async def derived(tx: Connection, caller: Caller, episode_id: UUID, max_characters: int, limit: int) -> list[Record]:
    """The facts and rules that come from an episode or are supported by it."""
    return await _rows(
        _sql.derived(
            tx, tenant_id=caller.tenant, episode_id=episode_id, max_characters=max_characters, max_rows=limit
        )
    )


async def facts_of_entity(
    tx: Connection, caller: Caller, entity_id: UUID, max_characters: int, limit: int
) -> list[Record]:
    """The live facts of an entity by scope and predicate."""
    return await _rows(
        _sql.facts_of_entity(
            tx, tenant_id=caller.tenant, entity_id=entity_id, max_characters=max_characters, max_rows=limit
        )
    )


async def changes_of_entity(
    tx: Connection, caller: Caller, entity_id: UUID, max_facts: int, limit: int
) -> list[Record]:
    """The latest events of an entity and of its facts, newest first."""
    return await _rows(
        _sql.changes_of_entity(tx, tenant_id=caller.tenant, entity_id=entity_id, max_facts=max_facts, max_rows=limit)
    )


async def namesakes(tx: Connection, caller: Caller, entity_id: UUID, names: list[str], limit: int) -> list[Record]:
    """Other live entities with one of these names."""
    return await _rows(_sql.namesakes(tx, tenant_id=caller.tenant, id=entity_id, names=names, max_rows=limit))
