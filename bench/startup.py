"""Bench of start and idle memory: from process start to `ready:`, against the start of the embedded server."""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from butlers import embedded_server
from report import Report, Table, milliseconds, spread

TOML = '[butler]\nname = "bench"\nport = 0\n\n[modules.memory]\nenabled = true\n'
HEAVY = ("alembic", "sqlalchemy", "onnx", "onnxruntime", "tokenizers", "numpy")
_IMPORT = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s*(\S+)")
_MIB = 2.0**20
Samples = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class StartedButler:
    """A butler that is ready, and its standard error up to then."""

    process: "subprocess.Popen[str]"
    seconds: float
    cpu_seconds: float
    lines: Sequence[str]


@contextmanager
def butler_folders() -> Iterator[tuple[Path, Path]]:
    """A new BUTLERS_HOME and a butler's folder, both readable by the server's user."""
    root = Path(tempfile.mkdtemp(prefix="butlers-bench-"))
    root.chmod(0o755)
    folder = root / "butler"
    folder.mkdir()
    (folder / "butler.toml").write_text(TOML, encoding="utf-8")
    try:
        yield root / "home", folder
    finally:
        shutil.rmtree(root, ignore_errors=True)


def server_start_seconds(home: Path) -> float:
    """Seconds until the embedded server answers; the server is stopped again."""
    started_at = time.perf_counter()
    cluster = embedded_server.acquire(home)
    seconds = time.perf_counter() - started_at
    cluster.release()
    return seconds


@contextmanager
def run_butler(home: Path, folder: Path, *flags: str) -> Iterator[StartedButler]:
    """A butler in its own process, stopped at the end of the block."""
    command = [sys.executable, *flags, "-m", "butlers.cli", "run", str(folder), "--port", "0"]
    environment = {**os.environ, "BUTLERS_HOME": str(home), "BUTLERS_LOG": "warning"}
    started_at = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        lines = _read_until_ready(process)
        seconds = time.perf_counter() - started_at
        cpu = psutil.Process(process.pid).cpu_times()
        yield StartedButler(process, seconds, cpu.user + cpu.system, lines)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def _read_until_ready(process: "subprocess.Popen[str]") -> list[str]:
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line.rstrip())
        if line.startswith("ready: "):
            return lines
    raise RuntimeError("the butler did not start:\n" + "\n".join(lines))


def start_times(repeats: int) -> Samples:
    """Seconds of the starts of the server and of a butler: first, later, and with the server up already."""
    samples: Samples = defaultdict(list)
    for _ in range(repeats):
        with butler_folders() as (home, _folder):
            samples["server first"].append(server_start_seconds(home))
            samples["server later"].append(server_start_seconds(home))
        with butler_folders() as (home, folder):
            with run_butler(home, folder) as first:
                add_start(samples, "butler first", first)
            with run_butler(home, folder) as later:
                add_start(samples, "butler later", later)
                with run_butler(home, folder) as beside:
                    add_start(samples, "beside", beside)
    return dict(samples)


def add_start(samples: Samples, name: str, started: StartedButler) -> None:
    """Add the wall-clock time of a start and its processor time, which a busy machine changes less."""
    samples[name].append(started.seconds)
    samples[f"{name} cpu"].append(started.cpu_seconds)


def idle_memory(repeats: int, settle_seconds: float = 2.0) -> Samples:
    """MiB of an idle butler, and of its database server with all of its processes."""
    samples: Samples = {"butler rss": [], "butler pss": [], "server rss": [], "server pss": []}
    for _ in range(repeats):
        with butler_folders() as (home, folder):
            with run_butler(home, folder):
                pass
            # The second start: the first one has run the migrations in the same process.
            with run_butler(home, folder) as started:
                time.sleep(settle_seconds)
                add_memory(samples, "butler", [psutil.Process(started.process.pid)])
                add_memory(samples, "server", server_processes(home))
    return samples


def server_processes(home: Path) -> list[psutil.Process]:
    """The server named in the pid file, and its children."""
    pid = int((home / "postgres" / "data" / "postmaster.pid").read_text(encoding="utf-8").split("\n", 1)[0])
    server = psutil.Process(pid)
    return [server, *server.children(recursive=True)]


def add_memory(samples: Samples, name: str, processes: Sequence[psutil.Process]) -> None:
    """Add the memory of the processes: RSS counts a shared page for each process, PSS once."""
    infos = [process.memory_full_info() for process in processes]
    samples[f"{name} rss"].append(sum(info.rss for info in infos) / _MIB)
    samples[f"{name} pss"].append(sum(getattr(info, "pss", info.uss) for info in infos) / _MIB)


@dataclass(frozen=True, slots=True)
class Imports:
    """The imports of a later start."""

    seconds: float
    total_seconds: float
    packages: Sequence[tuple[str, float]]
    heavy: Sequence[str]


def measure_imports() -> Imports:
    """The imports of one later start by package; `-X importtime` slows the start a little."""
    with butler_folders() as (home, folder):
        with run_butler(home, folder):
            pass
        with run_butler(home, folder, "-X", "importtime") as started:
            matches = [match for line in started.lines if (match := _IMPORT.match(line))]
    packages: Counter[str] = Counter()
    for match in matches:
        packages[match[2].split(".")[0]] += int(match[1])
    total = packages.total() / 1e6
    loaded = tuple(name for name in HEAVY if name in packages)
    return Imports(total, started.seconds, [(name, us / 1e6) for name, us in packages.most_common(8)], loaded)


def report(repeats: int) -> Report:
    """Measure starts, idle memory and imports."""
    times, memory, imports = start_times(repeats), idle_memory(max(1, repeats // 2)), measure_imports()
    return Report(
        name="startup",
        title="Start and idle memory",
        about=f"Medians of {repeats} starts, each with a new `BUTLERS_HOME`. First: the start creates the cluster, "
        "the roles, the database and its schema. Later: everything exists and the server is stopped.",
        measured={
            "start_seconds": times,
            "idle_mib": memory,
            "import_seconds": imports.seconds,
            "import_start_seconds": imports.total_seconds,
            "heavy_imports": list(imports.heavy),
        },
        tables=[_start_table(times), _memory_table(memory), _import_table(imports)],
    )


def _start_table(times: Samples) -> Table:
    rows = [
        ("embedded server, first: initdb and start", "server first", "server first"),
        ("`butlers run` to `ready:`, first", "butler first", "server first"),
        ("embedded server, later: start", "server later", "server later"),
        ("`butlers run` to `ready:`, later", "butler later", "server later"),
        ("`butlers run` to `ready:`, server up already", "beside", "server later"),
    ]
    cells = []
    for label, key, baseline in rows:
        median, low, high = spread(times[key])
        ratio = median / spread(times[baseline])[0]
        cpu = milliseconds(spread(times[f"{key} cpu"])[0], 0) if f"{key} cpu" in times else ""
        bounds = f"{milliseconds(low, 0)} to {milliseconds(high, 0)}"
        cells.append((label, milliseconds(median, 0), bounds, cpu, f"{ratio:.1f}"))
    return Table(
        "From process start to ready",
        "The ratio is to the same start of the embedded server alone. Processor time is that of the butler's process "
        "and more reliable than wall-clock time on a busy machine.",
        ("", "median ms", "min to max ms", "processor ms", "ratio to the server"),
        cells,
    )


def _memory_table(memory: Samples) -> Table:
    labels = {"butler": "the butler's process", "server": "PostgreSQL, all of its processes"}
    return Table(
        "Idle memory",
        "Two seconds after `ready:`. RSS counts a shared page for each process, PSS once.",
        ("", "PSS MiB", "RSS MiB"),
        [
            (label, f"{spread(memory[f'{name} pss'])[0]:.0f}", f"{spread(memory[f'{name} rss'])[0]:.0f}")
            for name, label in labels.items()
        ],
    )


def _import_table(imports: Imports) -> Table:
    share = imports.seconds / imports.total_seconds
    heavy = ", ".join(imports.heavy) or "none"
    rows = [
        (f"`{name}`", milliseconds(seconds, 0), f"{seconds / imports.seconds:.0%}")
        for name, seconds in imports.packages
    ]
    return Table(
        "Imports of a later start",
        f"{milliseconds(imports.seconds, 0)} ms of {milliseconds(imports.total_seconds, 0)} ms ({share:.0%}), "
        f"measured by `-X importtime`. Of {', '.join(HEAVY)}, imported before `ready:`: {heavy}.",
        ("package", "ms", "share"),
        [("all", milliseconds(imports.seconds, 0), "100%"), *rows],
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    report(parser.parse_args().repeats).publish()
