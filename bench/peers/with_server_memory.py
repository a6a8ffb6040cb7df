"""Driver for the official MCP memory server: entities in one file, substring search, no embeddings."""

import json
from collections.abc import Sequence
from pathlib import Path

from driver import Settings, drive
from stdio import StdioClient

_MODULE = "node_modules/@modelcontextprotocol/server-memory/dist/index.js"


def _file(settings: Settings) -> Path:
    return settings.folder / "memory.jsonl"


def fill(settings: Settings) -> None:
    """Write the lines the server writes."""
    with _file(settings).open("w", encoding="utf-8") as file:
        for number, text in enumerate(settings.texts()):
            entity = {"type": "entity", "name": f"note {number}", "entityType": "note", "observations": [text]}
            file.write(json.dumps(entity) + "\n")


class ServerMemory(StdioClient):
    """The server in its own process."""

    def __init__(self, settings: Settings) -> None:
        assert settings.environment is not None
        command = ["node", str(settings.environment / _MODULE)]
        super().__init__(command, {"MEMORY_FILE_PATH": str(_file(settings))})
        self._stored = 0

    def store(self, text: str) -> None:
        """Create an entity with one observation."""
        self._stored += 1
        entity = {"name": f"new {self._stored}", "entityType": "note", "observations": [text]}
        self.call("create_entities", {"entities": [entity]})

    def search(self, question: str) -> Sequence[str]:
        """The texts that contain the longest word; the server finds nothing for a complete question."""
        answer = self.call("search_nodes", {"query": max(question.split(), key=len)})
        graph = json.loads(answer["content"][0]["text"])
        return [text for entity in graph["entities"] for text in entity["observations"]]


if __name__ == "__main__":
    drive(fill, ServerMemory)
