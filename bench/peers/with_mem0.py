"""mem0's `Memory` over pgvector: `add` without inference, and `search`; its table is filled by COPY."""

import hashlib
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from driver import Setting, Within, drive, vector_bytes

_USER = "bench"


def _memory(setting: Setting) -> Any:
    from mem0 import Memory  # type: ignore[import-not-found]

    store = {"connection_string": setting.dsn, "embedding_model_dims": 384}
    config = {
        "vector_store": {"provider": "pgvector", "config": store},
        "history_db_path": str(setting.place / "history.db"),
    }
    memory = Memory.from_config(config)
    memory.embedding_model = _Injected(setting)
    return memory


class _Injected:
    """What mem0 asks of an embedder."""

    def __init__(self, setting: Setting) -> None:
        self._model = setting.embedder()

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        del memory_action
        return self._model.vectors([text])[0]

    def embed_batch(self, texts: Sequence[str], memory_action: str | None = None) -> list[list[float]]:
        del memory_action
        return self._model.vectors(texts)


def filled(setting: Setting) -> None:
    """The rows `add` writes, by COPY into the table mem0 made; its index is built afterwards, as mem0 made it."""
    import psycopg  # type: ignore[import-not-found]
    from psycopg.types.json import Jsonb  # type: ignore[import-not-found]

    memory = _memory(setting)
    memory.vector_store.create_col()
    with psycopg.connect(setting.dsn, autocommit=True) as owner:
        owner.execute("set maintenance_work_mem = '512MB'")
        (index,) = owner.execute("select indexdef from pg_indexes where indexname = 'mem0_hnsw_idx'").fetchone()
        owner.execute("drop index mem0_hnsw_idx")
        with owner.cursor().copy("copy mem0 (id, vector, payload) from stdin (format binary)") as copy:
            copy.set_types(["uuid", "bytea", "jsonb"])
            for text, vector in zip(setting.texts(), setting.vectors(), strict=True):
                copy.write_row((uuid.uuid4(), vector_bytes(vector), Jsonb(_payload(text))))
        owner.execute(index)
        owner.execute("vacuum analyze mem0")


def _payload(text: str) -> dict[str, str]:
    """As `Memory._create_memory` writes it."""
    now = datetime.now(UTC).isoformat()
    hashed = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
    own = {"user_id": _USER, "role": "user", "data": text, "hash": hashed}
    return {**own, "created_at": now, "updated_at": now, "text_lemmatized": text}


class Mem0(Within):
    """The library, as its users have it."""

    def __init__(self, setting: Setting) -> None:
        self._memory = _memory(setting)

    def store(self, text: str) -> None:
        """`add`, as it is: no model decides what to keep."""
        self._memory.add(text, user_id=_USER, infer=False)

    def search(self, question: str) -> Sequence[str]:
        """The ten best of one user."""
        found = self._memory.search(question, filters={"user_id": _USER}, top_k=10)
        return [each["memory"] for each in found["results"]]


if __name__ == "__main__":
    drive(filled, Mem0)
