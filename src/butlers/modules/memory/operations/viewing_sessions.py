"""Reading of sessions, what they knew, did and left behind, and of their tokens. Nothing changes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.errors import NotFound
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.operations.paging import (
    MAX_SCANNED,
    PAGE_ROWS,
    ListPage,
    Position,
    Start,
    fetch_page,
)
from butlers.modules.memory.operations.viewing import Record
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import provenance, receipts, viewing_sessions

DAYS = 14
MAX_CHARACTERS = 20_000
MAX_RECEIPTS, MAX_EPISODES, MAX_SESSIONS = 50, 50, 20_000
_LISTED_CHARACTERS = 300

SessionKind = Literal["own", "agent", "internal"]


@dataclass(frozen=True, slots=True)
class TokenUse:
    """Tokens by day with the oldest first, by butler and by purpose; and the sessions that reported none."""

    days: int
    by_day: Sequence[int]
    by_butler: Mapping[str, int]
    by_purpose: Mapping[str, int]
    last_day: Mapping[str, int]
    """The tokens of the last 24 hours by purpose."""
    sessions: int
    unreported: int

    @property
    def total(self) -> int:
        """The tokens of all days."""
        return sum(self.by_day)


@dataclass(frozen=True, slots=True)
class SessionDetails:
    """A session, what it was told, what it stored, its episodes and what was learned from them."""

    id: UUID
    record: Record | None
    """Its record; None for a session of a connected agent."""
    receipts: Sequence[Record]
    memories: Mapping[UUID, Record]
    """The memories that the receipts name, as far as they are there."""
    episodes: Sequence[Record]
    stored: Sequence[Record]
    learned: Sequence[Record] = field(default_factory=list)


async def list_sessions(
    memory: Memory, caller: Caller, start: Start, *, kind: SessionKind | None = None, butler: str | None = None
) -> ListPage:
    """Return a page of sessions, newest first."""
    async with memory.transaction(caller) as tx:

        async def fetch(at: Start) -> Sequence[Record]:
            return await viewing_sessions.sessions(
                tx,
                caller,
                butler=butler,
                kind=kind,
                from_time=at.time,
                from_id=at.id,
                is_backward=at.is_backward,
                max_scanned=MAX_SCANNED,
                max_characters=_LISTED_CHARACTERS,
                max_rows=PAGE_ROWS + 1,
            )

        return await fetch_page(start, fetch, lambda row: Position(row["started_at"], row["id"]))


async def session_details(memory: Memory, caller: Caller, session_id: UUID) -> SessionDetails:
    """Return everything about a session. Raises `NotFound` if nothing is known of it."""
    async with memory.transaction(caller) as tx:
        record = await viewing_sessions.session(tx, caller, session_id, MAX_CHARACTERS)
        told = await receipts.of_session(tx, caller, session_id, MAX_RECEIPTS)
        episodes = await viewing_sessions.episodes_of(tx, caller, session_id, _LISTED_CHARACTERS, MAX_EPISODES)
        if record is None and not told and not episodes:
            raise NotFound(f"there is no session {session_id}", hint="Ids come from the list of sessions.")
        stored = await provenance.stored_by_session(tx, session_id)
        derived = await provenance.derived_from(tx, caller, [each["id"] for each in episodes])
        lines = [(MemoryType(line["memory_type"]), line["memory_id"]) for each in told for line in each["lines"]]
        known = await _preview(tx, caller, lines)
        return SessionDetails(
            session_id,
            record,
            told,
            known,
            episodes,
            list((await _preview(tx, caller, stored)).values()),
            list((await _preview(tx, caller, [(each.memory_type, each.id) for each in derived])).values()),
        )


async def _preview(
    tx: Connection, caller: Caller, memories: Sequence[tuple[MemoryType, UUID]]
) -> dict[UUID, dict[str, Any]]:
    found: dict[UUID, dict[str, Any]] = {}
    for kind in MemoryType:
        if ids := {memory_id for memory_type, memory_id in memories if memory_type is kind}:
            found |= {each["id"]: each for each in await provenance.preview(tx, caller, kind, list(ids))}
    return found


async def get_token_use(memory: Memory, caller: Caller, days: int = DAYS) -> TokenUse:
    """Return the tokens of the tenant's sessions in the last days."""
    async with memory.transaction(caller) as tx:
        return await token_use_in(tx, caller, days)


async def token_use_in(tx: Connection, caller: Caller, days: int) -> TokenUse:
    """Return the tokens of the tenant's sessions in the last days, within a transaction."""
    since = datetime.now(UTC) - timedelta(days=days)
    rows = await viewing_sessions.token_use(tx, caller, since, MAX_SESSIONS)
    by_day, by_butler, by_purpose, last_day = Counter[int](), Counter[str](), Counter[str](), Counter[str]()
    for row in rows:
        by_day[row["days_ago"]] += row["tokens"]
        by_butler[row["butler"]] += row["tokens"]
        by_purpose[row["purpose"]] += row["tokens"]
        if row["days_ago"] == 0:
            last_day[row["purpose"]] += row["tokens"]
    return TokenUse(
        days,
        [by_day[each] for each in range(days - 1, -1, -1)],
        dict(by_butler.most_common()),
        dict(by_purpose.most_common()),
        dict(last_day.most_common()),
        sum(row["sessions"] for row in rows),
        sum(row["unreported"] for row in rows),
    )
