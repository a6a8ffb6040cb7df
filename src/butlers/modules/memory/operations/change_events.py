"""Events of changes: each holds the values it set and those before, and the words of both go to the edit history."""

from collections.abc import Mapping
from typing import Any

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.record_state import difference
from butlers.modules.memory.store import edit_history, events, states
from butlers.modules.memory.store.events import Event
from butlers.modules.memory.store.states import States

_ALWAYS_TOLD = ("confidence",)
"""Fields that an event holds even where it did not change them: the curve of a memory is drawn from its events."""


async def append_changes(
    tx: Connection,
    caller: Caller,
    event_type: str,
    record_type: str,
    before: States,
    payload: Mapping[str, Any] | None = None,
    *,
    always: bool = False,
) -> States:
    """Append an event for each record that differs from its state before; return the states after.

    With `always`, a record without a difference has an event too.
    """
    after = await states.fetch(tx, caller, record_type, before)
    appended, words = [], {}
    for record_id, state in after.items():
        changed = difference(before[record_id], state)
        if not changed.after and not always:
            continue
        told = {name: state[name] for name in _ALWAYS_TOLD if name in state}
        appended.append(Event(event_type, record_type, record_id, {**(payload or {}), **told, **changed.payload}))
        if changed.words.after:
            words[record_id] = changed.words
    if words:
        await edit_history.remember(tx, caller, record_type, words)
    if appended:
        await events.append(tx, caller, *appended)
    return after
