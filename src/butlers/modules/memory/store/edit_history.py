"""Queries on the edit_history table: the words that edits replaced."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.record_state import Difference
from butlers.modules.memory.store.statements import statements

_sql = statements("edit_history")


async def remember(tx: Connection, caller: Caller, record_type: str, words: Mapping[UUID, Difference]) -> None:
    """Keep the words of records before and after the current call."""
    await _sql.remember(
        tx,
        tenant_id=caller.tenant,
        request_id=caller.request_id,
        record_type=record_type,
        record_ids=list(words),
        before=[dict(each.before) for each in words.values()],
        after=[dict(each.after) for each in words.values()],
    )


async def of_records(
    tx: Connection, caller: Caller, request_id: str, record_type: str, ids: Sequence[UUID]
) -> dict[UUID, Difference]:
    """The words that a call replaced in some records, by the id of the record."""
    rows = _sql.of_records(
        tx, tenant_id=caller.tenant, request_id=request_id, record_type=record_type, record_ids=list(ids)
    )
    return {row["record_id"]: Difference(row["before"], row["after"]) async for row in rows}
