"""Export of what is live in a tenant to a format of other programs or for people; nothing counts as used."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from butlers.caller import Caller
from butlers.modules.memory.domain.readable_export import MarkdownWriter, McpMemoryWriter
from butlers.modules.memory.operations.batching import Progress, no_progress
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import readable_export
from butlers.modules.memory.store.export_import import disable_idle_timeout

_EXPORT_TIMEOUT_SECONDS = 600.0
FORMATS: dict[str, Callable[[str], McpMemoryWriter | MarkdownWriter]] = {
    "mcp-memory": lambda _: McpMemoryWriter(),
    "markdown": lambda tenant: MarkdownWriter(f"Memories of {tenant}"),
}


async def export_readable(
    memory: Memory, caller: Caller, format_: str, write: Callable[[str], Any], *, progress: Progress = no_progress
) -> Counter[str]:
    """Write everything live as of one moment in a format; return how many records of each kind there are."""
    writer = FORMATS[format_](caller.tenant)
    counts: Counter[str] = Counter()
    async with memory.transaction(caller, seconds=_EXPORT_TIMEOUT_SECONDS) as tx:
        await disable_idle_timeout(tx)
        async for records in readable_export.stream_live(tx, caller):
            write("".join(writer.lines(records)))
            counts.update(record.kind for record in records)
            progress(counts.total(), records[-1].total)
    write("".join(writer.finish()))
    return counts
