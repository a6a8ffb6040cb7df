"""Calls of a butler's tools from a hook: to the running butler, which is faster, or else in this process."""

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from butlers import app, local_socket
from butlers.caller import AGENT_HEADER, SESSION_HEADER
from butlers.config import Configuration
from butlers.environment import Environment
from butlers.errors import Conflict, Fault, Unavailable
from butlers.http_body import read_json_object
from butlers.prompt_text import escape_line

log = logging.getLogger("butlers.hooks")

_MAX_ANSWER_BYTES = 1024 * 1024
_MAX_ERROR_CHARACTERS = 300
_ACCEPT = "application/json, text/event-stream"
_CONNECT_TIMEOUT_SECONDS, _HEALTH_TIMEOUT_SECONDS, _ANSWER_TIMEOUT_SECONDS = 0.5, 1.0, 5.0


@asynccontextmanager
async def open_tools(config: Configuration, environment: Environment) -> AsyncIterator["ButlerTools"]:
    """Yield the tools of a butler; its database is opened only if the running butler does not answer."""
    async with AsyncExitStack() as stack:
        yield ButlerTools(config, environment, stack)


class ButlerTools:
    """The tools of one butler."""

    def __init__(self, config: Configuration, environment: Environment, stack: AsyncExitStack) -> None:
        self.config = config
        self._environment, self._stack = environment, stack
        self._butler: app.Butler | None = None
        self._socket = _find_socket(config, environment)

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        *,
        actor: str,
        session_id: UUID | None = None,
        details: Mapping[str, str] | None = None,
    ) -> Any:
        """Return the answer of a tool; raise its error as a `Fault`. A session that is named gets a receipt."""
        if self._socket is not None:
            headers = {SESSION_HEADER: str(session_id), AGENT_HEADER: actor} if session_id else {}
            with suppress(Unavailable):
                return await _call_running_butler(self._socket, self.config.butler.name, tool, arguments, headers)
            self._socket = None
        if self._butler is None:
            opening = app.open_butler(self.config, self._environment)
            self._butler = await self._stack.enter_async_context(opening)
        caller = replace(
            self._butler.caller(actor=actor),
            session_id=str(session_id) if session_id else None,
            details={"agent": actor} if session_id else dict(details or {}),
        )
        for module in self._butler.modules:
            for candidate in module.tools():
                if candidate.name == tool:
                    return await candidate.function(module.state, caller, **arguments)
        return None


def _find_socket(config: Configuration, environment: Environment) -> Path | None:
    try:
        return local_socket.find_socket(environment.home, config.folder)
    except Unavailable as fault:
        log.warning("the running butler is not asked: %s. %s", fault.message, fault.hint)
        return None


async def _call_running_butler(
    path: Path, butler: str, tool: str, arguments: dict[str, Any], headers: Mapping[str, str]
) -> Any:
    """Return the answer of the butler at a socket; raise `Unavailable` if it is another one or can't answer.

    Only this user can listen at the socket. A port is no proof: any process can listen there and give any name.
    """
    import httpx2

    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    transport = httpx2.AsyncHTTPTransport(uds=str(path))
    timeout = httpx2.Timeout(_ANSWER_TIMEOUT_SECONDS, connect=_CONNECT_TIMEOUT_SECONDS)
    try:
        async with httpx2.AsyncClient(transport=transport, timeout=timeout, base_url="http://localhost") as http:
            async with http.stream("GET", "/health", timeout=_HEALTH_TIMEOUT_SECONDS) as response:
                health = await read_json_object(response, _MAX_ANSWER_BYTES)
            if health is None or health.get("butler") != butler:
                raise Unavailable("another butler listens there")
            async with http.stream("POST", "/mcp", json=message, headers={"Accept": _ACCEPT, **headers}) as response:
                answer = await read_json_object(response, _MAX_ANSWER_BYTES)
    except httpx2.HTTPError:
        raise Unavailable("the butler is not running") from None
    return _tool_result(answer or {})


def _tool_result(answer: Mapping[str, Any]) -> Any:
    """Return the result of a tool call; raise the tool's error as a `Fault`, or `Unavailable` without a result."""
    result = answer.get("result")
    if not isinstance(result, Mapping):
        raise Unavailable("the answer has no result")
    if result.get("isError"):
        text = escape_line(" ".join(_texts(result.get("content")))[:_MAX_ERROR_CHARACTERS])
        raise Conflict(text) if text.startswith(f"{Conflict.code}:") else Fault(text)
    content = result.get("structuredContent")
    return content.get("result", content) if isinstance(content, Mapping) else None


def _texts(content: Any) -> Sequence[str]:
    parts = content if isinstance(content, list) else []
    return [part["text"] for part in parts if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
