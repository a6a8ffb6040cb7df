"""Queries on the state of records: what an act may change of a fact, rule, episode or entity, as one JSON object."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.record_state import State
from butlers.modules.memory.store.statements import statements

_sql = statements("states")
_STATES = {kind: getattr(_sql, f"{kind}_states") for kind in ("fact", "rule", "episode", "entity")}
_WRITE = {
    "fact": _sql.write_facts,
    "rule": _sql.write_rules,
    "episode": _sql.write_episodes,
    "entity": _sql.write_entities,
}
_LOCK = {
    "fact": _sql.lock_facts,
    "rule": _sql.lock_rules,
    "episode": _sql.lock_episodes,
    "entity": _sql.lock_entities,
}

_TIMES = ("last_confirmed_at", "last_applied_at", "last_evaluated_at", "updated_at", "expires_at")

States = Mapping[UUID, State]


def _with_iso_times(state: State) -> State:
    """The state with its times as every answer has them; the server leaves out zeros at the end."""
    times = {name: datetime.fromisoformat(state[name]).isoformat() for name in _TIMES if state.get(name)}
    return {**state, **times}


async def fetch(tx: Connection, caller: Caller, record_type: str, ids: Iterable[UUID]) -> dict[UUID, State]:
    """The states of the records that exist, by id."""
    rows = _STATES[record_type](tx, tenant_id=caller.tenant, ids=list(ids))
    return {row["id"]: _with_iso_times(row["state"]) async for row in rows}


async def lock(tx: Connection, caller: Caller, record_type: str, ids: Iterable[UUID]) -> dict[UUID, State]:
    """Lock records and return their states; a second statement, because a locked row may have just changed."""
    locked = list(ids)
    await lock_rows(tx, caller, record_type, locked)
    return await fetch(tx, caller, record_type, locked)


async def lock_rows(tx: Connection, caller: Caller, record_type: str, ids: Iterable[UUID]) -> None:
    """Lock records until the transaction ends."""
    await _LOCK[record_type](tx, tenant_id=caller.tenant, ids=list(ids))


async def write(tx: Connection, caller: Caller, record_type: str, changed: States) -> None:
    """Write the states of records."""
    rows = [dict[str, Any](state) | {"id": str(record_id)} for record_id, state in changed.items()]
    await _WRITE[record_type](tx, tenant_id=caller.tenant, states=rows)
