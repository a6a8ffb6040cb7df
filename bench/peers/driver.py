"""Main loop of the drivers: bulk fill of a peer, or timed stores and searches."""

import json
import os
import struct
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from embedder import Embedder


@dataclass(frozen=True, slots=True)
class Settings:
    """The peer's folder, the model, and the data to fill it with."""

    folder: Path
    graph: Path
    tokenizer: Path
    data: Path
    size: int
    environment: Path | None = None
    dsn: str | None = None

    def embedder(self) -> Embedder:
        """The model that all peers use."""
        return Embedder(self.graph, self.tokenizer)

    def texts(self) -> list[str]:
        """The texts the peer is filled with."""
        texts: list[str] = json.loads((self.data / "texts.json").read_text(encoding="utf-8"))[: self.size]
        return texts

    def vectors(self) -> "np.ndarray[Any, Any]":
        """Generated vectors for these texts."""
        vectors: np.ndarray[Any, Any] = np.load(self.data / f"vectors-{self.size}.npy", mmap_mode="r")
        return vectors


def vector_bytes(vector: "np.ndarray[Any, Any]") -> bytes:
    """A vector in the format of pgvector's binary COPY."""
    return struct.pack(">HH", len(vector), 0) + vector.astype(">f4").tobytes()


class Peer(Protocol):
    """A memory, called through the interface its users use."""

    started_at: float | None
    """The start of the peer's process; None for a library in the driver's process."""

    def store(self, text: str) -> None:
        """Store a text."""

    def search(self, question: str) -> Sequence[str]:
        """The ten best texts."""

    def processes(self) -> Sequence[int]:
        """The ids of its processes, without a database server."""

    def close(self) -> None:
        """Stop the peer."""


class LibraryPeer:
    """A peer that is a library in the driver's process."""

    started_at: float | None = None

    def processes(self) -> Sequence[int]:
        """The id of this process."""
        return [os.getpid()]

    def close(self) -> None:
        """Do nothing: the peer ends with the process."""


def drive(fill: Callable[[Settings], None], open_peer: Callable[[Settings], Peer]) -> None:
    """Fill the peer, or answer the requests on standard input."""
    # Libraries print to standard output, so it is redirected and the answers get their own stream.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    command, values = sys.argv[1], json.loads(sys.argv[2])
    settings = Settings(**{name: _to_path(name, value) for name, value in values.items()})
    if command == "fill":
        fill(settings)
        return
    peer = open_peer(settings)
    try:
        for line in sys.stdin:
            print(json.dumps(_answer(peer, json.loads(line))), file=answers, flush=True)
    finally:
        peer.close()


def _to_path(name: str, value: Any) -> Any:
    return Path(value) if value is not None and name not in {"size", "dsn"} else value


def _answer(peer: Peer, request: dict[str, Any]) -> dict[str, Any]:
    """The seconds and results of the calls that were made in time."""
    actions = {"store": peer.store, "search": peer.search, "semantic": getattr(peer, "semantic_search", peer.search)}
    call = actions[request["action"]]
    seconds: list[float] = []
    results: list[list[str]] = []
    deadline = time.monotonic() + request["seconds"]
    for text in request["texts"]:
        started = time.perf_counter()
        result = call(text)
        seconds.append(time.perf_counter() - started)
        results.append(list(result or ()))
        if time.monotonic() > deadline:
            break
    return {
        "seconds": seconds,
        "results": results,
        "started_at": peer.started_at,
        "ended_at": time.monotonic(),
        "processes": list(peer.processes()),
    }
