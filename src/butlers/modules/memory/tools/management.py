"""Tools that forget, restore, count and trace memories."""

from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from butlers.caller import Caller
from butlers.contract import tool
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.operations import management
from butlers.modules.memory.operations.idempotency import Request
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.tools.answers import to_json
from butlers.modules.memory.tools.arguments import Blank, Id, Key, MemoryTypeName, OptionalText, Scope, Word, parse_id

_ALIASES = {"type": "memory_type", "id": "memory_id"}
_EVENTS = 200


class ForgetResult(TypedDict, total=False):
    """A forgotten memory."""

    id: str
    memory_type: str
    state: str
    forgotten: bool
    already: bool


class RestoreResult(TypedDict):
    """A restored memory."""

    id: str
    memory_type: str
    restored: bool


class Stats(TypedDict):
    """Counts of memories, consolidation, tokens and jobs."""

    scopes: list[str]
    episodes: dict[str, Any]
    facts: dict[str, Any]
    rules: dict[str, Any]
    consolidation: dict[str, Any]
    tokens: dict[str, Any]
    jobs: dict[str, Any]


class History(TypedDict):
    """A page of the events of a memory, the number of all, and its supersession."""

    id: str
    memory_type: str
    events: list[dict[str, Any]]
    total: int
    truncated: bool
    next_cursor: str | None
    superseded: list[dict[str, Any]]
    superseded_by: list[dict[str, Any]]
    chain_truncated: bool


@tool(destructive=True, idempotent=True, aliases=_ALIASES)
async def memory_forget(
    memory: Memory, caller: Caller, memory_type: MemoryTypeName, memory_id: Id, idempotency_key: Key = None
) -> ForgetResult:
    """Remove a wrong or unwanted memory from all searches; it stays on record and can be restored."""
    parsed_id = parse_id("memory_id", memory_id)
    request = Request("memory_forget", {"type": memory_type, "id": str(parsed_id)}, idempotency_key)
    return await management.forget(memory, caller, MemoryType(memory_type), parsed_id, request)  # type: ignore[return-value]


@tool(read_only=True)
async def memory_stats(
    memory: Memory,
    caller: Caller,
    scope: Annotated[Scope, Field(description="Counts global and this scope; everything by default.")] = None,
) -> Stats:
    """Count memories by state: pending episodes, confidence of facts, maturity of rules."""
    return to_json(await management.memory_stats(memory, caller, scope))  # type: ignore[no-any-return]


@tool(idempotent=True, toolset="full", aliases=_ALIASES)
async def memory_restore(
    memory: Memory, caller: Caller, memory_type: MemoryTypeName, memory_id: Id, idempotency_key: Key = None
) -> RestoreResult:
    """Bring a forgotten memory back into searches."""
    parsed_id = parse_id("memory_id", memory_id)
    request = Request("memory_restore", {"type": memory_type, "id": str(parsed_id)}, idempotency_key)
    return await management.restore(memory, caller, MemoryType(memory_type), parsed_id, request)  # type: ignore[return-value]


@tool(read_only=True, toolset="full", aliases=_ALIASES)
async def memory_links(
    memory: Memory,
    caller: Caller,
    memory_type: MemoryTypeName,
    memory_id: Id,
    direction: Annotated[Literal["outgoing", "incoming", "both"] | None, Word] = None,
) -> list[dict[str, Any]]:
    """List the links of a memory: what it was derived from, replaced or led to."""
    parsed_id = parse_id("memory_id", memory_id)
    links = await management.list_links(memory, caller, MemoryType(memory_type), parsed_id, direction or "both")
    return to_json(links)  # type: ignore[no-any-return]


@tool(read_only=True, toolset="full", aliases=_ALIASES)
async def memory_history(
    memory: Memory,
    caller: Caller,
    memory_type: MemoryTypeName,
    memory_id: Id,
    limit: Annotated[
        Annotated[int, Field(ge=1, le=1_000)] | None, Blank, Field(description="Maximum number of events.")
    ] = _EVENTS,
    cursor: Annotated[OptionalText, Field(description="The next_cursor of the page before.")] = None,
) -> History:
    """List what happened to a memory, what it superseded and what superseded it."""
    parsed_id = parse_id("memory_id", memory_id)
    after = parse_id("cursor", cursor, "Send the next_cursor of an answer, or leave it out.") if cursor else None
    history = await management.memory_history(
        memory, caller, MemoryType(memory_type), parsed_id, limit=limit or _EVENTS, cursor=after
    )
    return to_json(history)  # type: ignore[no-any-return]


TOOLS = (memory_forget, memory_stats, memory_restore, memory_links, memory_history)
