"""Queries of the dashboard's lists. They change nothing."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.store.statements import statements

_sql = statements("viewing_lists")
MAX_LIST_CHARACTERS = 400
MAX_MARKS = 40

Record = Mapping[str, Any]


async def matching(tx: Connection, caller: Caller, **conditions: Any) -> list[Record]:
    """The ids of the facts or rules that match, with their place in the order."""
    return [dict(row) async for row in _sql.matching(tx, tenant_id=caller.tenant, **conditions)]


async def last_scanned(tx: Connection, caller: Caller, **conditions: Any) -> Record | None:
    """The last row that `matching` looks at, newest first, if it stops there."""
    row: Record | None = await _sql.last_scanned(tx, tenant_id=caller.tenant, **conditions)
    return row


async def facets(tx: Connection, caller: Caller, **conditions: Any) -> list[Record]:
    """The number of matches among the newest facts or rules, in all and by facet."""
    return [dict(row) async for row in _sql.facets(tx, tenant_id=caller.tenant, **conditions)]


async def facts(tx: Connection, caller: Caller, ids: Sequence[UUID]) -> list[Record]:
    """These facts as a list shows them, in the order of the ids."""
    rows = _sql.facts(tx, tenant_id=caller.tenant, ids=list(ids), max_characters=MAX_LIST_CHARACTERS)
    return _in_order(ids, [dict(row) async for row in rows])


async def rules(tx: Connection, caller: Caller, ids: Sequence[UUID]) -> list[Record]:
    """These rules as a list shows them, in the order of the ids."""
    rows = _sql.rules(tx, tenant_id=caller.tenant, ids=list(ids), max_characters=MAX_LIST_CHARACTERS)
    return _in_order(ids, [dict(row) async for row in rows])


async def rule_marks(tx: Connection, caller: Caller, ids: Sequence[UUID]) -> dict[UUID, list[Record]]:
    """The latest marks of these rules, oldest first."""
    marks: dict[UUID, list[Record]] = {each: [] for each in ids}
    async for row in _sql.rule_marks(tx, tenant_id=caller.tenant, ids=list(ids), max_marks=MAX_MARKS):
        marks[row["rule_id"]].append(dict(row))
    return marks


async def episodes(tx: Connection, caller: Caller, **conditions: Any) -> list[Record]:
    """Episodes that match, in the direction of a page."""
    rows = _sql.episodes(tx, tenant_id=caller.tenant, max_characters=MAX_LIST_CHARACTERS, **conditions)
    return [dict(row) async for row in rows]


async def last_scanned_episode(tx: Connection, caller: Caller, **conditions: Any) -> Record | None:
    """The last row that `episodes` looks at, if it stops there."""
    row: Record | None = await _sql.last_scanned_episode(tx, tenant_id=caller.tenant, **conditions)
    return row


async def episode_facets(tx: Connection, caller: Caller, **conditions: Any) -> list[Record]:
    """The number of matches among the newest episodes, in all and by facet."""
    return [dict(row) async for row in _sql.episode_facets(tx, tenant_id=caller.tenant, **conditions)]


async def entities_by_name(tx: Connection, caller: Caller, **conditions: Any) -> list[Record]:
    """Live entities by name; always in ascending order."""
    return [dict(row) async for row in _sql.entities_by_name(tx, tenant_id=caller.tenant, **conditions)]


async def merged_entities(tx: Connection, caller: Caller, **conditions: Any) -> list[Record]:
    """Merged entities, in the direction of a page."""
    return [dict(row) async for row in _sql.merged_entities(tx, tenant_id=caller.tenant, **conditions)]


async def entity_facets(tx: Connection, caller: Caller, max_counted: int) -> list[Record]:
    """The number of entities by type and of merged ones."""
    return [dict(row) async for row in _sql.entity_facets(tx, tenant_id=caller.tenant, max_counted=max_counted)]


async def find_by_id(tx: Connection, caller: Caller, first_id: UUID, last_id: UUID, max_rows: int) -> list[Record]:
    """Memories and entities with an id in a range."""
    rows = _sql.find_by_id(tx, tenant_id=caller.tenant, first_id=first_id, last_id=last_id, max_rows=max_rows)
    return [dict(row) async for row in rows]


def _in_order(ids: Sequence[UUID], rows: Sequence[Record]) -> list[Record]:
    by_id = {row["id"]: row for row in rows}
    return [by_id[each] for each in ids if each in by_id]
