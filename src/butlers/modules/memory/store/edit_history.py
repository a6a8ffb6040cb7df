"""Queries on the edit_history table: the words that edits replaced."""

from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.record_state import Difference
from butlers.modules.memory.store.statements import statements

_sql = statements("edit_history")


async def remember(tx: Connection, caller: Caller, record_type: str, record_id: UUID, words: Difference) -> None:
    """Keep the words of a record before and after the current call."""
    await _sql.remember(
        tx,
        tenant_id=caller.tenant,
        request_id=caller.request_id,
        record_type=record_type,
        record_id=record_id,
        before=dict(words.before),
        after=dict(words.after),
    )


async def of_request(tx: Connection, caller: Caller, request_id: str) -> dict[tuple[str, UUID], Difference]:
    """The words that a call replaced, by type and id of the record."""
    rows = _sql.of_request(tx, tenant_id=caller.tenant, request_id=request_id)
    return {(row["record_type"], row["record_id"]): Difference(row["before"], row["after"]) async for row in rows}


async def delete_of_request(tx: Connection, caller: Caller, request_id: str) -> None:
    """Delete the words that a call replaced."""
    await _sql.delete_of_request(tx, tenant_id=caller.tenant, request_id=request_id)
