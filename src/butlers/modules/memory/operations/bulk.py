"""Acts on many memories at once: confirm, forget, restore or tag, in one transaction."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from butlers.caller import Caller
from butlers.db import WRITE_TIMEOUT_SECONDS, Connection
from butlers.errors import Conflict, InvalidInput, NotFound
from butlers.modules.memory.domain.model import MemoryEdit, MemoryType
from butlers.modules.memory.domain.record_state import State
from butlers.modules.memory.operations.change_events import append_changes
from butlers.modules.memory.operations.idempotency import Answer, Request, find_answer, run_once
from butlers.modules.memory.operations.undo import BATCH, MAX_EVENTS
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import facts, memories, states
from butlers.modules.memory.store.states import States

MAX_MEMORIES = MAX_EVENTS
"""No more than can be undone together."""
_EVENTS = {"confirm": "confirmed", "forget": "forgotten", "restore": "restored", "tag": "edited"}


class TooManySelected(InvalidInput):
    """More memories are selected than one act may change."""

    hint = "Narrow the filter, for example by a subject, a scope or a tag, and act on one part after the other."

    def __init__(self) -> None:
        super().__init__(
            f"one act changes {MAX_MEMORIES:,} memories at most, so that it can be undone, and more are selected"
        )


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
        await states.lock_rows(tx, caller, memory_type, distinct)
        found = changed = 0
        # One transaction: the act is done whole or not at all. In batches, so that no other call waits for it.
        for start in range(0, len(distinct), BATCH):
            before = await states.fetch(tx, caller, memory_type, distinct[start : start + BATCH])
            touched = await _perform(tx, caller, memory_type, before, act, tags)
            await append_changes(
                tx, caller, f"{memory_type}_{_EVENTS[act]}", memory_type, touched, always=act == "confirm"
            )
            found, changed = found + len(before), changed + len(touched)
        if not found:
            raise NotFound(f"there is no such {memory_type}", hint="Reload the list and select rows again.")
        if not changed:
            raise Conflict(
                "nothing was changed", hint="None of the selected memories is in a state to be changed so."
            )
        return {"act": act, "changed": changed, "left_alone": len(distinct) - changed}

    transaction = memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS)
    return await run_once(transaction, caller, request, work)


def _check(memory_type: MemoryType, ids: Sequence[UUID], act: str, tags: Sequence[str]) -> None:
    if act not in _EVENTS:
        raise InvalidInput(f"{act[:50]} is no act on a list", hint=f"Choose one of {', '.join(_EVENTS)}.")
    if not ids:
        raise InvalidInput("nothing is selected", hint="Select rows, then choose what to do with them.")
    if len(ids) > MAX_MEMORIES:
        raise TooManySelected
    if memory_type is MemoryType.EPISODE and act in {"confirm", "tag"}:
        raise InvalidInput("episodes can only be forgotten or restored", hint="Choose forget or restore.")
    if act == "tag" and not tags:
        raise InvalidInput("no tag is given", hint="Name one tag or several.")


async def _perform(
    tx: Connection, caller: Caller, memory_type: MemoryType, before: States, act: str, tags: Sequence[str]
) -> States:
    """Carry out the act and return the states before of those that it changed."""
    ids = list(before)
    changed: Iterable[UUID]
    if act == "confirm":
        changed = await memories.confirm_many(tx, caller, memory_type, ids)
    elif act == "forget":
        changed = await memories.forget(tx, caller, memory_type, ids)
    elif act == "restore":
        changed = await memories.restore_many(tx, caller, memory_type, ids)
    else:
        changed = await _add_tags(tx, caller, memory_type, before, tags)
    return {each: before[each] for each in changed}


async def _add_tags(
    tx: Connection, caller: Caller, memory_type: MemoryType, before: States, tags: Sequence[str]
) -> list[UUID]:
    tagged = {each: _with_tags(state, tags) for each, state in before.items() if _is_live(state)}
    changed = {each: state for each, state in tagged.items() if state["tags"] != before[each]["tags"]}
    await states.write(tx, caller, memory_type, changed)
    return list(changed)


def _is_live(state: State) -> bool:
    return state.get("validity", "active") == "active" and not state.get("forgotten", False)


def _with_tags(state: State, tags: Sequence[str]) -> State:
    """Return a state with these tags added. Raises `InvalidInput` if they are too many or too long."""
    edit = MemoryEdit(tags=tuple(dict.fromkeys([*state["tags"], *tags])))
    return {**state, "tags": list(edit.tags or ())}
