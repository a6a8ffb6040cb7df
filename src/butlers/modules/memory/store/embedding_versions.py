"""Which model made which vector."""

from dataclasses import dataclass
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.store.statements import statements

_sql = statements("embedding_versions")


@dataclass(frozen=True, slots=True)
class EmbeddedText:
    """A vector and the version that made it."""

    vector: list[float]
    version_id: UUID


async def register_version(
    tx: Connection, caller: Caller, version_id: UUID, *, model: str, version: str, dimensions: int
) -> None:
    """Make a version known to the tenant; rows can name it from then on."""
    await _sql.know(tx, tenant_id=caller.tenant, id=version_id, model=model, version=version, dimensions=dimensions)
