"""LangGraph's `PostgresStore` with a vector index: `put` and `search`; its two tables are filled by COPY."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from driver import Setting, Within, drive, vector_bytes

_NAMESPACE = ("memories", "bench")
_PREFIX = ".".join(_NAMESPACE)


class Store(Within):
    """The library, as its users have it."""

    def __init__(self, setting: Setting) -> None:
        from langgraph.store.postgres import PostgresStore  # type: ignore[import-not-found]

        self._open = ExitStack()
        index = {"dims": 384, "embed": setting.embedder().vectors, "fields": ["text"]}
        self.store_: Any = self._open.enter_context(PostgresStore.from_conn_string(setting.dsn, index=index))
        self.store_.setup()
        self._stored = 0

    def store(self, text: str) -> None:
        """A new item."""
        self._stored += 1
        self.store_.put(_NAMESPACE, f"told-{self._stored}", {"text": text})

    def search(self, question: str) -> Sequence[str]:
        """The ten nearest of one namespace."""
        return [each.value["text"] for each in self.store_.search(_NAMESPACE, query=question, limit=10)]

    def close(self) -> None:
        """Let the connection go."""
        self._open.close()


def filled(setting: Setting) -> None:
    """The rows `put` writes, by COPY into the tables the store made; its index is built afterwards as it made it."""
    import psycopg  # type: ignore[import-not-found]

    Store(setting).close()
    with psycopg.connect(setting.dsn, autocommit=True) as owner:
        owner.execute("set maintenance_work_mem = '512MB'")
        named = "store_vectors_embedding_idx"
        (index,) = owner.execute("select indexdef from pg_indexes where indexname = %s", [named]).fetchone()
        owner.execute(f"drop index {named}")
        with owner.cursor().copy("copy store (prefix, key, value) from stdin") as copy:
            for number, text in enumerate(setting.texts()):
                copy.write_row((_PREFIX, f"note-{number}", json.dumps({"text": text})))
        into = "store_vectors (prefix, key, field_name, embedding)"
        with owner.cursor().copy(f"copy {into} from stdin (format binary)") as copy:
            copy.set_types(["text", "text", "text", "bytea"])
            for number, vector in enumerate(setting.vectors()):
                copy.write_row((_PREFIX, f"note-{number}", "text", vector_bytes(vector)))
        owner.execute(index)
        owner.execute("vacuum analyze store")
        owner.execute("vacuum analyze store_vectors")


if __name__ == "__main__":
    drive(filled, Store)
