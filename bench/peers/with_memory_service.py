"""mcp-memory-service over stdio, on its default SQLite; filled by INSERT into the tables it made."""

import hashlib
import re
import shutil
import sqlite3
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from driver import Setting, drive
from stdio import Stdio


def _file(setting: Setting) -> Path:
    return setting.place / "memories.db"


def _environment(setting: Setting) -> Mapping[str, str]:
    """Its own ONNX loader finds our model where it would have put the one it downloads."""
    return {
        "HOME": str(setting.place),
        "MCP_MEMORY_STORAGE_BACKEND": "sqlite_vec",
        "MCP_MEMORY_SQLITE_PATH": str(_file(setting)),
        "MCP_MEMORY_BASE_DIR": str(setting.place / "service"),
        "MCP_MEMORY_USE_ONNX": "1",
        "MCP_MEMORY_ONNX_ALLOW_DOWNLOAD": "0",
        "MCP_MEMORY_OFFLINE": "1",
        "MCP_MDNS_ENABLED": "false",
    }


class MemoryService(Stdio):
    """The server, as an MCP client has it."""

    def __init__(self, setting: Setting) -> None:
        assert setting.environment is not None
        super().__init__([str(setting.environment / "bin" / "memory"), "server"], _environment(setting))

    def store(self, text: str) -> None:
        """A new memory."""
        told = self.call("memory_store", {"content": text})["content"][0]["text"]
        if "successfully" not in told:
            raise RuntimeError(told[:500])

    def search(self, question: str) -> Sequence[str]:
        """The ten nearest."""
        told = self.call("memory_search", {"query": question, "limit": 10})
        return re.findall(r"^\d+\. (.*)$", told["content"][0]["text"], re.MULTILINE)


def filled(setting: Setting) -> None:
    """The rows a store writes, as its tables have them; words are indexed by its own triggers."""
    import sqlite_vec  # type: ignore[import-not-found]

    folder = setting.place / ".cache" / "mcp_memory" / "onnx_models" / "all-MiniLM-L6-v2" / "onnx"
    folder.mkdir(parents=True)
    shutil.copy(setting.graph, folder / "model.onnx")
    shutil.copy(setting.tokenizer, folder / "tokenizer.json")
    server = MemoryService(setting)
    server.store("the first one, with which the tables are made")
    server.close()
    connection = sqlite3.connect(_file(setting))
    connection.enable_load_extension(True)
    sqlite_vec.load(connection)
    now, told = time.time(), datetime.now(UTC).isoformat()
    (store,) = connection.execute("select store from memories").fetchone()
    with connection:
        for number, (text, vector) in enumerate(zip(setting.texts(), setting.vectors(), strict=True), start=2):
            hashed = hashlib.sha256(f"{number} {text}".encode()).hexdigest()
            connection.execute(
                "insert into memories (id, content_hash, content, tags, memory_type, metadata, created_at,"
                " updated_at, created_at_iso, updated_at_iso, store)"
                " values (?, ?, ?, 'untagged', 'note', '{}', ?, ?, ?, ?, ?)",
                (number, hashed, text, now, now, told, told, store),
            )
            connection.execute(
                "insert into memory_embeddings (rowid, content_embedding, store) values (?, ?, ?)",
                (number, vector.tobytes(), store),
            )
    connection.close()


if __name__ == "__main__":
    drive(filled, MemoryService)
