"""Driver for mcp-memory-service over stdio with its default SQLite, filled by INSERT into its tables."""

import hashlib
import re
import shutil
import sqlite3
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from driver import Settings, drive
from stdio import StdioClient


def _file(settings: Settings) -> Path:
    return settings.folder / "memories.db"


def _environment(settings: Settings) -> Mapping[str, str]:
    """Environment variables that make its ONNX loader use the model that `fill` copies to its cache."""
    return {
        "HOME": str(settings.folder),
        "MCP_MEMORY_STORAGE_BACKEND": "sqlite_vec",
        "MCP_MEMORY_SQLITE_PATH": str(_file(settings)),
        "MCP_MEMORY_BASE_DIR": str(settings.folder / "service"),
        "MCP_MEMORY_USE_ONNX": "1",
        "MCP_MEMORY_ONNX_ALLOW_DOWNLOAD": "0",
        "MCP_MEMORY_OFFLINE": "1",
        "MCP_MDNS_ENABLED": "false",
    }


class MemoryService(StdioClient):
    """The server in its own process."""

    def __init__(self, settings: Settings) -> None:
        assert settings.environment is not None
        super().__init__([str(settings.environment / "bin" / "memory"), "server"], _environment(settings))

    def store(self, text: str) -> None:
        """Store a memory."""
        text_answer = self.call("memory_store", {"content": text})["content"][0]["text"]
        if "successfully" not in text_answer:
            raise RuntimeError(text_answer[:500])

    def search(self, question: str) -> Sequence[str]:
        """The ten nearest memories."""
        answer = self.call("memory_search", {"query": question, "limit": 10})
        return re.findall(r"^\d+\. (.*)$", answer["content"][0]["text"], re.MULTILINE)


def fill(settings: Settings) -> None:
    """Insert the rows a store writes; the triggers of its tables index the words."""
    import sqlite_vec  # type: ignore[import-not-found]

    folder = settings.folder / ".cache" / "mcp_memory" / "onnx_models" / "all-MiniLM-L6-v2" / "onnx"
    folder.mkdir(parents=True)
    shutil.copy(settings.graph, folder / "model.onnx")
    shutil.copy(settings.tokenizer, folder / "tokenizer.json")
    server = MemoryService(settings)
    server.store("the first memory, which creates the tables")
    server.close()
    connection = sqlite3.connect(_file(settings))
    connection.enable_load_extension(True)
    sqlite_vec.load(connection)
    now, now_iso = time.time(), datetime.now(UTC).isoformat()
    (store,) = connection.execute("select store from memories").fetchone()
    with connection:
        for number, (text, vector) in enumerate(zip(settings.texts(), settings.vectors(), strict=True), start=2):
            hashed = hashlib.sha256(f"{number} {text}".encode()).hexdigest()
            connection.execute(
                "insert into memories (id, content_hash, content, tags, memory_type, metadata, created_at,"
                " updated_at, created_at_iso, updated_at_iso, store)"
                " values (?, ?, ?, 'untagged', 'note', '{}', ?, ?, ?, ?, ?)",
                (number, hashed, text, now, now, now_iso, now_iso, store),
            )
            connection.execute(
                "insert into memory_embeddings (rowid, content_embedding, store) values (?, ?, ?)",
                (number, vector.tobytes(), store),
            )
    connection.close()


if __name__ == "__main__":
    drive(fill, MemoryService)
