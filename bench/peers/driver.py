"""What every driver does: fill its peer in bulk, or store and search one after another and time each call."""

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
class Setting:
    """Where a peer keeps its data, which model it is given, and what it is filled with."""

    place: Path
    graph: Path
    tokenizer: Path
    made: Path
    size: int
    environment: Path | None = None
    dsn: str | None = None

    def embedder(self) -> Embedder:
        """The model everybody uses."""
        return Embedder(self.graph, self.tokenizer)

    def texts(self) -> list[str]:
        """What is to be remembered already when the measuring begins."""
        texts: list[str] = json.loads((self.made / "texts.json").read_text(encoding="utf-8"))[: self.size]
        return texts

    def vectors(self) -> "np.ndarray[Any, Any]":
        """Vectors of these texts, made up between real ones."""
        vectors: np.ndarray[Any, Any] = np.load(self.made / f"vectors-{self.size}.npy", mmap_mode="r")
        return vectors


def vector_bytes(vector: "np.ndarray[Any, Any]") -> bytes:
    """A vector as pgvector takes it in a binary COPY."""
    return struct.pack(">HH", len(vector), 0) + vector.astype(">f4").tobytes()


class Peer(Protocol):
    """Something that remembers, through the interface its users have."""

    began: float | None
    """When its process was started, where that is not the driver's own."""

    def store(self, text: str) -> None:
        """Remember a text."""

    def search(self, question: str) -> Sequence[str]:
        """The texts of the ten best."""

    def processes(self) -> Sequence[int]:
        """The processes it consists of, without a database server."""

    def close(self) -> None:
        """End it."""


class Within:
    """A peer that is a library: it lives in the driver's own process."""

    began: float | None = None

    def processes(self) -> Sequence[int]:
        """This one."""
        return [os.getpid()]

    def close(self) -> None:
        """Nothing but the process to end."""


def drive(fill: Callable[[Setting], None], opened: Callable[[Setting], Peer]) -> None:
    """Fill, or answer the bench line by line until it has no more to ask."""
    # Libraries print as they like; the answers go out on a stream of their own.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    verb, told = sys.argv[1], json.loads(sys.argv[2])
    setting = Setting(**{name: _path(name, value) for name, value in told.items()})
    if verb == "fill":
        fill(setting)
        return
    peer = opened(setting)
    try:
        for line in sys.stdin:
            print(json.dumps(_answered(peer, json.loads(line))), file=answers, flush=True)
    finally:
        peer.close()


def _path(name: str, value: Any) -> Any:
    return Path(value) if value is not None and name not in {"size", "dsn"} else value


def _answered(peer: Peer, asked: dict[str, Any]) -> dict[str, Any]:
    """Each text stored or looked for, for as long as there is time."""
    call = {"store": peer.store, "search": peer.search, "meaning": getattr(peer, "by_meaning", peer.search)}
    taken: list[float] = []
    found: list[list[str]] = []
    give_up = time.monotonic() + asked["seconds"]
    for text in asked["texts"]:
        began = time.perf_counter()
        got = call[asked["do"]](text)
        taken.append(time.perf_counter() - began)
        found.append(list(got or ()))
        if time.monotonic() > give_up:
            break
    return {
        "taken": taken,
        "found": found,
        "began": peer.began,
        "ended": time.monotonic(),
        "processes": list(peer.processes()),
    }
