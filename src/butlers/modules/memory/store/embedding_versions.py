"""Queries on the embedding_versions table."""

from typing import NamedTuple
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.store.statements import statements

_sql = statements("embedding_versions")


class EmbeddedText(NamedTuple):
    """The vector of a text, and the embedding version that made it; named as the columns they are stored in."""

    embedding: list[float]
    embedding_version_id: UUID


async def register_version(
    tx: Connection, caller: Caller, version_id: UUID, *, model: str, version: str, dimensions: int
) -> None:
    """Register an embedding version with the tenant, so that rows can refer to it."""
    await _sql.register_version(
        tx, tenant_id=caller.tenant, id=version_id, model=model, version=version, dimensions=dimensions
    )
