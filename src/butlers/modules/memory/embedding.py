"""Embedding engine: loads its model on first use, runs it off the event loop and serves tenants in turn."""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Protocol
from uuid import NAMESPACE_URL, UUID, uuid5

from butlers.errors import Fault, Unavailable
from butlers.modules.memory import minilm
from butlers.modules.memory.domain.tokens import count_tokens_of, split_pieces
from butlers.modules.memory.embedding_queue import EmbeddingQueue, PendingText
from butlers.modules.memory.model_fetch import PATIENCE_SECONDS, await_model, start_fetch
from butlers.modules.memory.onnx_folder import OnnxFolder
from butlers.modules.memory.onnx_model import OnnxModel, Vector, load_folder, load_minilm

_MAX_CACHED_VECTORS = 2048
_MAX_CACHED_CHARACTERS = 2_000
_RUNS_AT_ONCE = 2
"""A single run leaves cores idle between its layers."""
_MAX_INPUT_CHARACTERS = 32_000
"""The model reads 256 tokens; tokenizing a megabyte for them would take seconds."""


@dataclass(frozen=True)
class EmbeddingVersion:
    """The model and version that made a vector; only vectors of one version can be compared."""

    model: str
    version: str
    dimensions: int

    @cached_property
    def id(self) -> UUID:
        """An id derived from model, version and dimensions, the same everywhere without a lookup."""
        return uuid5(NAMESPACE_URL, f"butlers:embedding:{self.model}:{self.version}:{self.dimensions}")


class Embedder(Protocol):
    """Anything that turns texts into vectors."""

    @property
    def version(self) -> EmbeddingVersion:
        """The version of its vectors."""

    async def embed(self, text: str | None, *, tenant: str = "") -> Vector:
        """The vector of one text of a tenant."""

    async def embed_batch(self, texts: Sequence[str | None], *, tenant: str = "") -> list[Vector]:
        """The vectors of a tenant's texts, in order."""

    def count_tokens(self, text: str) -> int:
        """The tokens of a text, counted by the model's own tokenizer."""


@cache
def get_embedding_engine(home: Path, folder: OnnxFolder | None = None) -> "EmbeddingEngine":
    """The engine of this process for a model; its model is not loaded yet."""
    return EmbeddingEngine(home / "models", folder)


class EmbeddingEngine:
    """A model on ONNX Runtime: all-MiniLM-L6-v2, or the one in a configured folder."""

    def __init__(self, cache_folder: Path, folder: OnnxFolder | None = None) -> None:
        self._cache_folder = cache_folder
        self._folder = folder
        self._load_lock = threading.Lock()
        self._model: OnnxModel | None = None
        self._workers = ThreadPoolExecutor(_RUNS_AT_ONCE, thread_name_prefix="embedding")
        self._cache: OrderedDict[str, Vector] = OrderedDict()
        self._queue = EmbeddingQueue()
        self._drain_tasks: set[asyncio.Task[None]] = set()

    @cached_property
    def version(self) -> EmbeddingVersion:
        """The version of its vectors."""
        if self._folder is not None:
            return EmbeddingVersion(self._folder.name, self._folder.digest, minilm.DIMENSIONS)
        return EmbeddingVersion(minilm.MODEL, minilm.VERSION, minilm.DIMENSIONS)

    async def embed(self, text: str | None, *, tenant: str = "") -> Vector:
        """The vector of one text of a tenant; tenants take turns, and texts that wait share a run of the model."""
        text = _clip_text(text)
        if (cached := self._cache.get(text)) is not None:
            self._cache.move_to_end(text)
            return cached
        vector = await self._enqueue(("call", tenant), text).vector()
        self._add_to_cache(text, vector)
        return vector

    async def embed_batch(self, texts: Sequence[str | None], *, tenant: str = "") -> list[Vector]:
        """The vectors of a tenant's texts, in order; its calls of `embed` take turns with them."""
        clipped = [_clip_text(text) for text in texts]
        # By length: every text of a run is padded to the longest.
        pending = {text: self._enqueue(("batch", tenant), text) for text in sorted(set(clipped), key=len)}
        vectors = await asyncio.gather(*(each.vector() for each in pending.values()))
        by_text = dict(zip(pending, vectors, strict=True))
        return [by_text[text] for text in clipped]

    def count_tokens(self, text: str) -> int:
        """The tokens of a text, counted by the model's own tokenizer."""
        counter = self._loaded(seconds=0).counter
        total = 0
        for piece in split_pieces(text):
            encoding = counter.encode(piece, add_special_tokens=False)
            total += count_tokens_of(piece, encoding.tokens, encoding.offsets)
        return total

    def start_fetch(self) -> None:
        """Start to fetch the built-in model if it is missing, and return at once."""
        if self._folder is None:
            start_fetch(self._cache_folder)

    async def ready(self) -> None:
        """Return once the model is loaded."""
        await asyncio.get_running_loop().run_in_executor(self._workers, self._loaded)

    def _enqueue(self, lane: tuple[str, str], text: str) -> PendingText:
        """Add a text to a lane of the queue, and run the model until the queue is empty."""
        pending = self._queue.add(lane, text)
        if not self._drain_tasks:
            self._start_draining()
        return pending

    def _start_draining(self) -> None:
        task = asyncio.create_task(self._drain())
        self._drain_tasks.add(task)
        task.add_done_callback(self._drain_tasks.discard)

    async def _drain(self) -> None:
        """Run the waiting texts in batches until none is left."""
        while batch := self._queue.next_batch():
            # A second run only for a backlog: texts that wait form larger batches, which cost less.
            if len(self._queue) > len(batch) and len(self._drain_tasks) < _RUNS_AT_ONCE:
                self._start_draining()
            try:
                vectors = await self._infer([each.text for each in batch])
            except Exception as error:  # noqa: BLE001 — on any error of the runtime the callers must stop waiting
                failure = Unavailable(f"the embedding model failed: {type(error).__name__}")
                for each in batch:
                    if not each.future.done():
                        each.future.set_exception(error if isinstance(error, Fault) else failure)
                continue
            for each, vector in zip(batch, vectors, strict=True):
                if not each.future.done():
                    each.future.set_result(vector)

    async def _infer(self, texts: Sequence[str]) -> list[Vector]:
        return await asyncio.get_running_loop().run_in_executor(self._workers, lambda: self._loaded().vectors(texts))

    def _add_to_cache(self, text: str, vector: Vector) -> None:
        if len(text) > _MAX_CACHED_CHARACTERS:
            return
        self._cache[text] = vector
        if len(self._cache) > _MAX_CACHED_VECTORS:
            self._cache.popitem(last=False)

    def _loaded(self, seconds: float = PATIENCE_SECONDS) -> OnnxModel:
        """The model; a missing one is waited for before the lock is taken."""
        if self._model is None and self._folder is None:
            await_model(self._cache_folder, seconds)
        with self._load_lock:
            self._model = self._model or self._load()
            return self._model

    def _load(self) -> OnnxModel:
        if self._folder is not None:
            return load_folder(self._folder)
        try:
            return load_minilm(self._cache_folder)
        except Fault:
            raise
        except OSError as error:
            raise Unavailable(
                f"the embedding model can't be written to {self._cache_folder}: {error.strerror}",
                hint="Make room there, or set BUTLERS_HOME to a folder that you may write to.",
            ) from error
        except Exception as error:
            raise Unavailable(
                f"the embedding model can't be loaded: {type(error).__name__}",
                hint=f"Delete {self._cache_folder}; it is rebuilt on the next call.",
            ) from error


def _clip_text(text: str | None) -> str:
    """The beginning of the text that the model can read, or a space if it is blank."""
    return text[:_MAX_INPUT_CHARACTERS] if text and text.strip() else " "
