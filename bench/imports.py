"""Bench of imports from other memory systems, each against an import of the same memories from an own export."""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from butlers.app import Butler
from butlers.memory_formats import Source, find_format
from butlers.modules.memory.operations import export_import, foreign_import
from butlers.modules.memory.operations.foreign_records import ImportOptions
from butlers.modules.memory.runtime import Memory
from harness import bench_butler, caller_for
from report import BENCH, Report, Table

sys.path.insert(0, str(BENCH.parent / "tests"))
from formats.foreign_samples import SAMPLES

_MEMORIES_OF_ONE = {"mcp-memory": 2, "basic-memory": 5}
"""Formats of which one thing of the sample gives several memories."""


@dataclass(frozen=True, slots=True)
class _Rate:
    name: str
    memories: int
    foreign: float
    own: float
    repeated_seconds: float


async def main(count: int, names: Sequence[str]) -> None:
    """Measure and publish."""
    async with bench_butler() as (butler, memory, environment):
        await memory.embedder.embed_batch(["warm"], tenant="warm")
        rates = [await _measure(memory, butler, environment.home, name, count) for name in names]
    rows = [
        [
            each.name,
            f"{each.memories}",
            f"{each.foreign:.0f}",
            f"{each.own:.0f}",
            f"{each.foreign / each.own:.2f}×",
            f"{each.repeated_seconds:.1f}",
        ]
        for each in rates
    ]
    note = (
        "Memories a second, reading, checking and embedding included, and the same memories from an own export "
        "without vectors, one after the other. The last column is the second import of the same file, which changes "
        "nothing."
    )
    columns = ["format", "memories", "import, 1/s", "own import, 1/s", "ratio", "again, s"]
    measured: dict[str, object] = {each.name: each.foreign / each.own for each in rates}
    about = "The rate at which memories of other systems are imported."
    Report("imports", "Imports", about, measured, [Table("Imports", note, columns, rows)]).publish()


async def _measure(memory: Memory, butler: Butler, home: Path, name: str, count: int) -> _Rate:
    with tempfile.TemporaryDirectory(dir=home) as folder:
        path = SAMPLES[name](Path(folder), count // _MEMORIES_OF_ONE.get(name, 1))
        memories, seconds = await _import(memory, butler, path, name)
        _, repeated = await _import(memory, butler, path, name)
        own = await _import_own(memory, butler, home / "own.jsonl", name)
    rate = _Rate(name, memories, memories / seconds, memories / own, repeated)
    print(rate, flush=True)
    return rate


async def _import(memory: Memory, butler: Butler, path: Path, name: str) -> tuple[int, float]:
    """The memories that an import brings, and its seconds."""
    started = time.perf_counter()
    with Source(path) as source:
        options = ImportOptions(format=name, file=source.name, butler=memory.butler, now=datetime.now(UTC))
        report = await foreign_import.import_foreign(
            memory, caller_for(name, butler), source, find_format(name, source), options
        )
    return sum(report.new[kind] for kind in ("episode", "fact", "rule")), time.perf_counter() - started


async def _import_own(memory: Memory, butler: Butler, path: Path, name: str) -> float:
    """The seconds that an import of the tenant's export takes in another tenant."""
    with path.open("w", encoding="utf-8") as out:
        await export_import.export_tenant(memory, caller_for(name, butler), out.write)
    started = time.perf_counter()
    with path.open("rb") as file:
        await export_import.import_file(memory, caller_for(f"{name}-copy", butler), file)
    return time.perf_counter() - started


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--formats", nargs="*", default=list(SAMPLES))
    arguments = parser.parse_args()
    asyncio.run(main(arguments.count, arguments.formats))
