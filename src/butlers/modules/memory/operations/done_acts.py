"""Description of what one call did, for the line that says so and offers to undo it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from butlers.caller import Caller
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.operations import undo
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import entities, events, memories

_LABEL_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class DoneAct:
    """A call by its most frequent event: how many of it, what it was about, and whether it can be undone."""

    request_id: str
    event_type: str
    number: int
    label: str
    record_type: str
    record_id: UUID
    can_undo: bool
    is_undone: bool
    brought_back: int = 0
    """How many superseded facts are active again because the call took back what replaced them."""


async def describe_done(memory: Memory, caller: Caller, request_id: str) -> DoneAct | None:
    """Return what a call did; None if it changed nothing."""
    async with memory.transaction(caller) as tx:
        found = await events.of_request(tx, caller, request_id, undo.MAX_EVENTS)
        if not found:
            return None
        event_type, number = _main_event(each.event_type for each in found)
        brought_back = sum(each.event_type == "fact_restored" != event_type for each in found)
        # The events of a call are latest first; the first of its type names it.
        event = next(each for each in reversed(found) if each.event_type == event_type)
        record_type, record_id = event.record
        if record_type == "entity":
            label = str((await entities.get(tx, caller, record_id))["canonical_name"])
        elif record_type in set(MemoryType):
            row = (await memories.fetch_many(tx, caller, [record_id], _LABEL_CHARACTERS)).get(record_id)
            label = _label(row) if row else ""
        else:
            label = ""
        is_undone = await events.is_undone(tx, caller, request_id)
    can_undo = not is_undone and await undo.preview_undo(memory, caller, request_id) is not None
    return DoneAct(request_id, event_type, number, label, record_type, record_id, can_undo, is_undone, brought_back)


def _main_event(event_types: Iterable[str]) -> tuple[str, int]:
    """Return the most frequent event; a fact that replaced another, or gave way to it again, is not named by that."""
    numbers = Counter(event_types)
    main = max(numbers, key=lambda each: (numbers[each], not each.endswith(("_created", "_restored")), each))
    return main, numbers[main]


def _label(row: memories.Record) -> str:
    if row["memory_type"] == MemoryType.FACT:
        return f"{row['subject']} · {row['predicate']}"
    return str(row["content"])
