"""Queries on the vector indexes: their state, their recall, and their rebuild by the owner of the tables."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from butlers.db import Connection, PlainConnection
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.store.statements import statements

_sql = statements("vector_indexes")
HNSW = "hnsw"
"""The method of an index that searches read: HNSW of vectors in half precision."""
_DENSE = "ef_construction=200"


@dataclass(frozen=True, slots=True)
class VectorIndex:
    """The vector index of one table."""

    table: str
    method: str
    rows: int
    bytes: int
    is_dense: bool
    """Whether it was built with more edges than usual."""
    counted_rows: int = 0
    """The rows of the table by the server's counters, which follow each commit; `rows` is as of the last analyze."""

    @property
    def memory_type(self) -> MemoryType:
        """The type of memory in the table."""
        return MemoryType(self.table.removesuffix("s"))


async def list_vector_indexes(connection: Connection | PlainConnection) -> Sequence[VectorIndex]:
    """The vector index of each table; every role may read it."""
    return [
        VectorIndex(
            row["table"], row["method"], row["rows"], row["bytes"], _DENSE in row["options"], row["counted_rows"]
        )
        async for row in _sql.list_vector_indexes(connection)
    ]


async def rebuild_as_hnsw(owner: PlainConnection, table: str, *, dense: bool = False) -> None:
    """Replace a table's vector index by an HNSW index while the table is in use."""
    await _sql.raise_limits(owner)
    for step in ("drop_unfinished", "build_dense" if dense else "build"):
        await getattr(_sql, f"{step}_{table}")(owner)
    await _swap_index(owner, table)


async def finish_interrupted_rebuild(owner: PlainConnection) -> None:
    """Finish the rebuilds that ended before they renamed the new index."""
    await _sql.raise_limits(owner)
    for table in [row["table"] async for row in _sql.interrupted_rebuilds(owner)]:
        await _swap_index(owner, table)


async def _swap_index(owner: PlainConnection, table: str) -> None:
    for step in ("drop", "rename"):
        await getattr(_sql, f"{step}_{table}")(owner)


async def analyze(owner: PlainConnection, tables: Sequence[str]) -> None:
    """Bring the row estimates and statistics of these tables up to date."""
    for table in tables:
        await getattr(_sql, f"analyze_{table}")(owner)


async def vacuum(owner: PlainConnection) -> None:
    """Remove deleted rows from the files of the memory tables."""
    await _sql.raise_limits(owner)
    await _sql.vacuum(owner)


async def sample(owner: PlainConnection, memory_type: MemoryType, limit: int) -> list[tuple[str, UUID]]:
    """The tenant and id of some memories of the tenant that has the most."""
    await _sql.raise_limits(owner)
    rows = _sql.sample(owner, memory_type=memory_type, max_rows=limit)
    return [(row["tenant_id"], row["id"]) async for row in rows]


async def nearest_distances(
    owner: PlainConnection,
    memory_type: MemoryType,
    memories: Sequence[tuple[str, UUID]],
    limit: int,
    *,
    method: str | None,
) -> tuple[list[list[float]], float]:
    """The distances of each memory's nearest neighbours, by an index of that method or exact, and the seconds."""
    statement = {None: _sql.nearest_exact, HNSW: _sql.nearest_by_graph}.get(method, _sql.nearest_by_whole_vectors)
    distances = []
    started = time.perf_counter()
    async with owner.transaction():
        if method:
            await _sql.force_vector_index(owner)
        for tenant, memory_id in memories:
            rows = statement(owner, memory_type=memory_type, tenant_id=tenant, id=memory_id, max_rows=limit)
            distances.append([row["distance"] async for row in rows])
    return distances, time.perf_counter() - started
