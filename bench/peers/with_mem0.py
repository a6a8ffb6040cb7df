"""Driver for mem0's `Memory` over pgvector (`add` without inference, and `search`), filled by COPY."""

import hashlib
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from driver import LibraryPeer, Settings, drive, vector_bytes

_USER = "bench"


def _memory(settings: Settings) -> Any:
    from mem0 import Memory  # type: ignore[import-not-found]

    store = {"connection_string": settings.dsn, "embedding_model_dims": 384}
    config = {
        "vector_store": {"provider": "pgvector", "config": store},
        "history_db_path": str(settings.folder / "history.db"),
    }
    memory = Memory.from_config(config)
    memory.embedding_model = _SharedEmbedder(settings)
    return memory


class _SharedEmbedder:
    """The shared model as mem0's embedder."""

    def __init__(self, settings: Settings) -> None:
        self._model = settings.embedder()

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        del memory_action
        return self._model.vectors([text])[0]

    def embed_batch(self, texts: Sequence[str], memory_action: str | None = None) -> list[list[float]]:
        del memory_action
        return self._model.vectors(texts)


def fill(settings: Settings) -> None:
    """Insert the rows `add` writes by COPY into mem0's table; its index is built again afterwards."""
    import psycopg  # type: ignore[import-not-found]
    from psycopg.types.json import Jsonb  # type: ignore[import-not-found]

    memory = _memory(settings)
    memory.vector_store.create_col()
    with psycopg.connect(settings.dsn, autocommit=True) as owner:
        owner.execute("set maintenance_work_mem = '512MB'")
        (definition,) = owner.execute("select indexdef from pg_indexes where indexname = 'mem0_hnsw_idx'").fetchone()
        owner.execute("drop index mem0_hnsw_idx")
        with owner.cursor().copy("copy mem0 (id, vector, payload) from stdin (format binary)") as copy:
            copy.set_types(["uuid", "bytea", "jsonb"])
            for text, vector in zip(settings.texts(), settings.vectors(), strict=True):
                copy.write_row((uuid.uuid4(), vector_bytes(vector), Jsonb(_payload(text))))
        owner.execute(definition)
        owner.execute("vacuum analyze mem0")


def _payload(text: str) -> dict[str, str]:
    """The payload that `Memory._create_memory` writes."""
    now = datetime.now(UTC).isoformat()
    hashed = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
    content = {"user_id": _USER, "role": "user", "data": text, "hash": hashed}
    return {**content, "created_at": now, "updated_at": now, "text_lemmatized": text}


class Mem0(LibraryPeer):
    """mem0 in this process."""

    def __init__(self, settings: Settings) -> None:
        self._memory = _memory(settings)

    def store(self, text: str) -> None:
        """Add a text without inference."""
        self._memory.add(text, user_id=_USER, infer=False)

    def search(self, question: str) -> Sequence[str]:
        """The ten best memories of one user."""
        answer = self._memory.search(question, filters={"user_id": _USER}, top_k=10)
        return [result["memory"] for result in answer["results"]]


if __name__ == "__main__":
    drive(fill, Mem0)
