"""Driver for butlers over HTTP or stdio, filled by COPY like the other benches."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
from driver import Settings, drive
from stdio import StdioClient

sys.path.insert(1, str(Path(__file__).parents[1]))
import startup
from butlers import app
from butlers.environment import Environment
from butlers.modules.memory.module import MemoryModule
from butlers.modules.memory.operations import index_upkeep
from harness import fill_facts

TOML = (
    '[butler]\nname = "bench"\nport = 0\n'
    "[butler.limits]\ncalls_per_second = 1000000.0\nburst = 1000000\n"
    "[modules.memory]\nenabled = true\n"
)
_HEADERS = {"Accept": "application/json, text/event-stream"}


def fill(settings: Settings) -> None:
    """Create the butler and insert its memories."""
    asyncio.run(_fill(settings))


async def _fill(settings: Settings) -> None:
    folder = _folder(settings)
    folder.mkdir()
    (folder / "butler.toml").write_text(TOML, encoding="utf-8")
    environment = Environment(settings.folder, None, None, "warning", "console")
    async with app.open_butler(app.load_configuration(folder), environment) as butler:
        module = butler.modules[0]
        assert isinstance(module, MemoryModule)
        seeds, caller = np.load(settings.data / "seeds.npy"), butler.caller()
        await fill_facts(butler, module.state, [(caller.tenant, settings.size)], seeds, mixed=False)
        await index_upkeep.maintain_indexes(module.state, caller)


def _folder(settings: Settings) -> Path:
    return settings.folder / "butler"


class ButlerClient:
    """The calls of an agent with a butler's tools."""

    started_at: float | None = None

    def __init__(self, call: Callable[[str, dict[str, Any]], dict[str, Any]]) -> None:
        self._call = call
        self._stored = 0

    def store(self, text: str) -> None:
        """Store a fact."""
        self._stored += 1
        key = {"subject": f"acquaintance {self._stored}", "predicate": f"note_{os.getpid()}"}
        self._call("memory_store_fact", {**key, "content": text})

    def search(self, question: str) -> Sequence[str]:
        """Search by vectors and words, the default, over all types."""
        return self._search(query=question)

    def semantic_search(self, question: str) -> Sequence[str]:
        """Search by vectors alone, like most peers."""
        return self._search(query=question, mode="semantic")

    def _search(self, **arguments: Any) -> Sequence[str]:
        answer = self._call("memory_search", {**arguments, "limit": 10})
        return [memory["content"] for memory in answer["structuredContent"]["result"]]


class OverHttp(ButlerClient):
    """`butlers run` in its own process, called over HTTP."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(self._post)
        self._open = ExitStack()
        self.started_at = time.monotonic()
        self._started = self._open.enter_context(startup.run_butler(settings.folder, _folder(settings)))
        self._address = self._started.lines[-1].removeprefix("ready: ")
        self._client = self._open.enter_context(httpx2.Client(timeout=120))

    def processes(self) -> Sequence[int]:
        """The id of the butler's process."""
        return [self._started.process.pid]

    def close(self) -> None:
        """Stop the butler."""
        self._open.close()

    def _post(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        params = {"name": tool, "arguments": arguments}
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        response = self._client.post(self._address, json=request, headers=_HEADERS)
        message = json.loads(response.text)
        if "error" in message or message["result"].get("isError"):
            raise RuntimeError(response.text[:500])
        result: dict[str, Any] = message["result"]
        return result


class OverStdio(ButlerClient):
    """`butlers run --stdio`, called over stdio."""

    def __init__(self, settings: Settings) -> None:
        command = [sys.executable, "-m", "butlers.cli", "run", "--stdio", str(_folder(settings))]
        self._server = StdioClient(command, {"BUTLERS_HOME": str(settings.folder), "BUTLERS_LOG": "warning"})
        super().__init__(self._server.call)
        self.started_at = self._server.started_at

    def processes(self) -> Sequence[int]:
        """The id of the butler's process."""
        return self._server.processes()

    def close(self) -> None:
        """Stop the butler."""
        self._server.close()


if __name__ == "__main__":
    drive(fill, OverStdio if os.environ.get("PEER") == "butlers, stdio" else OverHttp)
