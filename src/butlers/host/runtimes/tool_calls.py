"""Execution of a chat model's tool calls against the butler's MCP server."""

import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from butlers.errors import SessionFailed
from butlers.host.runtimes.runtime import McpAccess

if TYPE_CHECKING:
    import httpx2

Message = dict[str, Any]
_TOOL_TIMEOUT_SECONDS = 60.0


class ToolClient:
    """The tools a session may call: the butler's over MCP, or none without a client."""

    def __init__(self, client: Any = None, tools: Sequence[Any] = ()) -> None:
        self._client = client
        self.schemas = [_function_schema(tool) for tool in tools]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the tool's answer or its error text."""
        if self._client is None:
            return f"not_found: there is no tool {name}."
        try:
            result = await self._client.call_tool(name, dict(arguments), raise_on_error=False)
        except Exception as error:  # noqa: BLE001 — the model reads the error and goes on
            return f"unavailable: the tool could not be reached ({type(error).__name__})."
        return "\n".join(block.text for block in result.content if hasattr(block, "text"))


def _function_schema(tool: Any) -> Message:
    function = {"name": tool.name, "description": tool.description or "", "parameters": tool.input_schema}
    return {"type": "function", "function": function}


@contextlib.asynccontextmanager
async def open_tools(mcp: McpAccess | None) -> AsyncIterator[ToolClient]:
    """Yield the tools of the MCP server, or no tools without one. Raises `SessionFailed` if it can't be reached."""
    if mcp is None:
        yield ToolClient()
        return
    from fastmcp import Client
    from fastmcp.client.transports import StreamableHttpTransport

    transport = StreamableHttpTransport(
        mcp.url, headers=dict(mcp.headers), httpx_client_factory=_client_without_proxy
    )
    async with contextlib.AsyncExitStack() as stack:
        try:
            client = await stack.enter_async_context(Client(transport))
            tools = await client.list_tools()
        except Exception as error:
            raise SessionFailed(f"the butler's own tools can't be reached: {type(error).__name__}") from error
        yield ToolClient(client, tools)


def _client_without_proxy(
    headers: dict[str, str] | None = None,
    timeout: "httpx2.Timeout | None" = None,
    auth: "httpx2.Auth | None" = None,
    **_: Any,
) -> "httpx2.AsyncClient":
    """Return an HTTP client that uses no proxy: a proxy would see the credential."""
    import httpx2

    timeout = httpx2.Timeout(_TOOL_TIMEOUT_SECONDS) if timeout is None else timeout
    return httpx2.AsyncClient(headers=headers, timeout=timeout, auth=auth, trust_env=False, follow_redirects=False)


async def execute_call(tools: ToolClient, call: Any) -> Message:
    """Execute a tool call and return its answer as a message; a malformed call is answered with an error text."""
    payload = call if isinstance(call, dict) else {}
    function: Any = payload.get("function")
    function = function if isinstance(function, dict) else {}
    name, arguments = function.get("name"), function.get("arguments") or {}
    try:
        arguments = json.loads(arguments.strip() or "{}") if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        arguments = None
    content = "invalid_input: send a tool's name and its arguments as a JSON object."
    if isinstance(name, str) and isinstance(arguments, dict):
        content = await tools.call(name, arguments)
    return {"role": "tool", "tool_call_id": str(payload.get("id") or ""), "content": content}
