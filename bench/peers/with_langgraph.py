"""Driver for LangGraph's `PostgresStore` with a vector index (`put` and `search`), filled by COPY."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from driver import LibraryPeer, Settings, drive, vector_bytes

_NAMESPACE = ("memories", "bench")
_PREFIX = ".".join(_NAMESPACE)


class LangGraphStore(LibraryPeer):
    """LangGraph's store in this process."""

    def __init__(self, settings: Settings) -> None:
        from langgraph.store.postgres import PostgresStore  # type: ignore[import-not-found]

        self._stack = ExitStack()
        index = {"dims": 384, "embed": settings.embedder().vectors, "fields": ["text"]}
        self._store: Any = self._stack.enter_context(PostgresStore.from_conn_string(settings.dsn, index=index))
        self._store.setup()
        self._stored = 0

    def store(self, text: str) -> None:
        """Put an item."""
        self._stored += 1
        self._store.put(_NAMESPACE, f"new-{self._stored}", {"text": text})

    def search(self, question: str) -> Sequence[str]:
        """The ten nearest items of one namespace."""
        return [item.value["text"] for item in self._store.search(_NAMESPACE, query=question, limit=10)]

    def close(self) -> None:
        """Close the connection."""
        self._stack.close()


def fill(settings: Settings) -> None:
    """Insert the rows `put` writes by COPY into the store's tables; its index is built again afterwards."""
    import psycopg  # type: ignore[import-not-found]

    LangGraphStore(settings).close()
    with psycopg.connect(settings.dsn, autocommit=True) as owner:
        owner.execute("set maintenance_work_mem = '512MB'")
        index_name = "store_vectors_embedding_idx"
        (definition,) = owner.execute("select indexdef from pg_indexes where indexname = %s", [index_name]).fetchone()
        owner.execute(f"drop index {index_name}")
        with owner.cursor().copy("copy store (prefix, key, value) from stdin") as copy:
            for number, text in enumerate(settings.texts()):
                copy.write_row((_PREFIX, f"note-{number}", json.dumps({"text": text})))
        target = "store_vectors (prefix, key, field_name, embedding)"
        with owner.cursor().copy(f"copy {target} from stdin (format binary)") as copy:
            copy.set_types(["text", "text", "text", "bytea"])
            for number, vector in enumerate(settings.vectors()):
                copy.write_row((_PREFIX, f"note-{number}", "text", vector_bytes(vector)))
        owner.execute(definition)
        owner.execute("vacuum analyze store")
        owner.execute("vacuum analyze store_vectors")


if __name__ == "__main__":
    drive(fill, LangGraphStore)
