"""Client for the butler's own tools inside this process."""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from fastmcp.exceptions import ToolError

from butlers.caller import Caller
from butlers.errors import Unavailable

if TYPE_CHECKING:
    from fastmcp import FastMCP

# Set only in this module, so that no request can choose its caller.
acting_caller: ContextVar[Caller | None] = ContextVar("acting_caller", default=None)


class LocalToolClient:
    """Calls tools by name on behalf of a caller; calls pass the same middleware as those of agents."""

    def __init__(self, mcp: "FastMCP[Any]", names: frozenset[str]) -> None:
        self._mcp = mcp
        self._names = names

    def has(self, name: str) -> bool:
        """Whether the butler has a tool of this name."""
        return name in self._names

    async def call(self, caller: Caller, name: str, arguments: Mapping[str, Any]) -> Any:
        """Return the tool's result; raise `Unavailable` with the tool's error text if it fails."""
        token = acting_caller.set(caller)
        try:
            result = await self._mcp.call_tool(name, dict(arguments))
        except ToolError as error:
            raise Unavailable(str(error)) from None
        finally:
            acting_caller.reset(token)
        content = result.structured_content
        return content["result"] if content is not None and set(content) == {"result"} else content
