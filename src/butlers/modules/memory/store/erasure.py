"""Queries that erase records for good and find what is left of them."""

from collections.abc import Sequence
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.store.statements import statements

_sql = statements("erasure")
# Each table after those that refer to it.
TABLES = (
    "memory_links",
    "session_receipt_lines",
    "session_receipts",
    "browser_sessions",
    "edit_history",
    "facts",
    "rules",
    "episodes",
    "entities",
    "sessions",
    "idempotency_keys",
    "consolidation_runs",
    "consolidation_proposals",
    "job_runs",
)


async def erase_memory(tx: Connection, caller: Caller, memory_type: MemoryType, memory_id: UUID) -> str | None:
    """Delete a memory; returns its content, or None where there is no such memory."""
    content: str | None = await _sql.erase_memory(tx, tenant_id=caller.tenant, memory_type=memory_type, id=memory_id)
    return content


async def erase_traces(tx: Connection, caller: Caller, memory_type: MemoryType, ids: Sequence[UUID]) -> None:
    """Delete the links and receipt lines of erased memories, and what edits and stored answers hold of them."""
    await _sql.erase_links(tx, tenant_id=caller.tenant, memory_type=memory_type, ids=list(ids))
    await _sql.erase_proposals(tx, tenant_id=caller.tenant, ids=list(ids))
    await _sql.erase_receipt_lines(tx, tenant_id=caller.tenant, memory_type=memory_type, ids=list(ids))
    await erase_words(tx, caller, memory_type, ids)


async def erase_words(tx: Connection, caller: Caller, record_type: str, ids: Sequence[UUID]) -> None:
    """Delete the words that edits of erased records replaced, and the stored answers that name them."""
    await _sql.erase_edit_history(tx, tenant_id=caller.tenant, record_type=record_type, ids=list(ids))
    await _sql.erase_stored_answers(tx, tenant_id=caller.tenant, ids=[str(each) for each in ids])


async def erase_facts_of_entity(tx: Connection, caller: Caller, entity_id: UUID) -> list[UUID]:
    """Delete every fact about an entity; returns their ids."""
    rows = _sql.erase_facts_of_entity(tx, tenant_id=caller.tenant, entity_id=entity_id)
    return [row["id"] async for row in rows]


async def erase_entity(tx: Connection, caller: Caller, entity_id: UUID) -> dict[UUID, list[str]]:
    """Delete an entity and those that were merged into it; returns all names of each, by id."""
    rows = _sql.erase_entity(tx, tenant_id=caller.tenant, entity_id=entity_id)
    return {row["id"]: [row["canonical_name"], *row["aliases"]] async for row in rows}


async def erase_rows(tx: Connection, caller: Caller, table: str, limit: int) -> int:
    """Delete some of the tenant's rows of a table; returns their number."""
    return int(await _sql.erase_rows(tx, tenant_id=caller.tenant, table_name=table, max_rows=limit))


async def count_remaining(tx: Connection, caller: Caller) -> dict[str, int]:
    """The number of the tenant's rows, table by table."""
    return dict(await _sql.count_remaining(tx, tenant_id=caller.tenant))


async def find_mentions(tx: Connection, caller: Caller, phrase: str, limit: int) -> list[tuple[str, UUID]]:
    """The kind and id of the records that contain a phrase."""
    rows = _sql.find_mentions(tx, tenant_id=caller.tenant, phrase=phrase, max_rows=limit)
    return [(row["kind"], row["id"]) async for row in rows]
