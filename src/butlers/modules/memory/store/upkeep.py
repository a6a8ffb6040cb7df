"""The vector indexes and what they are made of; only the tables' owner may change them."""

from collections.abc import Sequence
from dataclasses import dataclass

from butlers.db import PlainConnection
from butlers.modules.memory.store.statements import statements

_sql = statements("upkeep")


@dataclass(frozen=True, slots=True)
class VectorIndex:
    """One table's vector index."""

    table: str
    method: str
    rows: int
    bytes: int


async def vector_indexes(owner: PlainConnection) -> Sequence[VectorIndex]:
    """Every table's vector index."""
    return [
        VectorIndex(row["table"], row["method"], row["rows"], row["bytes"])
        async for row in _sql.vector_indexes(owner)
    ]


async def replace_with_graph(owner: PlainConnection, table: str) -> None:
    """Give a table a graph for its vector index while it is in use."""
    await _sql.roomy(owner)
    for step in ("drop_unfinished", "build", "drop", "install"):
        await getattr(_sql, f"{step}_{table}")(owner)
