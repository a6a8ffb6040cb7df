"""Tools that list sessions and say what they were told."""

from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from butlers.caller import Caller
from butlers.contract import tool
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.operations import receipts, viewing_sessions
from butlers.modules.memory.operations.paging import parse_start
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.tools.answers import to_json
from butlers.modules.memory.tools.arguments import Id, MemoryTypeName, OptionalText, parse_id


class SessionReceipts(TypedDict):
    """What a session was told and found, call by call, with what was left out."""

    session_id: str
    receipts: list[dict[str, Any]]
    truncated: bool


class ToldSessions(TypedDict):
    """The sessions that were told a memory, newest first."""

    memory_type: str
    id: str
    sessions: int
    last_told_at: str | None
    told: list[dict[str, Any]]
    truncated: bool


class SessionList(TypedDict):
    """A page of sessions."""

    sessions: list[dict[str, Any]]
    next_cursor: str | None


@tool(read_only=True, toolset="full")
async def memory_receipts(
    memory: Memory, caller: Caller, session_id: Annotated[str, Field(description="The session's UUID.")]
) -> SessionReceipts:
    """List what a session was told and found: ids, ranks, scores and tokens, and what was left out and why."""
    parsed_id = parse_id("session_id", session_id, "Send the session's UUID.")
    return to_json(await receipts.receipts_of_session(memory, caller, parsed_id))  # type: ignore[no-any-return]


@tool(read_only=True, toolset="full", aliases={"type": "memory_type", "id": "memory_id"})
async def memory_told(memory: Memory, caller: Caller, memory_type: MemoryTypeName, memory_id: Id) -> ToldSessions:
    """List the sessions that were told a memory."""
    told = await receipts.told_sessions(memory, caller, MemoryType(memory_type), parse_id("memory_id", memory_id))
    return to_json(told)  # type: ignore[no-any-return]


@tool(read_only=True, toolset="full")
async def memory_sessions(
    memory: Memory,
    caller: Caller,
    cursor: Annotated[OptionalText, Field(description="The next_cursor of the page before.")] = None,
) -> SessionList:
    """List sessions, newest first: the prompt, the outcome, the tokens, and how much each was told."""
    page = await viewing_sessions.list_sessions(memory, caller, parse_start(cursor or "", "", "time"))
    cursor = str(page.older) if page.older else None
    return to_json({"sessions": page.rows, "next_cursor": cursor})  # type: ignore[no-any-return]


TOOLS = (memory_sessions, memory_receipts, memory_told)
