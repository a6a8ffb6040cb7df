"""The vector indexes and what they are made of; only the tables' owner may change them."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from butlers.db import PlainConnection
from butlers.modules.memory.store.statements import statements

_sql = statements("vector_indexes")
_FINE = "ef_construction=200"


@dataclass(frozen=True, slots=True)
class VectorIndex:
    """One table's vector index."""

    table: str
    method: str
    rows: int
    bytes: int
    fine: bool
    """Whether it was built with more edges than usual."""


async def list_vector_indexes(owner: PlainConnection) -> Sequence[VectorIndex]:
    """Every table's vector index."""
    return [
        VectorIndex(row["table"], row["method"], row["rows"], row["bytes"], _FINE in row["options"])
        async for row in _sql.vector_indexes(owner)
    ]


async def rebuild_as_hnsw(owner: PlainConnection, table: str, *, finely: bool = False) -> None:
    """Give a table a graph for its vector index while it is in use."""
    await _sql.roomy(owner)
    for step in ("drop_unfinished", "build_finely" if finely else "build"):
        await getattr(_sql, f"{step}_{table}")(owner)
    await _swap_index(owner, table)


async def finish_interrupted_rebuild(owner: PlainConnection) -> None:
    """Bring to its end what an upkeep that was ended had begun."""
    await _sql.roomy(owner)
    for table in [row["table"] async for row in _sql.half_replaced(owner)]:
        await _swap_index(owner, table)


async def _swap_index(owner: PlainConnection, table: str) -> None:
    for step in ("drop", "install"):
        await getattr(_sql, f"{step}_{table}")(owner)


async def vacuum(owner: PlainConnection) -> None:
    """Let the server overwrite what it still holds of deleted rows."""
    await _sql.roomy(owner)
    for table in ("facts", "rules", "episodes", "entities", "memory_links"):
        await getattr(_sql, f"vacuum_{table}")(owner)


async def sample(owner: PlainConnection, table: str, most: int) -> list[tuple[str, UUID]]:
    """Some memories of the tenant that has most of them, as tenant and id."""
    await _sql.roomy(owner)
    tenant = await getattr(_sql, f"largest_{table}")(owner)
    if tenant is None:
        return []
    rows = getattr(_sql, f"sample_{table}")(owner, tenant_id=tenant, most=most)
    return [(row["tenant_id"], row["id"]) async for row in rows]


async def neighbours(
    owner: PlainConnection, table: str, asked: Sequence[tuple[str, UUID]], most: int, *, by_index: bool
) -> tuple[list[list[float]], float]:
    """How far the nearest to each are, found by comparing everything or by the index; and the seconds it took."""
    how = "by_index" if by_index else "exactly"
    statement = getattr(_sql, f"neighbours_{how}_{table}")
    found = []
    started = time.perf_counter()
    async with owner.transaction():
        if by_index:
            await _sql.by_index(owner)
        for tenant, memory_id in asked:
            rows = statement(owner, tenant_id=tenant, id=memory_id, most=most)
            found.append([row["distance"] async for row in rows])
    return found, time.perf_counter() - started
