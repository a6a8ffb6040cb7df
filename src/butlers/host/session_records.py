"""Records of sessions in the database."""

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
_MAX_ANSWER_CHARACTERS = 100_000
_MAX_ERROR_CHARACTERS = 500

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
    """Record a session that starts or waits. An internal prompt is not stored: it quotes memories."""
    async with database.transaction(caller) as tx:
        await _queries.insert_session(
            tx,
            tenant_id=caller.tenant,
            id=session.id,
            butler=caller.butler,
            trigger_source=session.trigger_source,
            prompt="" if session.internal else _to_storable(session.prompt),
            runtime=session.runtime,
            internal=session.internal,
            actor=caller.actor,
            request_id=caller.request_id,
            instance=instance,
            status="waiting" if waiting else "running",
        )


async def start_session(database: Database, caller: Caller, session_id: UUID) -> None:
    """Record that a waiting session starts to run."""
    async with database.transaction(caller) as tx:
        await _queries.start_session(tx, tenant_id=caller.tenant, id=session_id)


async def finish_session(
    database: Database,
    caller: Caller,
    session: NewSession,
    outcome: SessionOutcome,
    *,
    runtime_session_id: str | None = None,
    usage: Usage | None = None,
    answer: str | None = None,
    error: str | None = None,
) -> None:
    """Record the outcome of a session. An internal answer is not stored."""
    token_counts = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens} if usage else {}
    async with database.transaction(caller) as tx:
        await _queries.finish_session(
            tx,
            tenant_id=caller.tenant,
            id=session.id,
            status=outcome,
            runtime_session_id=_to_storable(runtime_session_id),
            usage=token_counts,
            answer=None if session.internal else _to_storable(answer and answer[:_MAX_ANSWER_CHARACTERS]),
            error=_to_storable(error and error[:_MAX_ERROR_CHARACTERS]),
        )


async def get_session(database: Database, caller: Caller, session_id: UUID) -> dict[str, Any]:
    """Return a session of the caller's tenant. Raises `NotFound`."""
    async with database.transaction(caller) as tx:
        row = await _queries.get_session(tx, tenant_id=caller.tenant, id=session_id)
    if row is None:
        raise NotFound(f"there is no session {session_id}", hint="Send a session_id that trigger returned.")
    return dict(row)


async def mark_lost_sessions(database: Database, caller: Caller) -> int:
    """Mark unfinished sessions of processes that are gone as lost; return their number."""
    lost = 0
    for row in await database.fetch_across_tenants(_queries.unfinished_instances.sql, caller.butler):
        async with database.try_lock(instance_lock_name(row["instance"])) as is_gone:
            if is_gone:
                owner = Caller(tenant=row["tenant_id"], butler=caller.butler, actor=caller.actor)
                lost += await _mark_lost(database, owner, row["instance"])
    return lost


async def _mark_lost(database: Database, caller: Caller, instance: UUID | None) -> int:
    async with database.transaction(caller) as tx:
        rows = _queries.mark_lost(tx, tenant_id=caller.tenant, butler=caller.butler, instance=instance)
        return len([row async for row in rows])


def instance_lock_name(instance: UUID | None) -> str:
    """Return the name of the lock a process holds while it runs sessions."""
    return f"butlers instance {instance}"


def _to_storable(text: str | None) -> str | None:
    """Return the text without characters PostgreSQL can't store."""
    return None if text is None else text.replace("\x00", "").encode("utf-8", "replace").decode()
