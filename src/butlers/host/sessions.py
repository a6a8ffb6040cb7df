"""The record of sessions: who started each, with what, and how it ended."""

from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal
from uuid import UUID

import aiosql

from butlers.caller import Caller
from butlers.contract import Usage
from butlers.db import Database

_queries: Any = aiosql.from_path(str(resources.files(__package__) / "sql" / "sessions.sql"), "asyncpg")

Ending = Literal["succeeded", "failed", "timed_out", "cancelled"]


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session about to start."""

    id: UUID
    trigger_source: str
    prompt: str
    runtime: str
    internal: bool


async def begin(database: Database, caller: Caller, session: NewSession) -> None:
    """Note that a session starts. Of an internal one the prompt is not kept: it is made of memories."""
    async with database.transaction(caller) as tx:
        await _queries.begin(
            tx,
            tenant_id=caller.tenant,
            id=session.id,
            butler=caller.butler,
            trigger_source=session.trigger_source,
            prompt="" if session.internal else session.prompt,
            runtime=session.runtime,
            internal=session.internal,
            actor=caller.actor,
            request_id=caller.request_id,
        )


async def finish(
    database: Database,
    caller: Caller,
    session_id: UUID,
    ending: Ending,
    *,
    runtime_session_id: str | None = None,
    usage: Usage | None = None,
    error: str | None = None,
) -> None:
    """Note how a session ended."""
    counted = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens} if usage else {}
    async with database.transaction(caller) as tx:
        await _queries.finish(
            tx,
            tenant_id=caller.tenant,
            id=session_id,
            status=ending,
            runtime_session_id=_storable(runtime_session_id),
            usage=counted,
            error=_storable(error),
        )


def _storable(text: str | None) -> str | None:
    """A program's words as PostgreSQL can keep them."""
    return None if text is None else text.replace("\x00", "").encode("utf-8", "replace").decode()
