"""Keeps the vector indexes fit for how large their tables have become."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from butlers.caller import Caller
from butlers.contract import JobResult
from butlers.db import PlainConnection
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import vector_indexes
from butlers.modules.memory.store.vector_indexes import VectorIndex

MAX_IVFFLAT_ROWS = 5_000
"""Lists made for an empty table find nothing quicker than comparing everything; a graph does."""
MIN_RECALL = 0.9
"""A graph that finds less of the nearest than this is built anew, with more edges."""
SAMPLE, NEAREST = 20, 10
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class IndexMeasurement:
    """How well an index finds what comparing everything finds, and how long each takes for a question."""

    recall: float
    index_ms: float
    exact_ms: float


async def maintain_indexes(memory: Memory, caller: Caller) -> JobResult:
    """Measure each index against an exact scan, and replace it where its table has outgrown it; searches go on."""
    del caller
    rebuilt: list[str] = []
    told: dict[str, Any] = {}
    async with memory.database.owner_connection() as owner:
        await vector_indexes.finish_interrupted_rebuild(owner)
        for index in await vector_indexes.list_vector_indexes(owner):
            before = await _measure(owner, index.memory_type)
            decision, finely = _decide(index, before)
            told[index.table] = {"decision": decision, "before": _describe(index, before)}
            if finely is not None:
                await vector_indexes.rebuild_as_hnsw(owner, index.table, dense=finely)
                rebuilt.append(index.table)
        for index in await vector_indexes.list_vector_indexes(owner):
            measured = await _measure(owner, index.memory_type) if index.table in rebuilt else None
            after = _describe(index, measured) if measured else told[index.table]["before"]
            told[index.table] = {**told[index.table], **after}
    return {"rebuilt": rebuilt, "indexes": told}


def _decide(index: VectorIndex, measured: IndexMeasurement | None) -> tuple[str, bool | None]:
    """What is to be done about an index, in words, and how the new one is to be built; None to leave it."""
    if index.rows <= MAX_IVFFLAT_ROWS:
        return f"kept: {index.rows} rows are few enough to compare with each", None
    if index.method == "ivfflat":
        return f"rebuilt as a graph: {index.rows} rows are more than its lists were made for", False
    if measured is not None and measured.recall < MIN_RECALL:
        found = f"it found {measured.recall:.0%} of the nearest"
        return (
            (f"kept: {found}, with as many edges as there are", None)
            if index.is_dense
            else (f"rebuilt with more edges: {found}", True)
        )
    return "kept: it finds enough", None


async def _measure(owner: PlainConnection, memory_type: MemoryType) -> IndexMeasurement | None:
    """Recall of the nearest ten for a sample; nothing for an empty table."""
    asked = await vector_indexes.sample(owner, memory_type, SAMPLE)
    if not asked:
        return None
    exact, exact_seconds = await vector_indexes.nearest_distances(owner, memory_type, asked, NEAREST, by_index=False)
    found, index_seconds = await vector_indexes.nearest_distances(owner, memory_type, asked, NEAREST, by_index=True)
    wanted = sum(len(each) for each in exact)
    # By how far they are: of many that are equally near, any will do.
    met = sum(_count_as_near(here, there) for here, there in zip(exact, found, strict=True))
    each_ms = 1000 / len(asked)
    return IndexMeasurement(met / wanted if wanted else 1.0, index_seconds * each_ms, exact_seconds * each_ms)


def _count_as_near(exact: Sequence[float], found: Sequence[float]) -> int:
    return min(len(exact), sum(distance <= max(exact) + _ROUNDING for distance in found)) if exact else 0


def _describe(index: VectorIndex, measured: IndexMeasurement | None) -> dict[str, Any]:
    told: dict[str, Any] = {"method": index.method, "rows": index.rows, "bytes": index.bytes}
    if measured is not None:
        told |= {
            "recall": round(measured.recall, 3),
            "index_ms": round(measured.index_ms, 2),
            "exact_ms": round(measured.exact_ms, 2),
        }
    return told
