"""Butlers, over HTTP or stdio; filled as in the other benches, its index kept as it keeps it."""

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
from driver import Setting, drive
from stdio import Stdio

sys.path.insert(1, str(Path(__file__).parents[1]))
import startup
from butlers import app
from butlers.environment import Environment
from butlers.modules.memory.module import MemoryModule
from butlers.modules.memory.operations import index_upkeep
from world import fill

TOML = (
    '[butler]\nname = "bench"\nport = 0\n'
    "[butler.limits]\ncalls_per_second = 1000000.0\nburst = 1000000\n"
    "[modules.memory]\nenabled = true\n"
)
_HEADERS = {"Accept": "application/json, text/event-stream"}


def filled(setting: Setting) -> None:
    """Make the butler and its memories."""
    asyncio.run(_filled(setting))


async def _filled(setting: Setting) -> None:
    folder = _folder(setting)
    folder.mkdir()
    (folder / "butler.toml").write_text(TOML, encoding="utf-8")
    environment = Environment(setting.place, None, None, "warning", "console")
    async with app.open_butler(app.load_configuration(folder), environment) as butler:
        module = butler.modules[0]
        assert isinstance(module, MemoryModule)
        seeds, caller = np.load(setting.made / "seeds.npy"), butler.caller()
        await fill(butler, module.state, [(caller.tenant, setting.size)], seeds, mixed=False)
        await index_upkeep.maintain_indexes(module.state, caller)


def _folder(setting: Setting) -> Path:
    return setting.place / "butler"


class Tools:
    """What an agent does with a butler's tools."""

    began: float | None = None

    def __init__(self, call: Callable[[str, dict[str, Any]], dict[str, Any]]) -> None:
        self._call = call
        self._stored = 0

    def store(self, text: str) -> None:
        """A new fact."""
        self._stored += 1
        about = {"subject": f"acquaintance {self._stored}", "predicate": f"told_{os.getpid()}"}
        self._call("memory_store_fact", {**about, "content": text})

    def search(self, question: str) -> Sequence[str]:
        """By meaning and by words, as it does by default, among episodes, facts and rules."""
        return self._found("memory_search", query=question)

    def by_meaning(self, question: str) -> Sequence[str]:
        """By meaning alone, as most peers search."""
        return self._found("memory_search", query=question, mode="semantic")

    def _found(self, tool: str, **arguments: Any) -> Sequence[str]:
        told = self._call(tool, {**arguments, "limit": 10})
        return [each["content"] for each in told["structuredContent"]["result"]]


class OverHttp(Tools):
    """`butlers run` in a process of its own, as clients reach it."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(self._posted)
        self._open = ExitStack()
        self.began = time.monotonic()
        self._started = self._open.enter_context(startup.butler(setting.place, _folder(setting)))
        self._address = self._started.said[-1].removeprefix("ready: ")
        self._client = self._open.enter_context(httpx2.Client(timeout=120))

    def processes(self) -> Sequence[int]:
        """The butler's."""
        return [self._started.process.pid]

    def close(self) -> None:
        """End the butler."""
        self._open.close()

    def _posted(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
        answer = self._client.post(self._address, json=asked, headers=_HEADERS)
        told = json.loads(answer.text)
        if "error" in told or told["result"].get("isError"):
            raise RuntimeError(answer.text[:500])
        result: dict[str, Any] = told["result"]
        return result


class OverStdio(Tools):
    """`butlers run --stdio`, as an editor or a CLI starts it."""

    def __init__(self, setting: Setting) -> None:
        command = [sys.executable, "-m", "butlers.cli", "run", "--stdio", str(_folder(setting))]
        self._server = Stdio(command, {"BUTLERS_HOME": str(setting.place), "BUTLERS_LOG": "warning"})
        super().__init__(self._server.call)
        self.began = self._server.began

    def processes(self) -> Sequence[int]:
        """The butler's."""
        return self._server.processes()

    def close(self) -> None:
        """Leave; the butler ends."""
        self._server.close()


if __name__ == "__main__":
    drive(filled, OverStdio if os.environ.get("PEER") == "butlers, stdio" else OverHttp)
