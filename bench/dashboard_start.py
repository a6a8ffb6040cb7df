"""The dashboard's share of the start and the memory of a butler, and the cost of its first page."""

import re
import statistics
import subprocess
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import psutil

from report import Table, milliseconds
from startup import TOML, Samples, butler_folders, run_butler

_OFF = "\n[butler.dashboard]\nenabled = false\n"
_MIB = 2.0**20
_READY = re.compile(r"^ready: (\S+)/mcp")
_IMPORTED = re.compile(r"\| +(jinja2|butlers\.dashboard\.application)\b")
_TIME_IMPORT = (
    "import time, sys; import butlers.app, butlers.cli, butlers.host.server, butlers.host.http;"
    " before, started = len(sys.modules), time.perf_counter(); import butlers.dashboard.application;"
    " print(time.perf_counter() - started, len(sys.modules) - before)"
)


def start_tables(repeats: int) -> tuple[list[Table], dict[str, object]]:
    """The table of starts with and without the dashboard, and its numbers."""
    samples: Samples = defaultdict(list)
    with butler_folders() as (home, folder):
        with run_butler(home, folder):
            pass
        for _ in range(repeats):
            _measure_start(home, folder, samples, enabled=False)
            _measure_start(home, folder, samples, enabled=True)
        imported_early = _imports_before_first_page(home, folder)
    imports = [_import_seconds() for _ in range(repeats)]
    samples["import"] = [seconds for seconds, _ in imports]
    medians = {name: statistics.median(values) for name, values in samples.items()}
    return [_table(medians, imports[0][1], imported_early, repeats)], {
        "start": {**medians, "imported_before_first_page": imported_early, "modules_of_first_page": imports[0][1]}
    }


def _measure_start(home: Path, folder: Path, samples: Samples, *, enabled: bool) -> None:
    (folder / "butler.toml").write_text(TOML + ("" if enabled else _OFF), encoding="utf-8")
    name = "on" if enabled else "off"
    with run_butler(home, folder) as started:
        samples[f"{name} seconds"].append(started.seconds)
        samples[f"{name} cpu"].append(started.cpu_seconds)
        process = psutil.Process(started.process.pid)
        time.sleep(1.0)
        samples[f"{name} rss"].append(process.memory_info().rss / _MIB)
        if not enabled:
            return
        match = next(found for line in started.lines if (found := _READY.match(line)))
        for page in ("first", "second"):
            samples[f"{page} page"].append(_get_seconds(f"{match[1]}/facts"))
            samples[f"rss after {page}"].append(process.memory_info().rss / _MIB)
        for path in ("/", "/rules", "/episodes", "/entities", "/audit", "/review", "/review?of=twins", "/facts") * 25:
            _get_seconds(match[1] + path)
        samples["rss after 200"].append(process.memory_info().rss / _MIB)
        _get_seconds(f"{match[1]}/system")
        samples["rss after system"].append(process.memory_info().rss / _MIB)


def _get_seconds(url: str) -> float:
    started = time.perf_counter()
    with urllib.request.urlopen(url, timeout=30) as response:  # noqa: S310 — a local address
        response.read()
    return time.perf_counter() - started


def _imports_before_first_page(home: Path, folder: Path) -> list[str]:
    """The modules of the dashboard that a start imports; there should be none."""
    with run_butler(home, folder, "-X", "importtime") as started:
        return [match[1] for line in started.lines if (match := _IMPORTED.search(line))]


def _import_seconds() -> tuple[float, int]:
    """Seconds to import the pages into a running butler's process, and how many modules that are."""
    done = subprocess.run([sys.executable, "-c", _TIME_IMPORT], capture_output=True, text=True, check=True)
    seconds, modules = done.stdout.split()
    return float(seconds), int(modules)


def _table(medians: Mapping[str, float], modules: int, imported_early: list[str], repeats: int) -> Table:
    def share(on: float, off: float) -> str:
        return f"{on / off - 1:+.1%}"

    off, on = medians["off rss"], medians["on rss"]
    rows = [
        ["start to `ready:`, ms", milliseconds(medians["off seconds"], 0), milliseconds(medians["on seconds"], 0),
         share(medians["on seconds"], medians["off seconds"])],
        ["start, processor ms", milliseconds(medians["off cpu"], 0), milliseconds(medians["on cpu"], 0),
         share(medians["on cpu"], medians["off cpu"])],
        ["memory before the first page, MiB", f"{off:.1f}", f"{on:.1f}", share(on, off)],
        ["memory after the first page, MiB", "", f"{medians['rss after first']:.1f}",
         share(medians["rss after first"], off)],
        ["memory after 200 pages, MiB", "", f"{medians['rss after 200']:.1f}", share(medians["rss after 200"], off)],
        ["memory after System, which tries the model, MiB", "", f"{medians['rss after system']:.1f}",
         share(medians["rss after system"], off)],
        ["first page over HTTP, ms", "", milliseconds(medians["first page"], 0), ""],
        [f"of that, importing {modules} modules, ms", "", milliseconds(medians["import"], 0), ""],
        ["second page over HTTP, ms", "", milliseconds(medians["second page"], 0), ""],
    ]  # fmt: skip
    early = ", ".join(imported_early) or "nothing"
    note = (
        f"Medians of {repeats} later starts in turns, with `enabled = false` under [butler.dashboard] and without "
        f"it, in an empty database. Imported of the dashboard before its first page: {early}. The page System tries "
        "the embedding model and loads it, as the first search of an agent does."
    )
    return Table("Start and memory", note, ["", "off", "on", "share"], rows)
