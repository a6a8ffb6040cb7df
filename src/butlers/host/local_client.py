"""The butler's own server as the host calls it: tools by name, on behalf of whoever a session is for."""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from fastmcp.exceptions import ToolError

from butlers.caller import Caller
from butlers.errors import Unavailable

if TYPE_CHECKING:
    from fastmcp import FastMCP

# Set only here, inside this process: no request can bring it along.
acting_caller: ContextVar[Caller | None] = ContextVar("acting_for", default=None)


class LocalToolClient:
    """Calls go through the same door as everybody's, with the caller they are made for."""

    def __init__(self, mcp: "FastMCP[Any]", names: frozenset[str]) -> None:
        self._mcp = mcp
        self._names = names

    def has(self, name: str) -> bool:
        """Whether there is such a tool; without a memory there is none of memory's."""
        return name in self._names

    async def call(self, caller: Caller, name: str, arguments: Mapping[str, Any]) -> Any:
        """What the tool answers; raises `Unavailable` with the line the door makes of a failure."""
        token = acting_caller.set(caller)
        try:
            answer = await self._mcp.call_tool(name, dict(arguments))
        except ToolError as error:
            raise Unavailable(str(error)) from None
        finally:
            acting_caller.reset(token)
        said = answer.structured_content
        return said["result"] if said is not None and set(said) == {"result"} else said
