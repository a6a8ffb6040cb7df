"""Questions to the agent itself: does it trust the files of a connection, and which tools does it see?"""

import asyncio
import json
import os
import re
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from butlers.agents import KEY_VARIABLE, Agent, Probe
from butlers.connect.entry import Connection, any_client_entry, is_own_command
from butlers.contract import Check
from butlers.errors import Unavailable

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_MAX_LINE_BYTES = 16 * 1024 * 1024
_TRUSTED = {"trusted", "managed"}


async def ask_agent(connection: Connection, probe: Probe) -> list[Check] | None:
    """Return what the agent's own command says; None if it is not installed."""
    program = shutil.which(probe.program)
    if program is None:
        return None
    name = connection.server_name
    arguments = [argument.format(name=name) for argument in probe.arguments]
    output = _ESCAPE.sub("", await _output(program, *arguments, cwd=_place(connection)))
    is_about_one = any("{name}" in argument for argument in probe.arguments)
    lines = [line for line in output.splitlines() if is_about_one or re.search(rf"(?<![\w-]){name}(?![\w-])", line)]
    said, title = "\n".join(lines), connection.agent.title
    if re.search(rf"\b{probe.connected}\b", said):
        return [Check("tools", "ok", f"{title} reaches the server {name}")]
    if probe.refused and probe.refused in said:
        return [Check("trust", "fail", f"{title} says: {probe.refused}", _advice(connection.agent))]
    fix = f"Run `{probe.program} {' '.join(arguments)}` in {_place(connection)} to see why."
    return [Check("tools", "fail", f"{title} does not reach the server {name}", fix)]


async def ask_codex(connection: Connection) -> list[Check] | None:
    """Return what Codex says about its hooks and servers; None if it is not installed."""
    program = shutil.which("codex")
    if program is None:
        return None
    place = str(_place(connection))
    async with _codex(program, place) as codex:
        hooks = await codex.call("hooks/list", {"cwds": [place]})
        thread = await codex.call("thread/start", {"cwd": place, "ephemeral": True})
        servers = await codex.call("mcpServerStatus/list", {"threadId": thread["thread"]["id"]})
    own = [
        hook for entry in hooks["data"] for hook in entry["hooks"] if is_own_command(connection, hook.get("command"))
    ]
    tools = [server["tools"] for server in servers["data"] if server["name"] == connection.server_name]
    return [_check_trust(connection.agent, own), _check_tools(connection, tools)]


def _check_trust(agent: Agent, hooks: list[Mapping[str, Any]]) -> Check:
    if not hooks:
        return Check("trust", "fail", "Codex does not load the hooks", _advice(agent))
    refused = [hook["eventName"] for hook in hooks if hook["trustStatus"] not in _TRUSTED or not hook["enabled"]]
    if refused:
        return Check("trust", "fail", f"Codex does not run the hooks {', '.join(refused)}", _advice(agent))
    return Check("trust", "ok", "Codex runs the hooks")


def _check_tools(connection: Connection, tools: list[Mapping[str, Any]]) -> Check:
    name = connection.server_name
    if not tools:
        return Check("tools", "fail", f"Codex does not load the server {name}", _advice(connection.agent))
    if not tools[0]:
        fix = f"Run `butlers doctor {connection.folder}`."
        return Check("tools", "fail", f"Codex sees no tool of the server {name}", fix)
    return Check("tools", "ok", f"Codex sees {len(tools[0])} tools of the server {name}")


async def start_entry(connection: Connection) -> Check:
    """Return whether the entry works when this process uses it as the agent would."""
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport, StreamableHttpTransport

    entry, key = any_client_entry(connection), os.environ.get(KEY_VARIABLE, "").strip()
    if "headers" in entry and not key:
        return Check("tools", "warn", f"{KEY_VARIABLE} is not set here", f"Export the key as {KEY_VARIABLE}.")
    transport: StdioTransport | StreamableHttpTransport
    if connection.over_http:
        transport = StreamableHttpTransport(entry["url"], auth=key if "headers" in entry else None)
    else:
        transport = StdioTransport(entry["command"], entry["args"], entry.get("env"), log_file=Path(os.devnull))
    try:
        async with Client(transport) as client:
            tools = await client.list_tools()
    except Exception as error:  # noqa: BLE001 — whatever stops this client stops the agent too
        fix = "Start the butler: `butlers run`." if connection.over_http else "Run `butlers doctor`."
        return Check("tools", "fail", f"the entry does not work: {type(error).__name__}", fix)
    found = f"the entry works and has {len(tools)} tools; {connection.agent.title} itself was not asked"
    return Check("tools", "ok", found)


def _place(connection: Connection) -> Path:
    return connection.project or Path.home()


def _advice(agent: Agent) -> str:
    return next(iter(agent.project_advice), "")


async def _output(program: str, *arguments: str, cwd: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        cwd=cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return output.decode("utf-8", "replace")


class _CodexServer:
    """Codex's app server, which answers questions about its settings. No model is asked."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._numbers = count(1)

    async def call(self, method: str, parameters: dict[str, Any]) -> Any:
        """Return the result of a method; raise `Unavailable` without one."""
        number = next(self._numbers)
        self.send({"id": number, "method": method, "params": parameters})
        await self._writer.drain()
        async for line in self._reader:
            message = json.loads(line)
            if message.get("id") == number and "method" not in message:
                if "result" in message:
                    return message["result"]
                raise Unavailable(f"Codex refuses {method}", hint="Run `codex doctor`.")
        raise Unavailable("Codex has ended without an answer", hint="Run `codex doctor`.")

    def send(self, message: dict[str, Any]) -> None:
        """Send a message."""
        self._writer.write(json.dumps(message).encode() + b"\n")


@asynccontextmanager
async def _codex(program: str, cwd: str) -> AsyncIterator[_CodexServer]:
    process = await asyncio.create_subprocess_exec(
        program,
        "app-server",
        cwd=cwd,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=_MAX_LINE_BYTES,
    )
    try:
        if process.stdin is None or process.stdout is None:
            raise Unavailable("Codex has no input and output")
        server = _CodexServer(process.stdout, process.stdin)
        await server.call("initialize", {"clientInfo": {"name": "butlers", "title": "Butlers", "version": "1"}})
        server.send({"method": "initialized"})
        yield server
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
