"""The tool that undoes an event, a call or the caller's last act."""

from dataclasses import asdict
from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from butlers.caller import Caller
from butlers.contract import tool
from butlers.errors import InvalidInput
from butlers.modules.memory.operations import undo
from butlers.modules.memory.operations.idempotency import Request, find_answer
from butlers.modules.memory.operations.undo import UndoTarget
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.tools.answers import to_json
from butlers.modules.memory.tools.arguments import Blank, Key, OptionalText, parse_id


class UndoResult(TypedDict, total=False):
    """The records that have their state of before the call again, or would have it after a dry run."""

    dry_run: bool
    event_id: str
    request_id: str
    undone: list[dict[str, Any]]
    number: int
    already: bool
    reason: str


@tool(destructive=True, toolset="full")
async def memory_undo(
    memory: Memory,
    caller: Caller,
    event_id: Annotated[OptionalText, Field(description="The event to undo, from memory_history.")] = None,
    request_id: Annotated[OptionalText, Field(description="Undo all that this call changed.")] = None,
    dry_run: Annotated[bool | None, Blank, Field(description="Only say what would change.")] = False,
    idempotency_key: Key = None,
) -> UndoResult:
    """Give memories back the state before one event or one call; without either, before your last act."""
    if event_id and request_id:
        raise InvalidInput("undo takes an event or a call", hint="Send event_id or request_id.")
    event = parse_id("event_id", event_id) if event_id else None
    arguments = {"event_id": str(event or ""), "request_id": request_id or ""}
    request = Request("memory_undo", arguments, None if dry_run else idempotency_key)
    if (stored := await find_answer(memory, caller, request)) is not None:
        return _to_result(stored)
    if event and not dry_run:
        return _to_result(await undo.undo_event(memory, caller, event, request))
    target = await _find_target(memory, caller, event, request_id)
    if not dry_run:
        return _to_result(await undo.undo(memory, caller, target.request_id, request))
    preview = asdict(await undo.preview_target(memory, caller, target))
    shown = {"request_id": target.request_id, "undone": preview["changes"], "number": preview["number"]}
    shown |= {"already": True} if preview["is_undone"] else {}
    shown |= {"reason": preview["reason"]} if preview["reason"] else {}
    return _to_result({"dry_run": True, **({"event_id": str(event)} if event else {}), **shown})


def _to_result(answer: dict[str, Any]) -> UndoResult:
    """Return an answer with its changes as a list: a field may have any name."""
    undone = [
        {**each, "changes": [{"field": name, **change} for name, change in each["changes"].items()]}
        for each in answer["undone"]
    ]
    return to_json({**answer, "undone": undone})  # type: ignore[no-any-return]


async def _find_target(memory: Memory, caller: Caller, event: Any, request_id: str | None) -> UndoTarget:
    if event:
        return await undo.target_of_event(memory, caller, event)
    return UndoTarget(request_id) if request_id else await undo.target_of_last_act(memory, caller)


TOOLS = (memory_undo,)
