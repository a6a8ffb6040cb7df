"""Chroma's `PersistentClient`: `add` and `query`; filled by its own `add` in batches, with the vectors given."""

import uuid
from collections.abc import Sequence
from typing import Any

from driver import Setting, Within, drive

_BATCH = 5_000


def _collection(setting: Setting) -> Any:
    import chromadb  # type: ignore[import-not-found]
    from chromadb.config import Settings  # type: ignore[import-not-found]

    model = setting.embedder()

    class Injected(chromadb.EmbeddingFunction):  # type: ignore[misc]
        """What Chroma asks of an embedder."""

        def __init__(self) -> None:
            pass

        def __call__(self, input: list[str]) -> Any:  # noqa: A002
            return list(model.array(input))

    settings = Settings(anonymized_telemetry=False)
    client = chromadb.PersistentClient(str(setting.place / "chroma"), settings=settings)
    return client.get_or_create_collection(
        "memories", embedding_function=Injected(), configuration={"hnsw": {"space": "cosine"}}
    )


def filled(setting: Setting) -> None:
    """All of them, thousands at a time."""
    collection, texts, vectors = _collection(setting), setting.texts(), setting.vectors()
    for start in range(0, len(texts), _BATCH):
        part = texts[start : start + _BATCH]
        numbers = range(start, start + len(part))
        collection.add(
            ids=[f"note-{number}" for number in numbers],
            documents=part,
            embeddings=vectors[start : start + len(part)],
        )


class Chroma(Within):
    """The library, as its users have it."""

    def __init__(self, setting: Setting) -> None:
        self._collection = _collection(setting)

    def store(self, text: str) -> None:
        """A new document."""
        self._collection.add(ids=[uuid.uuid4().hex], documents=[text])

    def search(self, question: str) -> Sequence[str]:
        """The ten nearest."""
        found: list[str] = self._collection.query(query_texts=[question], n_results=10)["documents"][0]
        return found


if __name__ == "__main__":
    drive(filled, Chroma)
