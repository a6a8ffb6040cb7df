"""Records of sessions in the database."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from importlib import resources
from typing import Any, Literal
from uuid import UUID

import aiosql

from butlers.caller import Caller
from butlers.db import Database
from butlers.errors import NotFound
from butlers.host.leases import hold_lease
from butlers.host.runtimes.runtime import RuntimeResult

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
    stored = replace(session, prompt="" if session.internal else _to_storable(session.prompt))
    async with database.transaction(caller) as tx:
        await _queries.insert_session(
            tx,
            **asdict(stored),
            tenant_id=caller.tenant,
            butler=caller.butler,
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
    result: RuntimeResult | None = None,
    error: str | None = None,
    tools: Mapping[str, int] | None = None,
) -> None:
    """Record the outcome of a session and the tools it called. An internal answer is not stored."""
    async with database.transaction(caller) as tx:
        await _queries.finish_session(
            tx,
            tenant_id=caller.tenant,
            id=session.id,
            status=outcome,
            runtime_session_id=result and result.session_id and _to_storable(result.session_id),
            usage=asdict(result.usage) if result and result.usage else {},
            tools=dict(tools or {}),
            answer=_to_storable(result.text[:_MAX_ANSWER_CHARACTERS]) if result and not session.internal else None,
            error=error and _to_storable(error[:_MAX_ERROR_CHARACTERS]),
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
        async with hold_lease(database, instance_lease_name(row["instance"])) as is_gone:
            if is_gone:
                owner = Caller(tenant=row["tenant_id"], butler=caller.butler, actor=caller.actor)
                async with database.transaction(owner) as tx:
                    lost += len([_ async for _ in _queries.mark_lost(tx, butler=caller.butler, **row)])
    return lost


def instance_lease_name(instance: UUID | None) -> str:
    """Return the name of the lease a process holds while it runs sessions."""
    return f"butlers instance {instance}"


def _to_storable(text: str) -> str:
    """Return the text without characters PostgreSQL can't store."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode()
