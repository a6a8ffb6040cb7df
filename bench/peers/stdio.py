"""Minimal MCP client over stdio: one server process, one line for each message."""

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any


class StdioClient:
    """A peer that is an MCP server on stdio."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.started_at: float | None = time.monotonic()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **environment},
            text=True,
        )
        self._number = 0
        client = {"name": "bench", "version": "1"}
        parameters = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
        self.request("initialize", parameters)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of a tool; raises RuntimeError when the tool fails."""
        result = self.request("tools/call", {"name": tool, "arguments": arguments})
        if result.get("isError"):
            raise RuntimeError(str(result)[:500])
        return result

    def request(self, method: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The result of one request; skips the notifications in between."""
        self._number += 1
        self._send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": parameters})
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line) if line.startswith("{") else {}
            if message.get("id") == self._number and "method" not in message:
                if "error" in message:
                    raise RuntimeError(line[:500])
                result: dict[str, Any] = message["result"]
                return result
        raise RuntimeError("the server closed its output")

    def processes(self) -> Sequence[int]:
        """The id of the server's process."""
        return [self._process.pid]

    def close(self) -> None:
        """Close the server's input; kill it when it does not end within 20 s."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        print(json.dumps(message), file=self._process.stdin, flush=True)
