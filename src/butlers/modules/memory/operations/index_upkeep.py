"""Upkeep of the vector indexes: measure recall, and rebuild an index its table has outgrown."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from butlers.caller import Caller
from butlers.contract import JobResult
from butlers.db import Connection, PlainConnection
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import vector_indexes
from butlers.modules.memory.store.vector_indexes import VectorIndex

MAX_IVFFLAT_ROWS = 2_500
"""Up to this size comparing every vector is as fast as an HNSW index."""
MIN_RECALL = 0.9
"""An HNSW index with a lower recall is rebuilt with more edges."""
SAMPLE, NEAREST = 20, 10
"""Queries measured per index, and neighbours compared per query."""
_DISTANCE_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class IndexMeasurement:
    """Recall of an index against an exact scan, and the time of a query with each."""

    recall: float
    index_ms: float
    exact_ms: float


async def maintain_indexes(memory: Memory, caller: Caller) -> JobResult:
    """Measure each index against an exact scan and rebuild it where needed; searches stay possible.

    Only the owner of the tables can. A process without its credentials returns what it would rebuild.
    """
    if not memory.database.has_owner:
        return await report_outgrown(memory, caller)
    rebuilt: list[str] = []
    report: dict[str, Any] = {}
    async with memory.database.owner_connection() as owner:
        await vector_indexes.finish_interrupted_rebuild(owner)
        await vector_indexes.analyze(owner, [each.table for each in await _list_outgrown(owner)])
        for index in await vector_indexes.list_vector_indexes(owner):
            before = await _measure(owner, index)
            decision, dense = _decide(index, before)
            report[index.table] = {"decision": decision, "before": _describe(index, before)}
            if dense is not None:
                await vector_indexes.rebuild_as_hnsw(owner, index.table, dense=dense)
                rebuilt.append(index.table)
        for index in await vector_indexes.list_vector_indexes(owner):
            measured = await _measure(owner, index) if index.table in rebuilt else None
            after = _describe(index, measured) if measured else report[index.table]["before"]
            report[index.table] = {**report[index.table], **after}
    return {"rebuilt": rebuilt, "indexes": report}


async def has_outgrown(memory: Memory, caller: Caller) -> bool:
    """Return whether a table needs an HNSW index and has none, from the server's counters alone."""
    async with memory.database.transaction(caller) as tx:
        return bool(await _list_outgrown(tx))


async def _list_outgrown(connection: Connection | PlainConnection) -> list[VectorIndex]:
    """The indexes that were outgrown by the rows counted since; the row estimates may not know them yet."""
    return [
        index
        for index in await vector_indexes.list_vector_indexes(connection)
        if index.method != vector_indexes.HNSW and index.counted_rows > MAX_IVFFLAT_ROWS
    ]


async def report_outgrown(memory: Memory, caller: Caller) -> JobResult:
    """Return the tables that have outgrown their index, from the catalog alone: nothing is measured or changed."""
    async with memory.database.transaction(caller) as tx:
        indexes = await vector_indexes.list_vector_indexes(tx)
    outgrown = [index.table for index in indexes if _decide(index, None)[1] is not None]
    report = {}
    for index in indexes:
        decision = "outgrown: the owner has to rebuild it" if index.table in outgrown else "kept"
        report[index.table] = {"decision": decision, **_describe(index, None)}
    return {"rebuilt": [], "outgrown": outgrown, "indexes": report}


def _decide(index: VectorIndex, measured: IndexMeasurement | None) -> tuple[str, bool | None]:
    """Return the decision in words, and whether to rebuild with more edges; None keeps the index."""
    if index.rows <= MAX_IVFFLAT_ROWS:
        return f"kept: {index.rows} rows are few enough for an exact scan", None
    if index.method != vector_indexes.HNSW:
        return f"rebuilt as HNSW: {index.rows} rows are too many for {index.method}", False
    if measured is not None and measured.recall < MIN_RECALL:
        recall = f"it found {measured.recall:.0%} of the nearest"
        if index.is_dense:
            return f"kept: {recall}, and it already has the most edges", None
        return f"rebuilt with more edges: {recall}", True
    return "kept: its recall is high enough", None


async def _measure(owner: PlainConnection, index: VectorIndex) -> IndexMeasurement | None:
    """Measure the recall of the nearest ten for a sample; return None for an empty table."""
    queries = await vector_indexes.sample(owner, index.memory_type, SAMPLE)
    if not queries:
        return None
    nearest = partial(vector_indexes.nearest_distances, owner, index.memory_type, queries, NEAREST)
    exact, exact_seconds = await nearest(method=None)
    found, index_seconds = await nearest(method=index.method)
    expected = sum(len(each) for each in exact)
    # Compare distances, not ids: among equally near rows any is correct.
    correct = sum(_count_as_near(*pair) for pair in zip(exact, found, strict=True))
    ms_per_query = 1000 / len(queries)
    return IndexMeasurement(
        correct / expected if expected else 1.0, index_seconds * ms_per_query, exact_seconds * ms_per_query
    )


def _count_as_near(exact: Sequence[float], found: Sequence[float]) -> int:
    return min(len(exact), sum(distance <= max(exact) + _DISTANCE_TOLERANCE for distance in found)) if exact else 0


def _describe(index: VectorIndex, measured: IndexMeasurement | None) -> dict[str, Any]:
    digits = {"recall": 3, "index_ms": 2, "exact_ms": 2} if measured else {}
    rounded = {name: round(getattr(measured, name), places) for name, places in digits.items()}
    return {"method": index.method, "rows": index.rows, "bytes": index.bytes, **rounded}
