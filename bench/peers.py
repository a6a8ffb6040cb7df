"""Bench of butlers against other agent memories: the same model, texts, machine and run."""

import argparse
import asyncio
import contextlib
import itertools
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np
import psutil

from butlers import embedded_server
from butlers.modules.memory import minilm
from butlers.modules.memory.onnx_model import load_minilm
from harness import SEEDS, Vectors, interpolate, sentence
from report import Report, Table
from startup import server_processes

sys.path.insert(1, str(Path(__file__).parent / "peers"))
from environments import CACHE, PEERS, Peer, install, isolated_environment

BUTLERS_DRIVER = "with_butlers.py"
SIZES = (1_000, 10_000, 100_000)
STORES, QUESTIONS, PROBES = 100, 60, 20
SLOW_STORES_SECONDS = 20
FILL_TIMEOUT_SECONDS, CALL_TIMEOUT_SECONDS, PHASE_SECONDS = 240, 60, 8
_CHUNK = 20_000
_MIB = 2.0**20
Figures = dict[str, float | str]


class TimedOut(Exception):
    """A peer exceeded a timeout."""


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts to store and to search for, the same for every peer."""

    to_store: Sequence[str]
    questions: Sequence[str]
    probes: Sequence[str]

    @classmethod
    def generate(cls) -> "Texts":
        """New sentences; a probe is six of the ten words of one of the first."""
        rng = random.Random(11)
        to_store = [sentence(rng) for _ in range(STORES)]
        probes = [" ".join(rng.sample(text.split(), 6)) for text in to_store[:PROBES]]
        return cls(to_store, [sentence(rng) for _ in range(2 * QUESTIONS + 1)], probes)


def write_data(folder: Path, sizes: Sequence[int]) -> Path:
    """Write the texts and vectors that every peer is filled with; returns the path of the model."""
    seeding, words = random.Random(5), random.Random(7)
    seeds_file = CACHE / "model" / f"seeds-{SEEDS}.npy"
    if not seeds_file.exists():
        model = load_minilm(CACHE / "model")
        np.save(seeds_file, [model.vectors([sentence(seeding)])[0] for _ in range(SEEDS)])
    seeds = np.load(seeds_file).astype(np.float32)
    np.save(folder / "seeds.npy", seeds)
    for size in sizes:
        numbers = np.random.default_rng(7)
        parts = [interpolate(seeds, min(_CHUNK, size - start), numbers) for start in range(0, size, _CHUNK)]
        np.save(folder / f"vectors-{size}.npy", np.concatenate(parts).astype(np.float32))
    texts = [sentence(words) for _ in range(max(sizes))]
    (folder / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
    return minilm.graph_file(CACHE / "model")


class DriverProcess:
    """A peer's driver in its own process; requests and answers are lines of JSON."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._started_at = time.monotonic()
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._stderr: list[str] = []
        self._reader = threading.Thread(target=self._read_stderr, daemon=True)
        self._reader.start()

    def request(self, action: str, texts: Sequence[str]) -> dict[str, Any]:
        """Seconds and results of the calls made in time; raises TimedOut when no call returns."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # Killing the process ends its output, and with it the wait for a line.
        watchdog = threading.Timer(CALL_TIMEOUT_SECONDS + PHASE_SECONDS, self._process.kill)
        watchdog.start()
        try:
            message = {"action": action, "texts": texts, "seconds": PHASE_SECONDS}
            print(json.dumps(message), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timed_out = not watchdog.is_alive()
            watchdog.cancel()
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        if timed_out:
            raise TimedOut(f"over {CALL_TIMEOUT_SECONDS} s")
        self._reader.join(5)
        raise RuntimeError("".join(self._stderr[-12:]))

    def start_seconds(self, question: str) -> float:
        """Seconds from the start of the peer's process to its first answer."""
        answer = self.request("search", [question])
        seconds: float = answer["ended_at"] - (answer["started_at"] or self._started_at)
        return seconds

    def close(self) -> None:
        """Close its input; kill it when it does not end within 30 s."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        self._stderr += self._process.stderr


@dataclass(frozen=True, slots=True)
class Bench:
    """The measurement of a peer, with the model and the data that all peers share."""

    graph: Path
    data: Path
    texts: Texts
    question_vectors: Vectors

    def measure(self, interfaces: Sequence[Peer], size: int) -> list[Figures]:
        """The figures of each interface of one peer at one size; the interfaces share the filled folder."""
        folder = Path(tempfile.mkdtemp(prefix="butlers-peers-"))
        folder.chmod(0o755)
        try:
            with _database(interfaces[0], folder) as dsn:
                command = self._fill_command(interfaces[0], folder, size, dsn)
                seconds = _fill(command, isolated_environment(folder))
                return [
                    {"fill_seconds": seconds, **self._measure_interface(peer, command, folder, size, dsn)}
                    for peer in interfaces
                ]
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _measure_interface(
        self, peer: Peer, command: Sequence[str], folder: Path, size: int, dsn: str | None
    ) -> Figures:
        python, driver, _, settings = command
        environment = {**isolated_environment(folder), "PEER": peer.name}
        process = DriverProcess([python, driver, "answer", settings], environment)
        try:
            return self._measure_calls(peer, process, folder, size, dsn)
        finally:
            process.close()

    def _recall(self, results: Sequence[Sequence[str]], start: int, size: int) -> float:
        """The share of the ten nearest texts, by comparison of every vector, among the results."""
        texts = json.loads((self.data / "texts.json").read_text(encoding="utf-8"))
        vectors = np.load(self.data / f"vectors-{size}.npy", mmap_mode="r")
        nearest = np.argsort(-(self.question_vectors[start : start + len(results)] @ vectors.T), axis=1)[:, :10]
        expected = [{texts[number] for number in row} for row in nearest]
        return statistics.fmean(len(near & set(row)) / 10 for near, row in zip(expected, results, strict=True))

    def _fill_command(self, peer: Peer, folder: Path, size: int, dsn: str | None) -> list[str]:
        settings = {
            "folder": str(folder),
            "graph": str(self.graph),
            "tokenizer": str(minilm.model_folder(CACHE / "model") / "tokenizer.json"),
            "data": str(self.data),
            "size": size,
            "environment": str(peer.environment),
            "dsn": dsn,
        }
        driver = Path(__file__).parent / "peers" / peer.driver
        return [str(peer.python), str(driver), "fill", json.dumps(settings)]

    def _measure_calls(self, peer: Peer, process: DriverProcess, folder: Path, size: int, dsn: str | None) -> Figures:
        first, *questions = self.texts.questions
        figures: Figures = {"start_seconds": process.start_seconds(first), "disk_mib": _disk_mib(folder, dsn)}
        searches = process.request("search", questions[:QUESTIONS])
        figures |= _percentiles("search", searches["seconds"])
        figures["answers"] = statistics.fmean(len(results) for results in searches["results"])
        semantic = process.request("semantic", questions[QUESTIONS:]) if peer.driver == BUTLERS_DRIVER else None
        if semantic is not None:
            figures |= _percentiles("meaning", semantic["seconds"])
        if peer.embeds:
            results, start = (semantic["results"], QUESTIONS) if semantic else (searches["results"], 0)
            figures["recall_at_10"] = self._recall(results, start, size)
        figures |= _memory(searches["processes"], folder if peer.postgres else None)
        stores = process.request("store", self.texts.to_store[:PROBES])["seconds"]
        if sum(stores) < SLOW_STORES_SECONDS:
            stores += process.request("store", self.texts.to_store[PROBES:])["seconds"]
        figures["stores_a_second"] = len(stores) / sum(stores)
        found = process.request("search", self.texts.probes[: len(stores)])["results"]
        pairs = zip(self.texts.to_store, found, strict=False)
        hits = [any(text in result for result in results) for text, results in pairs]
        figures["found_share"] = sum(hits) / max(1, len(hits))
        return figures


def _fill(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """Fill the peer; returns the seconds. Raises TimedOut or RuntimeError."""
    started = time.monotonic()
    try:
        result = subprocess.run(
            command, env=environment, check=False, capture_output=True, text=True, timeout=FILL_TIMEOUT_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise TimedOut(f"over {FILL_TIMEOUT_SECONDS} s to fill") from None
    if result.returncode:
        raise RuntimeError(result.stderr[-1500:])
    return time.monotonic() - started


@contextlib.contextmanager
def _database(peer: Peer, folder: Path) -> Iterator[str | None]:
    """The address of an embedded server started for a peer that needs one; None for others."""
    if not peer.postgres:
        yield None
        return
    cluster = embedded_server.acquire(folder)
    try:
        yield cluster.dsn("postgres")
    finally:
        cluster.release()


def _percentiles(name: str, seconds: Sequence[float]) -> Figures:
    ordered = sorted(seconds)
    p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    return {f"{name}_p50_ms": statistics.median(ordered) * 1000, f"{name}_p95_ms": p95 * 1000}


def _memory(processes: Sequence[int], home: Path | None) -> Figures:
    """PSS and RSS of the peer's processes with their children, and of its database server."""
    own = [psutil.Process(pid) for pid in processes]
    own += [child for process in own for child in process.children(recursive=True)]
    server = server_processes(home) if home else []
    figures: Figures = {}
    for name, group in (("process", own), ("server", server)):
        infos = [process.memory_full_info() for process in group]
        figures[f"{name}_pss_mib"] = sum(getattr(info, "pss", info.uss) for info in infos) / _MIB
        figures[f"{name}_rss_mib"] = sum(info.rss for info in infos) / _MIB
    figures["memory_mib"] = float(figures["process_pss_mib"]) + float(figures["server_pss_mib"])
    return figures


def _disk_mib(folder: Path, dsn: str | None) -> float:
    """MiB of the peer's database, or of its files without the model."""
    if dsn is not None:
        return asyncio.run(_database_bytes(dsn)) / _MIB
    files = (path for path in folder.rglob("*") if path.is_file() and ".cache" not in path.relative_to(folder).parts)
    return sum(path.stat().st_size for path in files) / _MIB


async def _database_bytes(dsn: str) -> int:
    owner = await asyncpg.connect(dsn)
    size: int = await owner.fetchval("select max(pg_database_size(oid)) from pg_database where not datistemplate")
    await owner.close()
    return size


Results = dict[str, Figures]


def measure(peers: Sequence[Peer], sizes: Sequence[int]) -> Results:
    """The figures of each peer by figure and size; `missing` says why a peer was not measured."""
    results: Results = {peer.name: {"version": peer.version} for peer in peers}
    installed = []
    for peer in peers:
        if reason := install(peer):
            results[peer.name]["missing"] = reason
            _progress(f"{peer.name}: {reason}")
        else:
            installed.append(peer)
    with tempfile.TemporaryDirectory(prefix="butlers-peers-") as folder:
        _progress("generating texts and vectors")
        texts, model = Texts.generate(), load_minilm(CACHE / "model")
        vectors = np.asarray([model.vectors([text])[0] for text in texts.questions[1:]], dtype=np.float32)
        bench = Bench(write_data(Path(folder), sizes), Path(folder), texts, vectors)
        # All peers at one size before the next size, so that compared figures are measured close in time.
        for size in sizes:
            for _, interfaces in itertools.groupby(installed, lambda peer: peer.driver):
                for name, figures in _measure_size(bench, list(interfaces), size).items():
                    results[name] |= {f"{figure}_{size}": value for figure, value in figures.items()}
    return results


def _measure_size(bench: Bench, interfaces: Sequence[Peer], size: int) -> dict[str, Figures]:
    """The figures of one peer at one size by interface; `missing` when it failed or timed out."""
    started = time.monotonic()
    try:
        figures = bench.measure(interfaces, size)
    except TimedOut as timeout:
        figures = [{"missing": str(timeout)} for _ in interfaces]
    except (RuntimeError, psutil.Error) as error:
        print(error, file=sys.stderr)
        figures = [{"missing": "failed"} for _ in interfaces]
    by_name = {peer.name: values for peer, values in zip(interfaces, figures, strict=True)}
    for name, values in by_name.items():
        shown = (f"{figure} {value:.3g}" if isinstance(value, float) else value for figure, value in values.items())
        _progress(f"{name}, {size:,}: {', '.join(shown)}")
    _progress(f"{time.monotonic() - started:.0f} s")
    return by_name


def _progress(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class CellFormatter:
    """Table cells with the ratio to the figure of butlers."""

    results: Results
    baseline: str

    def cell(self, peer: str, figure: str, baseline_figure: str, size: int) -> str:
        """The value with its ratio to the baseline, or the reason why it is missing."""
        figures = self.results[peer]
        value, base = figures.get(f"{figure}_{size}"), self.results[self.baseline].get(f"{baseline_figure}_{size}")
        if not isinstance(value, float):
            return str(figures.get(f"missing_{size}", figures.get("missing", "")))
        shown = f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"
        if not isinstance(base, float) or value == base:
            return shown
        return f"{shown} ({value / base:.2f}×)"


def report(results: Results, peers: Sequence[Peer], sizes: Sequence[int]) -> Report:
    """The report on all peers and sizes."""
    cells = CellFormatter(results, peers[0].name)
    return Report(
        "peers",
        "Comparison with peers",
        "The same embedding model with the same session settings, the same texts and vectors, one peer after the "
        "other in one run, each through the interface its users use. In parentheses: the ratio to the first row.",
        dict(results),
        [_peer_table(peers), _search_table(cells, peers, sizes), _resource_table(cells, peers, sizes)],
        ["peers.svg"],
    )


def _peer_table(peers: Sequence[Peer]) -> Table:
    return Table(
        "Peers",
        "Each peer is filled in bulk, below its interface where that is slow: COPY or INSERT into the tables the "
        "peer created, with the columns it writes; its default index is built afterwards with its own statement. The "
        "vectors lie between vectors of the model. Timed calls go through the interface. mcp-memory-service loads "
        "the same model files in its own session.",
        ["", "version", "interface", "searches by", "filled by"],
        [[peer.name, peer.version, peer.interface, peer.searches, peer.filled] for peer in peers],
    )


def _search_table(cells: CellFormatter, peers: Sequence[Peer], sizes: Sequence[int]) -> Table:
    rows = []
    for peer in peers:
        labels = {"search": peer.name, "meaning": f"{peer.name}, semantic only"}
        for kind in labels if peer.driver == BUTLERS_DRIVER else ["search"]:
            figures = [
                (f"{kind}_{percentile}_ms", f"search_{percentile}_ms", size)
                for size in sizes
                for percentile in ("p50", "p95")
            ]
            rows.append([labels[kind], *(cells.cell(peer.name, *figure) for figure in figures)])
    return Table(
        "A search, ms",
        f"{QUESTIONS} new questions, one after the other, with a limit of ten results; the first question is not "
        "counted. The MCP memory server gets the longest word of the question, since it searches for the query as a "
        f"substring. The timeout is {CALL_TIMEOUT_SECONDS} s.",
        ["", *(f"{percentile} at {size:,}" for size in sizes for percentile in ("p50", "p95"))],
        rows,
    )


def _resource_table(cells: CellFormatter, peers: Sequence[Peer], sizes: Sequence[int]) -> Table:
    largest = sizes[-1]
    figures = ("stores_a_second", "start_seconds", "memory_mib", "recall_at_10", "found_share")
    rows = []
    for peer in peers:
        row = [cells.cell(peer.name, figure, figure, largest) for figure in figures]
        rows.append([peer.name, *row, *(cells.cell(peer.name, "disk_mib", "disk_mib", size) for size in sizes)])
    return Table(
        "Stores, start, memory and disk",
        f"All columns but the disk: with {largest:,} memories. Stores: {STORES} texts one after the other, or "
        f"{PROBES} where those took over {SLOW_STORES_SECONDS} s. Start: from the start of the process to the first "
        "answer, with the PostgreSQL server up already. Memory: PSS of the processes and of the database server. "
        "Nearest: the share of the ten nearest vectors, by comparison of all, among the results. Found: the share of "
        "just stored texts that six of their ten words find. Disk: the database or the files, without the model.",
        [
            "",
            "stores a second",
            "start, s",
            "memory, MiB",
            "nearest",
            "found",
            *(f"disk at {size:,}, MiB" for size in sizes),
        ],
        rows,
    )


def main(sizes: Sequence[int], only: Sequence[str]) -> None:
    """Measure and print; a full run is published."""
    peers = [peer for peer in PEERS if not only or peer.name in only or peer.name == PEERS[0].name]
    finished = report(measure(peers, sizes), peers, sizes)
    if only or tuple(sizes) != SIZES:
        print(finished.markdown())
    else:
        finished.publish()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--only", action="append", default=[], choices=[peer.name for peer in PEERS])
    options = parser.parse_args()
    main([int(size) for size in options.sizes.split(",")], options.only)
