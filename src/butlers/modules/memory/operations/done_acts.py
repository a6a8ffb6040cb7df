"""Description of what one call did, for the line that says so and offers to undo it."""

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from butlers.caller import Caller
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.operations import undo
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import entities, events, memories
from butlers.modules.memory.store.events import EventKind

_LABEL_CHARACTERS = 200
_RESTORED = "fact_restored"


@dataclass(frozen=True, slots=True)
class DoneAct:
    """A call by its most frequent event: how many of it, what it was about, and whether it can be undone."""

    request_id: str
    event_type: str
    number: int
    label: str
    record_type: str
    record_id: UUID | None
    can_undo: bool
    is_undone: bool
    reason_against_undo: str = ""
    """Why no act of this kind can be undone; empty if it can."""
    brought_back: int = 0
    """How many superseded facts are active again because the call took back what replaced them."""


async def describe_done(memory: Memory, caller: Caller, request_id: str) -> DoneAct | None:
    """Return what a call did; None if it changed nothing."""
    async with memory.transaction(caller) as tx:
        kinds = {each.event_type: each for each in await events.kinds_of_request(tx, caller, request_id)}
        if not kinds:
            return None
        main = _main_kind(kinds.values())
        record_type, record_id = main.entity_type, main.entity_id
        if record_id is None:
            label = ""
        elif record_type == "entity":
            label = str((await entities.get(tx, caller, record_id))["canonical_name"])
        elif record_type in set(MemoryType):
            row = (await memories.fetch_many(tx, caller, [record_id], _LABEL_CHARACTERS)).get(record_id)
            label = _label(row) if row else ""
        else:
            label = ""
        is_undone = await events.is_undone(tx, caller, request_id)
    can_undo = not is_undone and await undo.can_undo(memory, caller, request_id)
    brought_back = kinds[_RESTORED].number if _RESTORED in kinds and main.event_type != _RESTORED else 0
    return DoneAct(
        request_id,
        main.event_type,
        main.number,
        label,
        record_type,
        record_id,
        can_undo=can_undo,
        is_undone=is_undone,
        reason_against_undo=undo.reason_against(main.event_type),
        brought_back=brought_back,
    )


def _main_kind(kinds: Iterable[EventKind]) -> EventKind:
    """Return the most frequent event; a fact that replaced another, or gave way to it again, is not named by that."""
    return max(
        kinds,
        key=lambda each: (each.number, not each.event_type.endswith(("_created", "_restored")), each.event_type),
    )


def _label(row: memories.Record) -> str:
    if row["memory_type"] == MemoryType.FACT:
        return f"{row['subject']} · {row['predicate']}"
    return str(row["content"])
