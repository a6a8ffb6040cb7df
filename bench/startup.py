"""How long a butler takes from process start to `ready:`, and what it weighs when it idles.

The yardstick is the embedded server's own start: nothing that needs it can be ready sooner.
"""

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
from report import Report, Table, spread

TOML = '[butler]\nname = "bench"\nport = 0\n\n[modules.memory]\nenabled = true\n'
HEAVY = ("alembic", "sqlalchemy", "onnx", "onnxruntime", "tokenizers", "numpy")
_IMPORT = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s*(\S+)")
_MILLI, _MIB = 1000.0, 2.0**20
Samples = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Started:
    """A butler that serves, and what it said until it did."""

    process: "subprocess.Popen[str]"
    seconds: float
    cpu_seconds: float
    said: Sequence[str]


@contextmanager
def place() -> Iterator[tuple[Path, Path]]:
    """A new BUTLERS_HOME and a butler's folder; the server's own user can reach them."""
    root = Path(tempfile.mkdtemp(prefix="butlers-bench-"))
    root.chmod(0o755)
    folder = root / "butler"
    folder.mkdir()
    (folder / "butler.toml").write_text(TOML, encoding="utf-8")
    try:
        yield root / "home", folder
    finally:
        shutil.rmtree(root, ignore_errors=True)


def server_start(home: Path) -> float:
    """Seconds until the embedded server answers; it is stopped again."""
    began = time.perf_counter()
    cluster = embedded_server.acquire(home)
    seconds = time.perf_counter() - began
    cluster.release()
    return seconds


@contextmanager
def butler(home: Path, folder: Path, *flags: str, port: int = 0) -> Iterator[Started]:
    """A butler in a process of its own, from its start to a clean end."""
    command = [sys.executable, *flags, "-m", "butlers.cli", "run", str(folder), "--port", str(port)]
    environment = {**os.environ, "BUTLERS_HOME": str(home), "BUTLERS_LOG": "warning"}
    began = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        said = _until_ready(process)
        seconds = time.perf_counter() - began
        used = psutil.Process(process.pid).cpu_times()
        yield Started(process, seconds, used.user + used.system, said)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def _until_ready(process: "subprocess.Popen[str]") -> list[str]:
    assert process.stderr is not None
    said: list[str] = []
    for line in process.stderr:
        said.append(line.rstrip())
        if line.startswith("ready: "):
            return said
    raise RuntimeError("the butler did not start:\n" + "\n".join(said))


def start_times(repeats: int) -> Samples:
    """Seconds to start: the server alone and a butler; the first time, later, and beside another butler."""
    samples: Samples = defaultdict(list)
    for _ in range(repeats):
        with place() as (home, _folder):
            samples["server first"].append(server_start(home))
            samples["server later"].append(server_start(home))
        with place() as (home, folder):
            with butler(home, folder) as first:
                note(samples, "butler first", first)
            with butler(home, folder) as later:
                note(samples, "butler later", later)
                with butler(home, folder) as beside:
                    note(samples, "beside", beside)
    return dict(samples)


def note(samples: Samples, name: str, started: Started) -> None:
    """Keep a start's wall-clock time and, less moved by whatever else runs, its processor time."""
    samples[name].append(started.seconds)
    samples[f"{name} cpu"].append(started.cpu_seconds)


def idle_memory(repeats: int, settle_seconds: float = 2.0) -> Samples:
    """MiB a butler that nobody calls takes, and its database server with all of its processes."""
    samples: Samples = {"butler rss": [], "butler pss": [], "server rss": [], "server pss": []}
    for _ in range(repeats):
        with place() as (home, folder):
            with butler(home, folder):
                pass
            # The second start, as nearly all are: a first one has run the migrations in the same process.
            with butler(home, folder) as started:
                time.sleep(settle_seconds)
                weigh(samples, "butler", [psutil.Process(started.process.pid)])
                weigh(samples, "server", server_processes(home))
    return samples


def server_processes(home: Path) -> list[psutil.Process]:
    """The server named in the pid file, and its children."""
    pid = int((home / "postgres" / "data" / "postmaster.pid").read_text(encoding="utf-8").split("\n", 1)[0])
    server = psutil.Process(pid)
    return [server, *server.children(recursive=True)]


def weigh(samples: Samples, name: str, processes: Sequence[psutil.Process]) -> None:
    """Add the processes' memory: RSS counts shared pages once for each, PSS once for all."""
    full = [process.memory_full_info() for process in processes]
    samples[f"{name} rss"].append(sum(info.rss for info in full) / _MIB)
    samples[f"{name} pss"].append(sum(getattr(info, "pss", info.uss) for info in full) / _MIB)


@dataclass(frozen=True, slots=True)
class Imports:
    """What a later start spends on importing."""

    seconds: float
    total_seconds: float
    packages: Sequence[tuple[str, float]]
    heavy: Sequence[str]


def imports() -> Imports:
    """The imports of one later start, by package; `-X importtime` itself slows it a little."""
    with place() as (home, folder):
        with butler(home, folder):
            pass
        with butler(home, folder, "-X", "importtime") as started:
            found = [match for line in started.said if (match := _IMPORT.match(line))]
    packages: Counter[str] = Counter()
    for match in found:
        packages[match[2].split(".")[0]] += int(match[1])
    total = packages.total() / 1e6
    loaded = tuple(name for name in HEAVY if name in packages)
    return Imports(total, started.seconds, [(name, us / 1e6) for name, us in packages.most_common(8)], loaded)


def report(repeats: int) -> Report:
    """Measure everything, one after the other, on a machine that does nothing else."""
    times, memory, importing = start_times(repeats), idle_memory(max(1, repeats // 2)), imports()
    return Report(
        name="startup",
        title="Start and idle memory",
        about=f"Medians of {repeats} starts, each with a new `BUTLERS_HOME`. First: the cluster is made, "
        "the roles, the database and its schema. Later: everything is there and the server is stopped.",
        measured={
            "start_seconds": times,
            "idle_mib": memory,
            "import_seconds": importing.seconds,
            "import_start_seconds": importing.total_seconds,
            "heavy_imports": list(importing.heavy),
        },
        tables=[_start_table(times), _memory_table(memory), _import_table(importing)],
    )


def _start_table(times: Samples) -> Table:
    rows = [
        ("embedded server, first: initdb and start", "server first", "server first"),
        ("`butlers run` to `ready:`, first", "butler first", "server first"),
        ("embedded server, later: start", "server later", "server later"),
        ("`butlers run` to `ready:`, later", "butler later", "server later"),
        ("`butlers run` to `ready:`, the server is up already", "beside", "server later"),
    ]
    cells = []
    for label, key, yardstick in rows:
        median, least, most = (value * _MILLI for value in spread(times[key]))
        ratio = median / (spread(times[yardstick])[0] * _MILLI)
        cpu = f"{spread(times[f'{key} cpu'])[0] * _MILLI:.0f}" if f"{key} cpu" in times else ""
        cells.append((label, f"{median:.0f}", f"{least:.0f} to {most:.0f}", cpu, f"{ratio:.1f}"))
    return Table(
        "From process start to ready",
        "The ratio is against the embedded server's own start of the same kind. Processor time is the butler's own "
        "and tells more than the clock on a machine that is busy with something else.",
        ("", "median ms", "least to most ms", "processor ms", "times the server"),
        cells,
    )


def _memory_table(memory: Samples) -> Table:
    labels = {"butler": "the butler's process", "server": "PostgreSQL, all of its processes"}
    return Table(
        "Idle memory",
        "Two seconds after `ready:`. RSS counts a shared page once for each process, PSS once for all.",
        ("", "PSS MiB", "RSS MiB"),
        [
            (label, f"{spread(memory[f'{name} pss'])[0]:.0f}", f"{spread(memory[f'{name} rss'])[0]:.0f}")
            for name, label in labels.items()
        ],
    )


def _import_table(importing: Imports) -> Table:
    share = importing.seconds / importing.total_seconds
    heavy = ", ".join(importing.heavy) or "none"
    rows = [
        (f"`{name}`", f"{seconds * _MILLI:.0f}", f"{seconds / importing.seconds:.0%}")
        for name, seconds in importing.packages
    ]
    return Table(
        "Where a later start's imports go",
        f"{importing.seconds * _MILLI:.0f} ms of {importing.total_seconds * _MILLI:.0f} ms ({share:.0%}), "
        f"measured by `-X importtime`. Of {', '.join(HEAVY)}, imported before `ready:`: {heavy}.",
        ("package", "ms", "of all imports"),
        [("all", f"{importing.seconds * _MILLI:.0f}", "100%"), *rows],
    )


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    measured = report(parser.parse_args().repeats)
    print(measured.markdown())
    print(f"written: {measured.save().name}")


if __name__ == "__main__":
    main()
