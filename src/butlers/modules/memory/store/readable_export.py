"""Query of everything live in a tenant, in the order in which a person reads it."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.store.export_import import BATCH
from butlers.modules.memory.store.statements import statements

_sql = statements("readable_export")
_FETCH_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class LiveRecord:
    """A live entity, fact, relation, rule or episode, and the number of all."""

    kind: str
    name: str
    entity_type: str
    predicate: str
    content: str
    tags: Sequence[str]
    scope: str
    relation: str
    created_at: datetime
    total: int


async def stream_live(tx: Connection, caller: Caller) -> AsyncIterator[list[LiveRecord]]:
    """Every live record of the tenant in one snapshot, a batch at a time."""
    async with _sql.stream_live_cursor(tx, tenant_id=caller.tenant) as opening:
        cursor = await opening
        while rows := await cursor.fetch(BATCH, timeout=_FETCH_SECONDS):
            yield [LiveRecord(**row) for row in rows]
