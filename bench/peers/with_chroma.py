"""Driver for Chroma's `PersistentClient` (`add` and `query`), filled by `add` in batches with the vectors given."""

import uuid
from collections.abc import Sequence
from typing import Any

from driver import LibraryPeer, Settings, drive

_BATCH = 5_000


def _collection(settings: Settings) -> Any:
    import chromadb  # type: ignore[import-not-found]
    import chromadb.config  # type: ignore[import-not-found]

    model = settings.embedder()

    class SharedEmbedder(chromadb.EmbeddingFunction):  # type: ignore[misc]
        """The shared model as Chroma's embedding function."""

        def __init__(self) -> None:
            pass

        def __call__(self, input: list[str]) -> Any:  # noqa: A002
            return list(model.array(input))

    chroma_settings = chromadb.config.Settings(anonymized_telemetry=False)
    client = chromadb.PersistentClient(str(settings.folder / "chroma"), settings=chroma_settings)
    return client.get_or_create_collection(
        "memories", embedding_function=SharedEmbedder(), configuration={"hnsw": {"space": "cosine"}}
    )


def fill(settings: Settings) -> None:
    """Add all texts in batches."""
    collection, texts, vectors = _collection(settings), settings.texts(), settings.vectors()
    for start in range(0, len(texts), _BATCH):
        batch = texts[start : start + _BATCH]
        numbers = range(start, start + len(batch))
        collection.add(
            ids=[f"note-{number}" for number in numbers],
            documents=batch,
            embeddings=vectors[start : start + len(batch)],
        )


class Chroma(LibraryPeer):
    """Chroma in this process."""

    def __init__(self, settings: Settings) -> None:
        self._collection = _collection(settings)

    def store(self, text: str) -> None:
        """Add a document."""
        self._collection.add(ids=[uuid.uuid4().hex], documents=[text])

    def search(self, question: str) -> Sequence[str]:
        """The ten nearest documents."""
        documents: list[str] = self._collection.query(query_texts=[question], n_results=10)["documents"][0]
        return documents


if __name__ == "__main__":
    drive(fill, Chroma)
