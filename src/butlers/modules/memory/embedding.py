"""Texts in, vectors out: loaded when first needed, off the event loop, calls at once gathered into batches."""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol
from uuid import NAMESPACE_URL, UUID, uuid5

from butlers.errors import Fault, Unavailable
from butlers.modules.memory import minilm
from butlers.modules.memory.domain.tokens import count_tokens_of
from butlers.modules.memory.onnx_folder import OnnxFolder
from butlers.modules.memory.onnx_model import OnnxModel, Vector, load_folder, load_minilm

LARGEST_BATCH = 32
_KEPT = 2048
_LONGEST_KEPT = 2_000
_LONGEST_READ = 32_000
"""The model reads 256 tokens; a megabyte would be cut into tokens for seconds to use the first few."""


@dataclass(frozen=True, slots=True)
class EmbeddingVersion:
    """What made a vector; only vectors of one version can be compared."""

    model: str
    version: str
    dimensions: int

    @property
    def id(self) -> UUID:
        """The same for the same model and version everywhere, so that nobody has to look it up."""
        return _id(f"butlers:embedding:{self.model}:{self.version}:{self.dimensions}")


@cache
def _id(version: str) -> UUID:
    return uuid5(NAMESPACE_URL, version)


class Embedder(Protocol):
    """Whatever turns texts into vectors."""

    @property
    def version(self) -> EmbeddingVersion:
        """What its vectors are made by."""

    async def embed(self, text: str | None) -> Vector:
        """One text's vector."""

    async def embed_batch(self, texts: Sequence[str | None]) -> list[Vector]:
        """Each text's vector, in their order."""

    def count_tokens(self, text: str) -> int:
        """What a text costs, by the model's own tokenizer."""


@cache
def get_embedding_engine(home: Path, brought: OnnxFolder | None = None) -> "EmbeddingEngine":
    """The one engine of this process for each model; nothing is loaded yet."""
    return EmbeddingEngine(home / "models", brought)


class EmbeddingEngine:
    """A model on ONNX Runtime: all-MiniLM-L6-v2, or one that somebody brings."""

    def __init__(self, cache_folder: Path, brought: OnnxFolder | None = None) -> None:
        self._cache_folder = cache_folder
        self._brought = brought
        self._loading = threading.Lock()
        self._model: OnnxModel | None = None
        # One thread: inference uses the cores by itself, and batches form while it is busy.
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="embedding")
        self._known: OrderedDict[str, Vector] = OrderedDict()
        self._waiting: OrderedDict[str, asyncio.Future[Vector]] = OrderedDict()
        self._draining: asyncio.Task[None] | None = None

    @property
    def version(self) -> EmbeddingVersion:
        """What its vectors are made by."""
        if self._brought is not None:
            return EmbeddingVersion(self._brought.name, self._brought.digest, minilm.DIMENSIONS)
        return EmbeddingVersion(minilm.MODEL, minilm.VERSION, minilm.DIMENSIONS)

    async def embed(self, text: str | None) -> Vector:
        """One text's vector; calls made while the model is busy share its next run."""
        text = _clip_text(text)
        if (known := self._known.get(text)) is not None:
            self._known.move_to_end(text)
            return known
        future = self._waiting.get(text)
        if future is None:
            future = self._waiting[text] = asyncio.get_running_loop().create_future()
        if self._draining is None or self._draining.done():
            self._draining = asyncio.create_task(self._drain())
        # Shielded: others may wait for the same text when this caller goes away.
        return await asyncio.shield(future)

    async def embed_batch(self, texts: Sequence[str | None]) -> list[Vector]:
        """Each text's vector, in their order; texts of like length go through the model together."""
        if not texts:
            return []
        wanted = [_clip_text(text) for text in texts]
        distinct = sorted(set(wanted), key=len)
        vectors: dict[str, Vector] = {}
        for start in range(0, len(distinct), LARGEST_BATCH):
            batch = distinct[start : start + LARGEST_BATCH]
            vectors.update(zip(batch, await self._infer(batch), strict=True))
        return [vectors[text] for text in wanted]

    def count_tokens(self, text: str) -> int:
        """What a text costs, by the model's own tokenizer."""
        encoding = self._loaded().counter.encode(text, add_special_tokens=False)
        return count_tokens_of(text, encoding.tokens, encoding.offsets)

    async def ready(self) -> None:
        """Return once the model is loaded."""
        await asyncio.get_running_loop().run_in_executor(self._worker, self._loaded)

    async def _drain(self) -> None:
        """Run whatever waits, batch after batch, until nothing does."""
        while self._waiting:
            batch = [self._waiting.popitem(last=False) for _ in range(min(len(self._waiting), LARGEST_BATCH))]
            try:
                vectors = await self._infer([text for text, _ in batch])
            except Fault as fault:
                _fail_batch(batch, fault)
                continue
            except Exception as error:  # noqa: BLE001 — whatever the runtime raises, nobody may wait for ever
                _fail_batch(batch, Unavailable(f"the embedding model failed: {type(error).__name__}"))
                continue
            for (text, future), vector in zip(batch, vectors, strict=True):
                self._remember(text, vector)
                if not future.done():
                    future.set_result(vector)

    async def _infer(self, texts: Sequence[str]) -> list[Vector]:
        return await asyncio.get_running_loop().run_in_executor(self._worker, self._run, texts)

    def _run(self, texts: Sequence[str]) -> list[Vector]:
        return self._loaded().vectors(texts)

    def _remember(self, text: str, vector: Vector) -> None:
        if len(text) > _LONGEST_KEPT:
            return
        self._known[text] = vector
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)

    def _loaded(self) -> OnnxModel:
        with self._loading:
            if self._model is None:
                self._model = self._load()
            return self._model

    def _load(self) -> OnnxModel:
        if self._brought is not None:
            return load_folder(self._brought)
        try:
            return load_minilm(self._cache_folder)
        except Fault:
            raise
        except Exception as error:
            raise Unavailable(
                f"the embedding model can't be loaded: {type(error).__name__}",
                hint=f"Remove {self._cache_folder}: it is built anew.",
            ) from error


def _clip_text(text: str | None) -> str:
    """The part of a text the model can read, or a single space where there is none."""
    return text[:_LONGEST_READ] if text and text.strip() else " "


def _fail_batch(batch: Sequence[tuple[str, "asyncio.Future[Vector]"]], fault: Fault) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(fault)
