"""The official MCP memory server: entities in one file, found by a part of their text; it has no embeddings."""

import json
from collections.abc import Sequence
from pathlib import Path

from driver import Setting, drive
from stdio import Stdio

_MODULE = "node_modules/@modelcontextprotocol/server-memory/dist/index.js"


def _file(setting: Setting) -> Path:
    return setting.place / "memory.jsonl"


def filled(setting: Setting) -> None:
    """The lines it writes itself, written at once."""
    with _file(setting).open("w", encoding="utf-8") as file:
        for number, text in enumerate(setting.texts()):
            entity = {"type": "entity", "name": f"note {number}", "entityType": "note", "observations": [text]}
            file.write(json.dumps(entity) + "\n")


class ServerMemory(Stdio):
    """The server, as an MCP client has it."""

    def __init__(self, setting: Setting) -> None:
        assert setting.environment is not None
        command = ["node", str(setting.environment / _MODULE)]
        super().__init__(command, {"MEMORY_FILE_PATH": str(_file(setting))})
        self._stored = 0

    def store(self, text: str) -> None:
        """A new entity with one observation."""
        self._stored += 1
        entity = {"name": f"told {self._stored}", "entityType": "note", "observations": [text]}
        self.call("create_entities", {"entities": [entity]})

    def search(self, question: str) -> Sequence[str]:
        """What holds the longest word: it looks for the query as it stands, so a whole question finds nothing."""
        told = self.call("search_nodes", {"query": max(question.split(), key=len)})
        graph = json.loads(told["content"][0]["text"])
        return [text for entity in graph["entities"] for text in entity["observations"]]


if __name__ == "__main__":
    drive(filled, ServerMemory)
