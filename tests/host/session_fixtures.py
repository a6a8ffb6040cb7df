"""A running butler with sessions, scripts that stand in for its runtime, and readers of the records."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport

from butlers import app
from butlers.app import Butler
from butlers.caller import Caller
from butlers.contract import SessionResult
from butlers.environment import Environment
from butlers.host.server import Server
from probe import MODULES

THINK_RUNTIME = '[butler.runtime]\ntype = "command"\ncommand = ["./think"]\n'
"""Configuration of a runtime that runs the program `think` in the butler's folder."""
LONG_MEMORY_TIMEOUT = "memory_timeout_seconds = 30\n"
"""For [butler.sessions]: a busy machine needs time to load the embedding model."""

# Makes the tool calls in the JSON list in the last line of its stdin, and prints its stdin and their results.
# "fail" in the list makes it exit with an error, and "sleep" makes it hang.
TOOL_CALLER = """#!/usr/bin/env python3
import json, os, sys, time, urllib.request

stdin = sys.stdin.buffer.read().decode()
path = os.environ.get("BUTLERS_MCP_CONFIG")
server = json.load(open(path))["mcpServers"] if path else {}
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def call(tool, arguments):
    params = {"name": tool, "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    request = urllib.request.Request(
        server["butler"]["url"], json.dumps(message).encode(), {**headers, **server["butler"]["headers"]}
    )
    with direct.open(request, timeout=30) as answer:
        return json.load(answer)["result"]


try:
    calls = json.loads(stdin.splitlines()[-1])
except ValueError:
    calls = []
results = [call(*each) for each in calls if isinstance(each, list)]
if "sleep" in calls:
    time.sleep(60)
if "fail" in calls:
    sys.exit("it was told to fail")
answer = {"stdin": stdin, "results": results, "servers": list(server), "session": os.environ["BUTLERS_SESSION_ID"]}
print(json.dumps(answer))
"""
# Logs its start and end with its prompt, and ends when the file go<prompt> exists.
LOGGING_PROGRAM = """
read prompt
echo "+$prompt" >> log
while [ ! -e "go$prompt" ] && [ ! -e go ]; do sleep 0.02; done
echo "-$prompt" >> log
echo "did $prompt"
"""


def sessions_config(**limits: object) -> str:
    """Return the configuration of the runtime `think` with limits on its sessions."""
    keys = "".join(f"{name} = {value}\n" for name, value in limits.items())
    return f"{THINK_RUNTIME}[butler.sessions]\n{LONG_MEMORY_TIMEOUT}{keys}"


def log(place: Path) -> list[str]:
    """Return what LOGGING_PROGRAM logged."""
    path = place / "log"
    return path.read_text().split() if path.exists() else []


def started_lines(place: Path) -> list[str]:
    """Return the starts that LOGGING_PROGRAM logged."""
    return [line for line in log(place) if line.startswith("+")]


def write_program(place: Path, text: str) -> Path:
    """Write the program `think` into a butler's folder: a shell script, unless it has a #! line."""
    path = place / "think"
    path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return place


@dataclass
class RunningButler:
    """A butler in this process with its server and sessions."""

    butler: Butler
    server: Server

    def caller(self, tenant: str | None = None, **more: Any) -> Caller:
        """Return a caller of a tenant."""
        config = self.butler.config.butler
        return Caller(tenant=tenant or config.auth.tenant, butler=config.name, actor="ada", **more)

    async def spawn(self, prompt: str = "How are you?", caller: Caller | None = None, **more: Any) -> SessionResult:
        """Run one session."""
        options = {"trigger_source": "person", **more}
        return await self.butler.spawner.spawn(caller or self.caller(), prompt, **options)

    async def call_in_session(self, *calls: Any, caller: Caller | None = None, **more: Any) -> dict[str, Any]:
        """Run a session of TOOL_CALLER with these calls and return its answer."""
        answered = await self.spawn(json.dumps(calls), caller, **more)
        return json.loads(answered.text)

    async def rows(self, statement: str, tenant: str | None = None) -> list[dict[str, Any]]:
        """Return the rows of a query inside a tenant."""
        async with self.butler.database.transaction(self.caller(tenant)) as tx:
            return [dict(row) for row in await tx.fetch(statement)]

    async def sessions(self, tenant: str | None = None) -> list[dict[str, Any]]:
        """Return a tenant's sessions in the order of their requests."""
        return await self.rows("select * from sessions order by started_at, id", tenant)

    async def session(self, tenant: str | None = None) -> dict[str, Any]:
        """Return a tenant's only session."""
        (row,) = await self.sessions(tenant)
        return row

    async def episodes(self, tenant: str | None = None) -> list[dict[str, Any]]:
        """Return a tenant's episodes, oldest first."""
        return await self.rows("select * from episodes order by created_at", tenant)

    async def call_tool(self, tool: str, tenant: str | None = None, **arguments: Any) -> Any:
        """Call a tool as the host does, for a caller of a tenant."""
        client = self.butler.spawner.local_client
        assert client is not None
        return await client.call(self.caller(tenant), tool, arguments)


@asynccontextmanager
async def open_running_butler(
    place: Path, env: Environment, modules: Any = MODULES, **options: Any
) -> AsyncIterator[RunningButler]:
    """Start a butler in this process with its sessions attached."""
    async with (
        app.open_butler(app.load_configuration(place, modules), env, modules) as butler,
        app.open_server(butler, **options) as server,
    ):
        yield RunningButler(butler, server)


def session_client(access: dict[str, Any]) -> Client[Any]:
    """Return a client with the URL and credential in a session's configuration file."""
    return Client(StreamableHttpTransport(access["url"], headers=access["headers"]))


async def wait_until(condition: Callable[[], Any], what: str, seconds: float = 20) -> Any:
    """Return the value of the condition once it is true; the condition may be a coroutine function."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        found = await found if asyncio.iscoroutine(found) else found
        if found:
            return found
        assert time.monotonic() < deadline, f"timed out waiting for {what}"
        await asyncio.sleep(0.03)


def session_processes(session: object) -> list[str]:
    """Return the running processes of a session: they have its id in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("BUTLERS_SESSION_ID") == str(session):
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found
