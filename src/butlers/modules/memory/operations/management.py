"""Forgetting, bringing back, counting, and the history of a memory."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import asyncpg

from butlers import cron
from butlers.caller import Caller
from butlers.errors import Conflict
from butlers.modules.memory.domain.errors import MemoryNotFound
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.operations.feedback import refusal_for
from butlers.modules.memory.operations.idempotency import Answer, Request, run_once
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import consolidation, events, facts, links, memories, stats
from butlers.modules.memory.store.events import Event

MOST_HISTORY = 200
_FORGOTTEN = {MemoryType.FACT: "retracted", MemoryType.RULE: "forgotten", MemoryType.EPISODE: "forgotten"}


async def forget(
    memory: Memory, caller: Caller, memory_type: MemoryType, memory_id: UUID, request: Request
) -> Answer:
    """Take a memory out of every search at once; it stays on record and can be brought back."""
    async with memory.transaction(caller) as tx:

        async def work() -> Answer:
            answer = {"id": str(memory_id), "memory_type": memory_type.value, "state": _FORGOTTEN[memory_type]}
            if await memories.forget(tx, caller, memory_type, [memory_id]):
                await events.append(tx, caller, Event(f"{memory_type}_forgotten", memory_type, memory_id))
                return {**answer, "forgotten": True}
            state = await memories.lifecycle_state(tx, caller, memory_type, memory_id)
            if state == _FORGOTTEN[memory_type]:
                # Forgetting twice is forgetting once.
                return {**answer, "forgotten": True, "already": True}
            raise await refusal_for(tx, caller, memory_type, memory_id)

        return await run_once(tx, caller, request, work)


async def restore(
    memory: Memory, caller: Caller, memory_type: MemoryType, memory_id: UUID, request: Request
) -> Answer:
    """Bring a forgotten memory back into searches."""
    async with memory.transaction(caller) as tx:

        async def work() -> Answer:
            try:
                back = await memories.restore(tx, caller, memory_type, memory_id)
            except asyncpg.UniqueViolationError:
                raise Conflict(
                    f"another fact holds the key of {memory_id} by now", hint="Forget that one first, or store anew."
                ) from None
            if not back:
                raise await refusal_for(tx, caller, memory_type, memory_id)
            await events.append(tx, caller, Event(f"{memory_type}_restored", memory_type, memory_id))
            return {"id": str(memory_id), "memory_type": memory_type.value, "restored": True}

        return await run_once(tx, caller, request, work)


async def memory_stats(memory: Memory, caller: Caller, scope: str | None) -> Answer:
    """How many memories there are, in which state, and how well they serve."""
    scopes, butlers = (memory.scopes(scope), memory.butlers(scope)) if scope else (None, None)
    async with memory.transaction(caller) as tx:
        of_episodes = dict(await stats.episodes(tx, caller, butlers))
        of_facts = dict(await stats.facts(tx, caller, scopes))
        of_rules = dict(await stats.rules(tx, caller, scopes))
        spent, latest = await consolidation.tokens_last_day(tx, caller), await consolidation.latest_run(tx, caller)
        ran = await stats.jobs(tx)
    return {
        "scopes": list(scopes) if scopes else ["*"],
        "episodes": of_episodes,
        "facts": _with_distribution(of_facts),
        "rules": _with_effectiveness(of_rules),
        "consolidation": {
            "tokens_last_day": spent,
            "daily_token_limit": memory.config.consolidation.daily_token_limit,
            "last_run": latest,
        },
        "jobs": {name: _job_status(expression, ran.get(name, {})) for name, expression in memory.config.schedule},
    }


def _job_status(expression: str, ran: Mapping[str, Any]) -> dict[str, Any]:
    """When a job runs next, and how it ran last."""
    return {
        "next_run": cron.next_due(expression, cron.local_now()),
        "last_run": ran.get("started_at"),
        "last_status": ran.get("status"),
        "last_error": ran.get("error"),
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
    """The edges of a memory: where it came from, what it replaced, what came from it."""
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


async def memory_history(memory: Memory, caller: Caller, memory_type: MemoryType, memory_id: UUID) -> Answer:
    """What happened to a memory, what it superseded and what superseded it."""
    async with memory.transaction(caller) as tx:
        if await memories.lifecycle_state(tx, caller, memory_type, memory_id) is None:
            raise MemoryNotFound(memory_type, memory_id)
        happened = await events.of_memory(tx, caller, memory_type, memory_id, MOST_HISTORY)
        is_fact = memory_type is MemoryType.FACT
        before, after = await facts.supersession_chain(tx, caller, memory_id, MOST_HISTORY) if is_fact else ([], [])
    return {
        "id": memory_id,
        "memory_type": memory_type.value,
        "events": [dict(event) for event in happened],
        "superseded": [dict(fact) for fact in before],
        "superseded_by": [dict(fact) for fact in after],
    }
