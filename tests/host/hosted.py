"""What the tests of sessions stand on: a butler with its sessions, programs that think by a script, and records."""

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

THINKS = '[butler.runtime]\ntype = "command"\ncommand = ["./think"]\n'
"""A butler whose sessions run the program `think` of its folder."""
PATIENT = "memory_seconds = 30\n"
"""For [butler.sessions]: a busy machine takes its time to load the model."""

# Calls the tools it is asked for, as a JSON list in the last line of what it is told, and answers with what it was
# told and what they said. The word "fail" among them ends it badly, and "sleep" keeps it.
ACTS = """#!/usr/bin/env python3
import json, os, sys, time, urllib.request

told = sys.stdin.buffer.read().decode()
path = os.environ.get("BUTLERS_MCP_CONFIG")
server = json.load(open(path))["mcpServers"] if path else {}
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def called(tool, arguments):
    params = {"name": tool, "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    request = urllib.request.Request(
        server["butler"]["url"], json.dumps(message).encode(), {**headers, **server["butler"]["headers"]}
    )
    with direct.open(request, timeout=30) as answer:
        return json.load(answer)["result"]


try:
    asked = json.loads(told.splitlines()[-1])
except ValueError:
    asked = []
said = [called(*each) for each in asked if isinstance(each, list)]
if "sleep" in asked:
    time.sleep(60)
if "fail" in asked:
    sys.exit("it was told to fail")
print(json.dumps({"told": told, "said": said, "servers": list(server), "session": os.environ["BUTLERS_SESSION_ID"]}))
"""


def think(place: Path, text: str) -> Path:
    """Put a program into a butler's folder: a shell script, or whatever its first line names."""
    path = place / "think"
    path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return place


@dataclass
class Hosted:
    """A butler of this process, its server and its sessions."""

    butler: Butler
    server: Server

    def caller(self, tenant: str | None = None, **more: Any) -> Caller:
        """Somebody of a tenant."""
        config = self.butler.config.butler
        return Caller(tenant=tenant or config.auth.tenant, butler=config.name, actor="ada", **more)

    async def spawn(self, prompt: str = "How are you?", caller: Caller | None = None, **more: Any) -> SessionResult:
        """One session, to its end."""
        options = {"trigger_source": "person", **more}
        return await self.butler.spawner.spawn(caller or self.caller(), prompt, **options)

    async def act(self, *calls: Any, caller: Caller | None = None, **more: Any) -> dict[str, Any]:
        """What the program `ACTS` answers when it is asked to make these calls."""
        answered = await self.spawn(json.dumps(calls), caller, **more)
        return json.loads(answered.text)

    async def rows(self, statement: str, tenant: str | None = None) -> list[dict[str, Any]]:
        """What a query gives inside a tenant."""
        async with self.butler.database.transaction(self.caller(tenant)) as tx:
            return [dict(row) for row in await tx.fetch(statement)]

    async def sessions(self, tenant: str | None = None) -> list[dict[str, Any]]:
        """A tenant's sessions, in the order they were asked for."""
        return await self.rows("select * from sessions order by started_at, id", tenant)

    async def session(self, tenant: str | None = None) -> dict[str, Any]:
        """A tenant's one session."""
        (row,) = await self.sessions(tenant)
        return row

    async def episodes(self, tenant: str | None = None) -> list[dict[str, Any]]:
        """A tenant's episodes, oldest first."""
        return await self.rows("select * from episodes order by created_at", tenant)

    async def tell(self, tool: str, tenant: str | None = None, **arguments: Any) -> Any:
        """What a tool answers to somebody of a tenant, as the host calls it."""
        own = self.butler.spawner.own
        assert own is not None
        return await own.call(self.caller(tenant), tool, arguments)


@asynccontextmanager
async def opened(
    place: Path, env: Environment, modules: Any = MODULES, *, by_the_clock: bool = True
) -> AsyncIterator[Hosted]:
    """A butler of this process with its sessions attached."""
    async with (
        app.open_butler(app.load_configuration(place, modules), env, modules) as butler,
        app.open_server(butler, by_the_clock=by_the_clock) as server,
    ):
        yield Hosted(butler, server)


def visiting(access: dict[str, Any]) -> Client[Any]:
    """A client with the address and the credential of a session, as its configuration file has them."""
    return Client(StreamableHttpTransport(access["url"], headers=access["headers"]))


async def until(condition: Callable[[], Any], what: str, seconds: float = 20) -> Any:
    """What the condition gives, once it gives something; it may be a coroutine."""
    give_up = time.monotonic() + seconds
    while True:
        found = condition()
        found = await found if asyncio.iscoroutine(found) else found
        if found:
            return found
        assert time.monotonic() < give_up, f"waited in vain for {what}"
        await asyncio.sleep(0.03)


def left(session: object) -> list[str]:
    """What still runs of a session: all it starts has the session's id in its environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("BUTLERS_SESSION_ID") == str(session):
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found
