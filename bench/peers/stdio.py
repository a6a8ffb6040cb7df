"""As little of an MCP client as possible: one server as a child, one line for each message."""

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any


class Stdio:
    """A peer that is an MCP server on its standard input and output."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.began: float | None = time.monotonic()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **environment},
            text=True,
        )
        self._number = 0
        own = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        self.ask("initialize", own)
        self._say({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """A tool's answer; a refusal is an error."""
        told = self.ask("tools/call", {"name": tool, "arguments": arguments})
        if told.get("isError"):
            raise RuntimeError(str(told)[:500])
        return told

    def ask(self, method: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one message; what the server says in between is passed over."""
        self._number += 1
        self._say({"jsonrpc": "2.0", "id": self._number, "method": method, "params": parameters})
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line) if line.startswith("{") else {}
            if told.get("id") == self._number and "method" not in told:
                if "error" in told:
                    raise RuntimeError(line[:500])
                answer: dict[str, Any] = told["result"]
                return answer
        raise RuntimeError("the server has gone")

    def processes(self) -> Sequence[int]:
        """The server's own."""
        return [self._process.pid]

    def close(self) -> None:
        """Leave, as a client does; the server ends."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _say(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        print(json.dumps(message), file=self._process.stdin, flush=True)
