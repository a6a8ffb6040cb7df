"""Queries of hygiene: groups of facts with their vectors, contents, and memories that nobody used or judged."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.hygiene import HygieneRecord
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.store.statements import statements

_sql = statements("hygiene")
MAX_COMPARED_CHARACTERS = 500
NO_ID = UUID(int=0)


async def fact_groups(tx: Connection, caller: Caller) -> list[tuple[str, int]]:
    """The subjects with more than one live fact, and how many they have."""
    return [(row["subject"], row["facts"]) async for row in _sql.fact_groups(tx, tenant_id=caller.tenant)]


async def facts_of_subjects(
    tx: Connection, caller: Caller, subjects: Sequence[str], version: UUID, limit: int
) -> list[HygieneRecord]:
    """The live facts about these subjects, subject by subject, the newest first."""
    rows = _sql.facts_of_subjects(
        tx,
        tenant_id=caller.tenant,
        subjects=list(subjects),
        version=version,
        max_characters=MAX_COMPARED_CHARACTERS,
        max_rows=limit,
    )
    return [_record(MemoryType.FACT, row) async for row in rows]


async def rules(tx: Connection, caller: Caller, version: UUID, limit: int) -> list[HygieneRecord]:
    """The live rules, the newest first."""
    rows = _sql.rules(
        tx, tenant_id=caller.tenant, version=version, max_characters=MAX_COMPARED_CHARACTERS, max_rows=limit
    )
    return [_record(MemoryType.RULE, row) async for row in rows]


def _record(memory_type: MemoryType, row: Mapping[str, Any]) -> HygieneRecord:
    values = dict(row)
    vector = values.pop("embedding")
    return HygieneRecord(memory_type=memory_type, vector=None if vector is None else vector.to_numpy(), **values)


async def contents(
    tx: Connection, caller: Caller, memory_type: MemoryType, after: UUID, limit: int
) -> list[tuple[UUID, str]]:
    """The next live memories of a type with their texts, in the order of their ids."""
    rows = _sql.contents(tx, tenant_id=caller.tenant, memory_type=memory_type, after=after, max_rows=limit)
    return [(row["id"], row["content"]) async for row in rows]


async def unused_facts(tx: Connection, caller: Caller, days: int) -> list[dict[str, Any]]:
    """The live facts that nobody recalled since they were stored, oldest first."""
    return [dict(row) async for row in _sql.unused_facts(tx, tenant_id=caller.tenant, days=days)]


async def unjudged_rules(tx: Connection, caller: Caller, days: int) -> list[dict[str, Any]]:
    """The live rules that nobody marked since they were stored, oldest first."""
    return [dict(row) async for row in _sql.unjudged_rules(tx, tenant_id=caller.tenant, days=days)]


async def echoes(tx: Connection, caller: Caller, pairs: Sequence[tuple[UUID, UUID]]) -> set[tuple[UUID, UUID]]:
    """Those of these pairs whose first fact was learned from a session that was told the second."""
    rows = _sql.echoes(
        tx, tenant_id=caller.tenant, ids=[each for each, _ in pairs], told_ids=[told for _, told in pairs]
    )
    return {(row["id"], row["told_id"]) async for row in rows}


async def count_live(tx: Connection, caller: Caller) -> dict[str, int]:
    """The live facts, rules, episodes and entities of a tenant."""
    return dict(await _sql.count_live(tx, tenant_id=caller.tenant))
