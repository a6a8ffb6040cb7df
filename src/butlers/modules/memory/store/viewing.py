"""Queries of the dashboard. They change nothing: looking at a memory does not count as a reference."""

from collections.abc import Mapping
from typing import Any

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.store.statements import statements

_sql = statements("viewing")

Record = Mapping[str, Any]


async def navigation_counts(tx: Connection, caller: Caller, max_rows: int) -> Record:
    """Live memories of each type and entities, each counted up to a maximum."""
    return dict(await _sql.navigation_counts(tx, tenant_id=caller.tenant, max_rows=max_rows))
