"""Management of memories: forget, restore, statistics, links and history."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import asyncpg

from butlers import cron
from butlers.caller import Caller
from butlers.db import Connection
from butlers.errors import Conflict, InvalidInput
from butlers.modules.memory.domain.errors import MemoryNotFound
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.operations.change_events import append_changes
from butlers.modules.memory.operations.feedback import refusal_for
from butlers.modules.memory.operations.idempotency import Answer, Request, run_once
from butlers.modules.memory.operations.viewing_sessions import TokenUse, token_use_in
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import consolidation, events, facts, links, memories, states, stats

MAX_CHAIN = 200
_TOKEN_DAYS = 7
_FORGOTTEN_STATE = {MemoryType.FACT: "retracted", MemoryType.RULE: "forgotten", MemoryType.EPISODE: "forgotten"}


async def forget(
    memory: Memory, caller: Caller, memory_type: MemoryType, memory_id: UUID, request: Request
) -> Answer:
    """Hide a memory from every search; it is kept and can be restored. Forgetting it again changes nothing."""

    async def work(tx: Connection) -> Answer:
        return await forget_within(tx, caller, memory_type, memory_id)

    return await run_once(memory.transaction(caller), caller, request, work)


async def forget_within(tx: Connection, caller: Caller, memory_type: MemoryType, memory_id: UUID) -> Answer:
    """Forget a memory in a transaction that does more. Raises what `forget` raises."""
    forgotten_state = _FORGOTTEN_STATE[memory_type]
    answer = {"id": str(memory_id), "memory_type": memory_type.value, "state": forgotten_state, "forgotten": True}
    before = await states.lock(tx, caller, memory_type, [memory_id])
    if await memories.forget(tx, caller, memory_type, [memory_id]):
        await append_changes(tx, caller, f"{memory_type}_forgotten", memory_type, before)
        return answer
    if await memories.lifecycle_state(tx, caller, memory_type, memory_id) == forgotten_state:
        return {**answer, "already": True}
    raise await refusal_for(tx, caller, memory_type, memory_id)


async def restore(
    memory: Memory, caller: Caller, memory_type: MemoryType, memory_id: UUID, request: Request
) -> Answer:
    """Make a forgotten memory searchable again. Raises `Conflict` when another fact has its key."""

    async def work(tx: Connection) -> Answer:
        try:
            before = await memories.restore(tx, caller, memory_type, memory_id)
        except asyncpg.UniqueViolationError:
            raise Conflict(
                f"another fact has the key of {memory_id}", hint="Forget the other fact first, or store a new one."
            ) from None
        if before is None:
            raise await refusal_for(tx, caller, memory_type, memory_id)
        await append_changes(tx, caller, f"{memory_type}_restored", memory_type, before)
        return {"id": str(memory_id), "memory_type": memory_type.value, "restored": True}

    return await run_once(memory.transaction(caller), caller, request, work)


async def memory_stats(memory: Memory, caller: Caller, scope: str | None) -> Answer:
    """Return counts of memories by state, the effectiveness of rules, token use and the status of the jobs."""
    scopes, butlers = (memory.scopes(scope), memory.butlers(scope)) if scope else (None, None)
    async with memory.transaction(caller) as tx:
        runs = await stats.jobs(tx)
        return {
            "scopes": list(scopes) if scopes else ["*"],
            "episodes": await stats.episodes(tx, caller, butlers),
            "facts": _with_distribution(await stats.facts(tx, caller, scopes)),
            "rules": _with_effectiveness(await stats.rules(tx, caller, scopes)),
            "consolidation": {
                "tokens_last_day": await consolidation.tokens_last_day(tx, caller),
                "daily_token_limit": memory.config.consolidation.daily_token_limit,
                "last_run": await consolidation.latest_run(tx, caller),
            },
            "tokens": _token_counts(await token_use_in(tx, caller, _TOKEN_DAYS)),
            "jobs": {name: _job_status(schedule, runs.get(name, {})) for name, schedule in memory.config.schedule},
        }


def _token_counts(used: TokenUse) -> dict[str, Any]:
    return {
        "days": used.days,
        "total": used.total,
        "by_day": list(used.by_day),
        "by_butler": dict(used.by_butler),
        "by_purpose": dict(used.by_purpose),
        "last_day_by_purpose": dict(used.last_day),
        "sessions": used.sessions,
        "sessions_without_usage": used.unreported,
    }


def _job_status(expression: str, last_run: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "next_run": cron.next_due(expression, cron.local_now()),
        "last_run": last_run.get("started_at"),
        "last_status": last_run.get("status"),
        "last_error": last_run.get("error"),
    }


def _with_distribution(counts: dict[str, Any]) -> dict[str, Any]:
    bands = ("below_20", "from_20_to_40", "from_40_to_60", "from_60_to_80", "from_80")
    labels = ("0.0-0.2", "0.2-0.4", "0.4-0.6", "0.6-0.8", "0.8-1.0")
    distribution = {label: counts.pop(band) for label, band in zip(labels, bands, strict=True)}
    return {**counts, "confidence_distribution": distribution}


def _with_effectiveness(counts: dict[str, Any]) -> dict[str, Any]:
    names = ("applied", "successes", "harms", "average_effectiveness", "needs_inversion")
    return {**counts, "effectiveness": {name: counts[name] for name in names}}


async def list_links(
    memory: Memory, caller: Caller, memory_type: MemoryType, memory_id: UUID, direction: str
) -> list[dict[str, Any]]:
    """Return the links of a memory: its sources, what it superseded, and what derives from it."""
    async with memory.transaction(caller) as tx:
        if await memories.lifecycle_state(tx, caller, memory_type, memory_id) is None:
            raise MemoryNotFound(memory_type, memory_id)
        found = await links.of_memory(
            tx,
            caller,
            memory_type,
            memory_id,
            outgoing=direction in {"outgoing", "both"},
            incoming=direction in {"incoming", "both"},
        )
    return [{name: value for name, value in link.items() if name != "gone" or value} for link in found]


async def memory_history(
    memory: Memory, caller: Caller, memory_type: MemoryType, memory_id: UUID, *, limit: int, cursor: UUID | None
) -> Answer:
    """Return a page of the events of a memory, the facts it superseded and the facts that superseded it.

    The cursor is the last event of the page before. Raises `InvalidInput` if it is none of this memory.
    """
    async with memory.transaction(caller) as tx:
        if await memories.lifecycle_state(tx, caller, memory_type, memory_id) is None:
            raise MemoryNotFound(memory_type, memory_id)
        page = await events.of_memory(tx, caller, memory_type, memory_id, after=cursor, limit=limit)
        if page is None:
            raise InvalidInput("the cursor is not from this memory's history", hint="Send a next_cursor of it.")
        is_fact = memory_type is MemoryType.FACT
        before, after = await facts.supersession_chain(tx, caller, memory_id, MAX_CHAIN + 1) if is_fact else ([], [])
    return {
        "id": memory_id,
        "memory_type": memory_type.value,
        "events": page.events,
        "total": page.total,
        "truncated": page.has_more,
        "next_cursor": page.events[-1]["id"] if page.has_more else None,
        "superseded": before[:MAX_CHAIN],
        "superseded_by": after[:MAX_CHAIN],
        "chain_truncated": len(before) > MAX_CHAIN or len(after) > MAX_CHAIN,
    }
