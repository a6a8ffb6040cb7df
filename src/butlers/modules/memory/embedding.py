"""Embedding engine: loads its model on first use, runs it off the event loop and batches concurrent calls."""

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
from butlers.modules.memory.domain.tokens import count_tokens_of
from butlers.modules.memory.onnx_folder import OnnxFolder
from butlers.modules.memory.onnx_model import OnnxModel, Vector, load_folder, load_minilm

MAX_BATCH_SIZE = 32
_MAX_CACHED_VECTORS = 2048
_MAX_CACHED_CHARACTERS = 2_000
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

    async def embed(self, text: str | None) -> Vector:
        """The vector of one text."""

    async def embed_batch(self, texts: Sequence[str | None]) -> list[Vector]:
        """The vectors of the texts, in order."""

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
        # One thread: inference itself uses all cores, and batches form while it is busy.
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="embedding")
        self._cache: OrderedDict[str, Vector] = OrderedDict()
        self._pending: OrderedDict[str, asyncio.Future[Vector]] = OrderedDict()
        self._drain_task: asyncio.Task[None] | None = None

    @cached_property
    def version(self) -> EmbeddingVersion:
        """The version of its vectors."""
        if self._folder is not None:
            return EmbeddingVersion(self._folder.name, self._folder.digest, minilm.DIMENSIONS)
        return EmbeddingVersion(minilm.MODEL, minilm.VERSION, minilm.DIMENSIONS)

    async def embed(self, text: str | None) -> Vector:
        """The vector of one text; calls made while the model is busy share its next run."""
        text = _clip_text(text)
        if (cached := self._cache.get(text)) is not None:
            self._cache.move_to_end(text)
            return cached
        future = self._pending.get(text)
        if future is None:
            future = self._pending[text] = asyncio.get_running_loop().create_future()
        if self._drain_task is None or self._drain_task.done():
            self._drain_task = asyncio.create_task(self._drain())
        # Shielded: other callers may wait for the same text when this one is cancelled.
        return await asyncio.shield(future)

    async def embed_batch(self, texts: Sequence[str | None]) -> list[Vector]:
        """The vectors of the texts, in order; texts of similar length share a batch."""
        clipped = [_clip_text(text) for text in texts]
        distinct = sorted(set(clipped), key=len)
        vectors: dict[str, Vector] = {}
        for start in range(0, len(distinct), MAX_BATCH_SIZE):
            batch = distinct[start : start + MAX_BATCH_SIZE]
            vectors.update(zip(batch, await self._infer(batch), strict=True))
        return [vectors[text] for text in clipped]

    def count_tokens(self, text: str) -> int:
        """The tokens of a text, counted by the model's own tokenizer."""
        encoding = self._loaded().counter.encode(text, add_special_tokens=False)
        return count_tokens_of(text, encoding.tokens, encoding.offsets)

    async def ready(self) -> None:
        """Return once the model is loaded."""
        await asyncio.get_running_loop().run_in_executor(self._worker, self._loaded)

    async def _drain(self) -> None:
        """Run the pending texts in batches until none is left."""
        while self._pending:
            batch = [self._pending.popitem(last=False) for _ in range(min(len(self._pending), MAX_BATCH_SIZE))]
            try:
                vectors = await self._infer([text for text, _ in batch])
            except Exception as error:  # noqa: BLE001 — on any error of the runtime the callers must stop waiting
                failure = Unavailable(f"the embedding model failed: {type(error).__name__}")
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error if isinstance(error, Fault) else failure)
                continue
            for (text, future), vector in zip(batch, vectors, strict=True):
                self._add_to_cache(text, vector)
                if not future.done():
                    future.set_result(vector)

    async def _infer(self, texts: Sequence[str]) -> list[Vector]:
        return await asyncio.get_running_loop().run_in_executor(self._worker, lambda: self._loaded().vectors(texts))

    def _add_to_cache(self, text: str, vector: Vector) -> None:
        if len(text) > _MAX_CACHED_CHARACTERS:
            return
        self._cache[text] = vector
        if len(self._cache) > _MAX_CACHED_VECTORS:
            self._cache.popitem(last=False)

    def _loaded(self) -> OnnxModel:
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
        except Exception as error:
            raise Unavailable(
                f"the embedding model can't be loaded: {type(error).__name__}",
                hint=f"Delete {self._cache_folder}; it is rebuilt on the next call.",
            ) from error


def _clip_text(text: str | None) -> str:
    """The beginning of the text that the model can read, or a space if it is blank."""
    return text[:_MAX_INPUT_CHARACTERS] if text and text.strip() else " "
