"""The host's own tool: an agent that may have the butler think and act."""

import asyncio
from typing import Annotated
from uuid import UUID, uuid4

from pydantic import Field
from typing_extensions import TypedDict

from butlers.caller import Caller
from butlers.contract import tool
from butlers.errors import Forbidden, InvalidInput
from butlers.host.spawner import SessionSpawner


class Triggered(TypedDict, total=False):
    """A session: how it stands, and what it answered once it has."""

    session_id: str
    status: str
    answer: str
    error: str


@tool(toolset="full")
async def trigger(
    sessions: SessionSpawner,
    caller: Caller,
    prompt: Annotated[str | None, Field(description="What the butler is to do.")] = None,
    session_id: Annotated[str | None, Field(description="Of a session that was running: how it stands now.")] = None,
) -> Triggered:
    """Have the butler carry out a prompt in a session of its own; a long one answers `running` and its session_id."""
    if session_id:
        return await _standing(sessions, caller, _parsed(session_id))
    if not prompt or not prompt.strip():
        raise InvalidInput("prompt is blank", hint="Send what the butler is to do, or a session_id.")
    if caller.session_id is not None:
        raise Forbidden("a session can't start another", hint="Do it yourself, with the tools you have.")
    started = uuid4()
    running = asyncio.create_task(
        sessions.spawn(caller, prompt, trigger_source=f"tool:{caller.actor}", session_id=started)
    )
    sessions.background(running)
    await asyncio.wait({running}, timeout=sessions.patience)
    if not running.done():
        return {"session_id": str(started), "status": "running"}
    answered = running.result()
    return {"session_id": str(answered.session_id), "status": "succeeded", "answer": answered.text}


async def _standing(sessions: SessionSpawner, caller: Caller, session_id: UUID) -> Triggered:
    record = await sessions.get(caller, session_id)
    told: Triggered = {"session_id": str(session_id), "status": record["status"]}
    if record["answer"] is not None:
        told["answer"] = record["answer"]
    if record["error"] is not None:
        told["error"] = record["error"]
    return told


def _parsed(text: str) -> UUID:
    try:
        return UUID(text.strip())
    except ValueError:
        raise InvalidInput("session_id is not a UUID", hint="Send the session_id that trigger answered.") from None


TOOLS = (trigger,)
