"""Acts on many memories at once: confirm, forget, restore or tag, in one transaction."""

from collections.abc import Sequence
from uuid import UUID

import asyncpg

from butlers.caller import Caller
from butlers.db import WRITE_TIMEOUT_SECONDS, Connection
from butlers.errors import Conflict, InvalidInput, NotFound
from butlers.modules.memory.domain.model import MemoryEdit, MemoryType
from butlers.modules.memory.operations.change_events import append_changes
from butlers.modules.memory.operations.idempotency import Answer, Request, find_answer, run_once
from butlers.modules.memory.operations.undo import MAX_EVENTS
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import facts, memories, rules, states

MAX_MEMORIES = MAX_EVENTS
"""No more than can be undone together."""
_EVENTS = {"confirm": "confirmed", "forget": "forgotten", "restore": "restored", "tag": "edited"}


async def act_on_many(
    memory: Memory,
    caller: Caller,
    memory_type: MemoryType,
    ids: Sequence[UUID],
    act: str,
    tags: Sequence[str],
    request: Request,
) -> Answer:
    """Carry out one act on many memories; those whose state does not allow it are left as they are.

    Raises `NotFound` if none of them exists, and `Conflict` if none of them changes. A second submit may select other
    memories than the first, whose act changed what matches: it gets the first answer, whatever it selects.
    """
    stored = await find_answer(memory, caller, request)
    if stored is not None:
        return stored
    _check(memory_type, ids, act, tags)
    distinct = sorted(set(ids))

    async def work(tx: Connection) -> Answer:
        if memory_type is MemoryType.FACT:
            await facts.lock_keys_of_facts(tx, caller, distinct)
        before = await states.lock(tx, caller, memory_type, distinct)
        if not before:
            raise NotFound(f"there is no such {memory_type}", hint="Reload the list and select rows again.")
        changed = await _perform(tx, caller, memory_type, distinct, act, tags)
        if not changed:
            raise Conflict(
                "nothing was changed", hint="None of the selected memories is in a state to be changed so."
            )
        touched = {each: before[each] for each in changed}
        await append_changes(
            tx, caller, f"{memory_type}_{_EVENTS[act]}", memory_type, touched, always=act == "confirm"
        )
        return {"act": act, "changed": len(changed), "left_alone": len(distinct) - len(changed)}

    transaction = memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS)
    return await run_once(transaction, caller, request, work)


def _check(memory_type: MemoryType, ids: Sequence[UUID], act: str, tags: Sequence[str]) -> None:
    if act not in _EVENTS:
        raise InvalidInput(f"{act[:50]} is no act on a list", hint=f"Choose one of {', '.join(_EVENTS)}.")
    if not ids:
        raise InvalidInput("nothing is selected", hint="Select rows, then choose what to do with them.")
    if len(ids) > MAX_MEMORIES:
        raise InvalidInput(f"{len(ids)} are too many", hint=f"Select {MAX_MEMORIES} at most.")
    if memory_type is MemoryType.EPISODE and act in {"confirm", "tag"}:
        raise InvalidInput("episodes can only be forgotten or restored", hint="Choose forget or restore.")
    if act == "tag" and not tags:
        raise InvalidInput("no tag is given", hint="Name one tag or several.")


async def _perform(
    tx: Connection, caller: Caller, memory_type: MemoryType, ids: Sequence[UUID], act: str, tags: Sequence[str]
) -> list[UUID]:
    """Carry out the act and return the ids that it changed."""
    if act == "confirm":
        return sorted(await memories.confirm_many(tx, caller, memory_type, ids))
    if act == "forget":
        return sorted(await memories.forget(tx, caller, memory_type, ids))
    if act == "restore":
        return [each for each in ids if await _try_restore(tx, caller, memory_type, each)]
    return await _add_tags(tx, caller, memory_type, ids, tags)


async def _try_restore(tx: Connection, caller: Caller, memory_type: MemoryType, memory_id: UUID) -> bool:
    """Restore a memory in a savepoint; return False if it is not forgotten or another fact has its key."""
    try:
        async with tx.transaction():
            return await memories.restore(tx, caller, memory_type, memory_id) is not None
    except asyncpg.UniqueViolationError:
        return False


async def _add_tags(
    tx: Connection, caller: Caller, memory_type: MemoryType, ids: Sequence[UUID], tags: Sequence[str]
) -> list[UUID]:
    table = facts if memory_type is MemoryType.FACT else rules
    found = await states.fetch(tx, caller, memory_type, ids)
    changed = []
    for memory_id, state in found.items():
        combined = tuple(dict.fromkeys([*state["tags"], *tags]))
        change = MemoryEdit(tags=combined)
        if list(combined) != state["tags"] and await table.edit(tx, caller, memory_id, change):
            changed.append(memory_id)
    return changed
