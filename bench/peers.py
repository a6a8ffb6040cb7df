"""A butler beside its peers: the same model, the same texts, the same machine, the same run."""

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
from report import Report, Table
from startup import server_processes
from world import SEEDS, like, sentence

sys.path.insert(1, str(Path(__file__).parent / "peers"))
from environments import CACHE, PEERS, Peer, missing, quietly

OURS = "with_butlers.py"
SIZES = (1_000, 10_000, 100_000)
STORES, QUESTIONS, PROBES = 100, 60, 20
PATIENCE_SECONDS = 20
FILL_SECONDS, CALL_SECONDS, PHASE_SECONDS = 240, 60, 8
_CHUNK = 20_000
_MIB = 2.0**20
Figures = dict[str, float | str]


class Over(Exception):
    """Something took longer than it is given."""


@dataclass(frozen=True, slots=True)
class Texts:
    """What is asked and told, the same for everybody."""

    told: Sequence[str]
    asked: Sequence[str]
    probes: Sequence[str]

    @classmethod
    def new(cls) -> "Texts":
        """Sentences nobody was filled with; a probe is half of the words of one of them."""
        rng = random.Random(11)
        told = [sentence(rng) for _ in range(STORES)]
        probes = [" ".join(rng.sample(text.split(), 6)) for text in told[:PROBES]]
        return cls(told, [sentence(rng) for _ in range(2 * QUESTIONS + 1)], probes)


def make(folder: Path, sizes: Sequence[int]) -> Path:
    """Texts and vectors to fill everybody with, as `world.fill` makes them; the model they all use."""
    seeding, words = random.Random(5), random.Random(7)
    kept = CACHE / "model" / f"seeds-{SEEDS}.npy"
    if not kept.exists():
        model = load_minilm(CACHE / "model")
        np.save(kept, [model.vectors([sentence(seeding)])[0] for _ in range(SEEDS)])
    seeds = np.load(kept).astype(np.float32)
    np.save(folder / "seeds.npy", seeds)
    for size in sizes:
        numbers = np.random.default_rng(7)
        parts = [like(seeds, min(_CHUNK, size - start), numbers) for start in range(0, size, _CHUNK)]
        np.save(folder / f"vectors-{size}.npy", np.concatenate(parts).astype(np.float32))
    texts = [sentence(words) for _ in range(max(sizes))]
    (folder / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
    return minilm.graph_file(CACHE / "model")


class Driven:
    """A peer in a process of its own, asked line by line."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._said: list[str] = []
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def ask(self, do: str, texts: Sequence[str]) -> dict[str, Any]:
        """Seconds and findings of each call, as many as there was time for."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # Killed, it answers with an end of file: no call is waited for longer than that.
        watch = threading.Timer(CALL_SECONDS + PHASE_SECONDS, self._process.kill)
        watch.start()
        try:
            print(
                json.dumps({"do": do, "texts": texts, "seconds": PHASE_SECONDS}), file=self._process.stdin, flush=True
            )
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            overdue = not watch.is_alive()
            watch.cancel()
        if line:
            told: dict[str, Any] = json.loads(line)
            return told
        if overdue:
            raise Over(f"over {CALL_SECONDS} s")
        self._listening.join(5)
        raise RuntimeError("".join(self._said[-12:]))

    def first(self, question: str) -> float:
        """Seconds from the start of its process to an answer."""
        told = self.ask("search", [question])
        seconds: float = told["ended"] - (told["began"] or self._began)
        return seconds

    def close(self) -> None:
        """Let it end by itself, and end it where it does not."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        self._said += self._process.stderr


@dataclass(frozen=True, slots=True)
class Bench:
    """What all peers are measured with."""

    graph: Path
    made: Path
    texts: Texts
    asked: "np.ndarray[Any, Any]"
    """The vectors of the questions."""

    def measured(self, peers: Sequence[Peer], size: int) -> list[Figures]:
        """Everything about a peer at one size, in a place of its own; two faces of one peer share it."""
        place = Path(tempfile.mkdtemp(prefix="butlers-peers-"))
        place.chmod(0o755)
        try:
            with _database(peers[0], place) as dsn:
                command = self._command(peers[0], place, size, dsn)
                filled = _filled(command, quietly(place))
                return [{"fill_seconds": filled, **self._running(peer, command, place, size, dsn)} for peer in peers]
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _running(self, peer: Peer, command: Sequence[str], place: Path, size: int, dsn: str | None) -> Figures:
        python, driver, _, setting = command
        running = Driven([python, driver, "answer", setting], {**quietly(place), "PEER": peer.name})
        try:
            return self._asked(peer, running, place, size, dsn)
        finally:
            running.close()

    def _recall(self, found: Sequence[Sequence[str]], start: int, size: int) -> float:
        """The share of the ten nearest, by comparing every vector, that was found."""
        texts = json.loads((self.made / "texts.json").read_text(encoding="utf-8"))
        vectors = np.load(self.made / f"vectors-{size}.npy", mmap_mode="r")
        nearest = np.argsort(-(self.asked[start : start + len(found)] @ vectors.T), axis=1)[:, :10]
        wanted = [{texts[number] for number in row} for row in nearest]
        return statistics.fmean(len(each & set(some)) / 10 for each, some in zip(wanted, found, strict=True))

    def _command(self, peer: Peer, place: Path, size: int, dsn: str | None) -> list[str]:
        setting = {
            "place": str(place),
            "graph": str(self.graph),
            "tokenizer": str(minilm.model_folder() / "tokenizer.json"),
            "made": str(self.made),
            "size": size,
            "environment": str(peer.environment),
            "dsn": dsn,
        }
        driver = Path(__file__).parent / "peers" / peer.driver
        return [str(peer.python), str(driver), "fill", json.dumps(setting)]

    def _asked(self, peer: Peer, running: Driven, place: Path, size: int, dsn: str | None) -> Figures:
        first, *asked = self.texts.asked
        figures: Figures = {"start_seconds": running.first(first), "disk_mib": _disk(place, dsn)}
        searched = running.ask("search", asked[:QUESTIONS])
        figures |= _percentiles("search", searched["taken"])
        figures["answers"] = statistics.fmean(len(found) for found in searched["found"])
        by_meaning = running.ask("meaning", asked[QUESTIONS:]) if peer.driver == OURS else None
        if by_meaning is not None:
            figures |= _percentiles("meaning", by_meaning["taken"])
        if peer.embeds:
            found, start = (by_meaning["found"], QUESTIONS) if by_meaning else (searched["found"], 0)
            figures["recall_at_10"] = self._recall(found, start, size)
        figures |= _memory(searched["processes"], place if peer.postgres else None)
        stored = running.ask("store", self.texts.told[:PROBES])["taken"]
        if sum(stored) < PATIENCE_SECONDS:
            stored += running.ask("store", self.texts.told[PROBES:])["taken"]
        figures["stores_a_second"] = len(stored) / sum(stored)
        probed = [number for number in range(PROBES) if number < len(stored)]
        found = running.ask("search", [self.texts.probes[number] for number in probed])["found"]
        hits = [
            any(self.texts.told[number] in each for each in some) for number, some in zip(probed, found, strict=False)
        ]
        figures["found_share"] = sum(hits) / max(1, len(hits))
        return figures


def _filled(command: Sequence[str], environment: Mapping[str, str]) -> float:
    began = time.monotonic()
    try:
        done = subprocess.run(
            command, env=environment, check=False, capture_output=True, text=True, timeout=FILL_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise Over(f"over {FILL_SECONDS} s to fill") from None
    if done.returncode:
        raise RuntimeError(done.stderr[-1500:])
    return time.monotonic() - began


@contextlib.contextmanager
def _database(peer: Peer, place: Path) -> Iterator[str | None]:
    """An embedded server of its own for those that need one; it is up before they start."""
    if not peer.postgres:
        yield None
        return
    cluster = embedded_server.acquire(place)
    try:
        yield cluster.dsn("postgres")
    finally:
        cluster.release()


def _percentiles(name: str, taken: Sequence[float]) -> Figures:
    known = sorted(taken)
    at = {"p50": statistics.median(known), "p95": known[min(len(known) - 1, int(len(known) * 0.95))]}
    return {f"{name}_{which}_ms": value * 1000 for which, value in at.items()}


def _memory(processes: Sequence[int], home: Path | None) -> Figures:
    """PSS and RSS of its processes with all their children, and of its database server."""
    own = [psutil.Process(pid) for pid in processes]
    own += [child for each in own for child in each.children(recursive=True)]
    server = server_processes(home) if home else []
    figures: Figures = {}
    for name, some in (("process", own), ("server", server)):
        full = [each.memory_full_info() for each in some]
        figures[f"{name}_pss_mib"] = sum(getattr(info, "pss", info.uss) for info in full) / _MIB
        figures[f"{name}_rss_mib"] = sum(info.rss for info in full) / _MIB
    figures["memory_mib"] = float(figures["process_pss_mib"]) + float(figures["server_pss_mib"])
    return figures


def _disk(place: Path, dsn: str | None) -> float:
    """MiB of its database, or of its files without the model."""
    if dsn is not None:
        return asyncio.run(_database_bytes(dsn)) / _MIB
    files = (path for path in place.rglob("*") if path.is_file() and ".cache" not in path.relative_to(place).parts)
    return sum(path.stat().st_size for path in files) / _MIB


async def _database_bytes(dsn: str) -> int:
    owner = await asyncpg.connect(dsn)
    size: int = await owner.fetchval("select max(pg_database_size(oid)) from pg_database where not datistemplate")
    await owner.close()
    return size


Found = dict[str, dict[str, float | str]]


def measured(peers: Sequence[Peer], sizes: Sequence[int]) -> Found:
    """By peer, each figure with the size it was measured at; what could not be measured says why."""
    found: Found = {peer.name: {"version": peer.version} for peer in peers}
    present = []
    for peer in peers:
        if reason := missing(peer):
            found[peer.name]["missing"] = reason
            _progress(f"{peer.name}: {reason}")
        else:
            present.append(peer)
    with tempfile.TemporaryDirectory(prefix="butlers-peers-") as folder:
        _progress("making texts and vectors")
        texts, model = Texts.new(), load_minilm(CACHE / "model")
        asked = np.asarray([model.vectors([question])[0] for question in texts.asked[1:]], dtype=np.float32)
        bench = Bench(make(Path(folder), sizes), Path(folder), texts, asked)
        # All of them at one size before any at the next: whoever is compared is measured about the same time.
        for size in sizes:
            for _, faces in itertools.groupby(present, lambda peer: peer.driver):
                for name, figures in _at(bench, list(faces), size).items():
                    found[name] |= {f"{figure}_{size}": value for figure, value in figures.items()}
    return found


def _at(bench: Bench, faces: Sequence[Peer], size: int) -> dict[str, Figures]:
    """The figures of one size; a peer that fails or takes too long does not keep the others from being measured."""
    began = time.monotonic()
    try:
        figures = bench.measured(faces, size)
    except Over as over:
        figures = [{"missing": str(over)} for _ in faces]
    except (RuntimeError, psutil.Error) as error:
        print(error, file=sys.stderr)
        figures = [{"missing": "failed"} for _ in faces]
    known = {peer.name: each for peer, each in zip(faces, figures, strict=True)}
    for name, each in known.items():
        shown = (f"{figure} {value:.3g}" if isinstance(value, float) else value for figure, value in each.items())
        _progress(f"{name}, {size:,}: {', '.join(shown)}")
    _progress(f"{time.monotonic() - began:.0f} s")
    return known


def _progress(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Cells:
    """Figures as they stand in a table, each with its ratio to ours."""

    found: Found
    ours: str

    def cell(self, peer: str, figure: str, against: str, size: int) -> str:
        """The value and how many times ours it is; or why there is none."""
        own = self.found[peer]
        value, base = own.get(f"{figure}_{size}"), self.found[self.ours].get(f"{against}_{size}")
        if not isinstance(value, float):
            return str(own.get(f"missing_{size}", own.get("missing", "")))
        shown = f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"
        if not isinstance(base, float) or value == base:
            return shown
        return f"{shown} ({value / base:.2f}×)"


def report(found: Found, peers: Sequence[Peer], sizes: Sequence[int]) -> Report:
    """The tables, and the numbers behind them."""
    cells = Cells(found, peers[0].name)
    return Report(
        "peers",
        "Beside its peers",
        "The same embedding model with the same session settings, the same texts and vectors, one peer after the "
        "other in one run, each through the interface its users use. In parentheses: times ours, the first row.",
        dict(found),
        [_who(peers), _finding(cells, peers, sizes), _taking(cells, peers, sizes)],
        ["peers.svg"],
    )


def _who(peers: Sequence[Peer]) -> Table:
    return Table(
        "Who is measured",
        "Up to each size everybody is filled in bulk, past the interface where it is slow: COPY or INSERT into the "
        "tables the peer made, with the columns it writes, and the index it would have by default built after that "
        "by its own statement. The vectors lie between real ones. What is timed goes through the interface. "
        "mcp-memory-service loads the model with a session of its own, from the same files.",
        ["", "version", "interface", "searches by", "filled by"],
        [[peer.name, peer.version, peer.interface, peer.searches, peer.filled] for peer in peers],
    )


def _finding(cells: Cells, peers: Sequence[Peer], sizes: Sequence[int]) -> Table:
    rows = []
    for peer in peers:
        kinds = {"search": peer.name, "meaning": f"{peer.name}, by meaning alone"}
        for kind in kinds if peer.driver == OURS else ["search"]:
            figures = [
                (f"{kind}_{which}_ms", f"search_{which}_ms", size) for size in sizes for which in ("p50", "p95")
            ]
            rows.append([kinds[kind], *(cells.cell(peer.name, *figure) for figure in figures)])
    return Table(
        "A search, ms",
        f"{QUESTIONS} questions never asked before, one after another, ten answers wanted; the first question is not "
        "counted. The MCP memory server is asked for the longest word of the question, since it looks for the query "
        f"as it stands. Whoever has no answer after {CALL_SECONDS} s is given up.",
        ["", *(f"{which} at {size:,}" for size in sizes for which in ("p50", "p95"))],
        rows,
    )


def _taking(cells: Cells, peers: Sequence[Peer], sizes: Sequence[int]) -> Table:
    largest = sizes[-1]
    figures = ("stores_a_second", "start_seconds", "memory_mib", "recall_at_10", "found_share")
    rows = []
    for peer in peers:
        some = [cells.cell(peer.name, figure, figure, largest) for figure in figures]
        rows.append([peer.name, *some, *(cells.cell(peer.name, "disk_mib", "disk_mib", size) for size in sizes)])
    return Table(
        "What it takes",
        f"With {largest:,} memories there, but for the disk. {STORES} texts stored one after another, or "
        f"{PROBES} where those took over {PATIENCE_SECONDS} s. "
        "Start: from the start of its process to the first answer, the PostgreSQL server up already for those that "
        "have one. Memory: PSS of its processes and its database server. Nearest: the share of the ten nearest by "
        "meaning among the answers, against comparing every vector. Found: of texts just stored, asked for with "
        "six of their ten words, the share among the answers. Disk: its database or its files, without the model.",
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
    """Measure, print, keep."""
    peers = [peer for peer in PEERS if not only or peer.name in only or peer.name == PEERS[0].name]
    made = report(measured(peers, sizes), peers, sizes)
    print(made.markdown())
    if not only and tuple(sizes) == SIZES:
        print(f"written: {made.save().name}")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--sizes", default=",".join(map(str, SIZES)))
    arguments.add_argument("--only", action="append", default=[], choices=[peer.name for peer in PEERS])
    asked = arguments.parse_args()
    main([int(size) for size in asked.sizes.split(",")], asked.only)
