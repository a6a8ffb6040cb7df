"""Who and what facts are about."""

from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.errors import Conflict
from butlers.modules.memory.domain.errors import EntityNotFound
from butlers.modules.memory.store.statements import statements

_sql = statements("entities")


async def hold(tx: Connection, caller: Caller, entity_id: UUID) -> None:
    """Keep a live entity from being merged away until the transaction ends."""
    row = await _sql.live(tx, tenant_id=caller.tenant, id=entity_id)
    if row is None:
        raise EntityNotFound(entity_id)
    if row["merged_into"]:
        raise Conflict(f"the entity {entity_id} was merged away", hint=f"Use entity_id {row['merged_into']}.")
