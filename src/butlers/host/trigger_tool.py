"""The `trigger` tool: an agent starts a session of the butler."""

import asyncio
from typing import Annotated, cast
from uuid import UUID, uuid4

from pydantic import Field
from typing_extensions import TypedDict

from butlers.caller import Caller
from butlers.contract import tool
from butlers.errors import Forbidden, InvalidInput
from butlers.host.spawner import SessionSpawner


class SessionStatus(TypedDict, total=False):
    """A session's status, and its answer or error once it has ended."""

    session_id: str
    status: str
    answer: str
    error: str


@tool(toolset="full")
async def trigger(
    sessions: SessionSpawner,
    caller: Caller,
    prompt: Annotated[str | None, Field(description="Task for the butler.")] = None,
    session_id: Annotated[str | None, Field(description="A session started earlier: returns its status.")] = None,
) -> SessionStatus:
    """Run a prompt in a new session of the butler. A long session returns status `running` and its session_id."""
    if session_id:
        return await _session_status(sessions, caller, session_id)
    if not prompt or not prompt.strip():
        raise InvalidInput("prompt is blank", hint="Send a task for the butler, or a session_id.")
    if caller.session_id is not None:
        raise Forbidden("a session can't start another session", hint="Use the tools you have.")
    new_id = uuid4()
    session = sessions.spawn(caller, prompt, trigger_source=f"tool:{caller.actor}", session_id=new_id)
    task = asyncio.create_task(session)
    sessions.keep_in_background(task)
    await asyncio.wait({task}, timeout=sessions.reply_seconds)
    if not task.done():
        return {"session_id": str(new_id), "status": "running"}
    return {"session_id": str(new_id), "status": "succeeded", "answer": task.result().text}


async def _session_status(sessions: SessionSpawner, caller: Caller, session_id: str) -> SessionStatus:
    try:
        key = UUID(session_id.strip())
    except ValueError:
        raise InvalidInput("session_id is not a UUID", hint="Send the session_id that trigger returned.") from None
    record = await sessions.get(caller, key)
    status = {name: record[name] for name in ("status", "answer", "error") if record[name] is not None}
    return cast("SessionStatus", {"session_id": str(key), **status})


TOOLS = (trigger,)
