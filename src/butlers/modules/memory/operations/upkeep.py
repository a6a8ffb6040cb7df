"""Keeps the vector indexes fit for how large their tables have become."""

from butlers.caller import Caller
from butlers.contract import JobResult
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import upkeep

OUTGROWN_ROWS = 10_000
"""Lists made for an empty table find nothing quicker than comparing everything; a graph does."""


async def keep_indexes(memory: Memory, caller: Caller) -> JobResult:
    """Replace the index of each table that has outgrown it, while searches go on."""
    del caller
    rebuilt: list[str] = []
    async with memory.database.as_owner() as owner:
        before = await upkeep.vector_indexes(owner)
        for index in before:
            if index.method == "ivfflat" and index.rows > OUTGROWN_ROWS:
                await upkeep.replace_with_graph(owner, index.table)
                rebuilt.append(index.table)
        after = await upkeep.vector_indexes(owner)
    return {
        "rebuilt": rebuilt,
        "indexes": {
            index.table: {"method": index.method, "rows": index.rows, "bytes": index.bytes} for index in after
        },
    }
