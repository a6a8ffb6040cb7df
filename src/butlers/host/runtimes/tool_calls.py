"""The butler's tools in the hands of a model that only talks: it says which to call, and reads what they answer."""

import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from butlers.errors import SessionFailed
from butlers.host.runtimes.runtime import McpAccess

if TYPE_CHECKING:
    import httpx2

Message = dict[str, Any]
_TOOL_SECONDS = 60.0


class ToolClient(Protocol):
    """The tools a session may call."""

    @property
    def offered(self) -> Sequence[Message]:
        """What the model is told of them."""

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """What the tool of that name answers, or why it refuses."""


class _NoTools:
    """A session without tools."""

    offered: Sequence[Message] = ()

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        del arguments
        return f"not_found: there is no tool {name}."


class _McpTools:
    """The butler's own tools, over MCP."""

    def __init__(self, client: Any, listed: Sequence[Any]) -> None:
        self._client = client
        self.offered: Sequence[Message] = [_function_schema(tool) for tool in listed]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        try:
            answer = await self._client.call_tool(name, dict(arguments), raise_on_error=False)
        except Exception as error:  # noqa: BLE001 — whatever became of the call, the model is told and goes on
            return f"unavailable: the tool could not be reached ({type(error).__name__})."
        return "\n".join(block.text for block in answer.content if hasattr(block, "text"))


def _function_schema(tool: Any) -> Message:
    described = {"name": tool.name, "description": tool.description or "", "parameters": tool.input_schema}
    return {"type": "function", "function": described}


@contextlib.asynccontextmanager
async def open_tools(mcp: McpAccess | None) -> AsyncIterator[ToolClient]:
    """The tools of that server, for as long as the block lasts; none without one."""
    if mcp is None:
        yield _NoTools()
        return
    from fastmcp import Client
    from fastmcp.client.transports import StreamableHttpTransport

    transport = StreamableHttpTransport(
        mcp.url, headers=dict(mcp.headers), httpx_client_factory=_client_without_proxy
    )
    async with contextlib.AsyncExitStack() as stack:
        try:
            client = await stack.enter_async_context(Client(transport))
            listed = await client.list_tools()
        except Exception as error:
            raise SessionFailed(f"the butler's own tools can't be reached: {type(error).__name__}") from error
        yield _McpTools(client, listed)


def _client_without_proxy(
    headers: dict[str, str] | None = None,
    timeout: "httpx2.Timeout | None" = None,
    auth: "httpx2.Auth | None" = None,
    **_: Any,
) -> "httpx2.AsyncClient":
    """A client that goes straight to the butler: no proxy has to see its credential."""
    import httpx2

    limit = httpx2.Timeout(_TOOL_SECONDS) if timeout is None else timeout
    return httpx2.AsyncClient(headers=headers, timeout=limit, auth=auth, trust_env=False, follow_redirects=False)


async def execute_call(tools: ToolClient, call: Any) -> Message:
    """A tool call's answer as the model reads it; a call that makes no sense is answered, not raised."""
    asked = call if isinstance(call, dict) else {}
    name, arguments = _parse_call(asked.get("function"))
    if name is None or arguments is None:
        said = "invalid_input: send a tool's name and its arguments as a JSON object."
    else:
        said = await tools.call(name, arguments)
    return {"role": "tool", "tool_call_id": str(asked.get("id") or ""), "content": said}


def _parse_call(function: Any) -> tuple[str | None, dict[str, Any] | None]:
    if not isinstance(function, dict):
        return None, None
    name, given = function.get("name"), function.get("arguments")
    try:
        arguments = json.loads(given.strip() or "{}") if isinstance(given, str) else given or {}
    except (ValueError, RecursionError):
        arguments = None
    return (name if isinstance(name, str) else None), (arguments if isinstance(arguments, dict) else None)
