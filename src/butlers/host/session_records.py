"""The record of sessions: who started each, with what, and how it ended."""

from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal
from uuid import UUID

import aiosql

from butlers.caller import Caller
from butlers.contract import Usage
from butlers.db import Database
from butlers.errors import NotFound

_queries: Any = aiosql.from_path(str(resources.files(__package__) / "sql" / "sessions.sql"), "asyncpg")
LONGEST_ANSWER = 100_000
_LONGEST_ERROR = 500

SessionOutcome = Literal["succeeded", "failed", "timed_out", "cancelled"]


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session about to start."""

    id: UUID
    trigger_source: str
    prompt: str
    runtime: str
    internal: bool


async def begin_session(
    database: Database, caller: Caller, session: NewSession, instance: UUID, *, waiting: bool
) -> None:
    """Note that a session starts or waits. Of an internal one the prompt is not kept: it is made of memories."""
    async with database.transaction(caller) as tx:
        await _queries.begin(
            tx,
            tenant_id=caller.tenant,
            id=session.id,
            butler=caller.butler,
            trigger_source=session.trigger_source,
            prompt="" if session.internal else _storable(session.prompt),
            runtime=session.runtime,
            internal=session.internal,
            actor=caller.actor,
            request_id=caller.request_id,
            instance=instance,
            status="waiting" if waiting else "running",
        )


async def start_session(database: Database, caller: Caller, session_id: UUID) -> None:
    """Note that the turn of a waiting session has come."""
    async with database.transaction(caller) as tx:
        await _queries.start(tx, tenant_id=caller.tenant, id=session_id)


async def finish_session(
    database: Database,
    caller: Caller,
    session: NewSession,
    ending: SessionOutcome,
    *,
    runtime_session_id: str | None = None,
    usage: Usage | None = None,
    answer: str | None = None,
    error: str | None = None,
) -> None:
    """Note how a session ended; what an internal one answered is not kept either."""
    counted = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens} if usage else {}
    async with database.transaction(caller) as tx:
        await _queries.finish(
            tx,
            tenant_id=caller.tenant,
            id=session.id,
            status=ending,
            runtime_session_id=_storable(runtime_session_id),
            usage=counted,
            answer=None if session.internal else _storable(answer and answer[:LONGEST_ANSWER]),
            error=_storable(error and error[:_LONGEST_ERROR]),
        )


async def get_session(database: Database, caller: Caller, session_id: UUID) -> dict[str, Any]:
    """One session of the caller's tenant."""
    async with database.transaction(caller) as tx:
        row = await _queries.get(tx, tenant_id=caller.tenant, id=session_id)
    if row is None:
        raise NotFound(f"no session {session_id}", hint="Ids come from trigger.")
    return dict(row)


async def mark_lost_sessions(database: Database, caller: Caller) -> int:
    """Mark what was under way in processes that are gone; how many sessions that were."""
    lost = 0
    for row in await database.fetch_across_tenants(_queries.unfinished.sql, caller.butler):
        async with database.try_lock(instance_lock_name(row["instance"])) as is_gone:
            if is_gone:
                inside = Caller(tenant=row["tenant_id"], butler=caller.butler, actor=caller.actor)
                lost += await _give_up(database, inside, row["instance"])
    return lost


async def _give_up(database: Database, caller: Caller, instance: UUID | None) -> int:
    async with database.transaction(caller) as tx:
        rows = _queries.give_up_lost(tx, tenant_id=caller.tenant, butler=caller.butler, instance=instance)
        return len([row async for row in rows])


def instance_lock_name(instance: UUID | None) -> str:
    """The name of the lock a process holds while it lives."""
    return f"butlers instance {instance}"


def _storable(text: str | None) -> str | None:
    """A program's words as PostgreSQL can keep them."""
    return None if text is None else text.replace("\x00", "").encode("utf-8", "replace").decode()
