"""Reading of the state of a tenant's memory: counts, things to attend to and what is new. Nothing changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from butlers.caller import Caller
from butlers.modules.memory.operations import looking
from butlers.modules.memory.operations.viewing import Record
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import consolidation, review, viewing_overview

MAX_COUNTED = 2_000
MAX_WAITING = 100
"""Memories of each kind that wait for a judgement are counted up to this."""
DAYS = 14
_MAX_EVENTS, _MAX_BY_DAY, _MAX_OLDEST = 200, 10_000, 500
_SOON = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class TokenUse:
    """Tokens of consolidation: in the last 24 hours, by day with the oldest first, and the daily limit."""

    last_day: int
    by_day: Sequence[int]
    limit: int


@dataclass(frozen=True, slots=True)
class Overview:
    """The state of a tenant's memory."""

    is_empty: bool
    bands: Record
    rules: Record
    backlog: Record
    tokens: TokenUse
    vital_fading: Sequence[Record]
    harmful_rules: Sequence[Record]
    unseen_distilled: int
    facts_by_day: Sequence[int]
    rules_by_day: Sequence[int]
    events: Sequence[Record]


@dataclass(frozen=True, slots=True)
class MemoryHealth:
    """The backlog, the token use and the vectors of a tenant."""

    backlog: Record
    tokens: TokenUse
    model: str
    stale_vectors: int


async def get_overview(memory: Memory, caller: Caller) -> Overview:
    """Return the state of the tenant's memory; large numbers are counted up to `MAX_COUNTED`."""
    now = datetime.now(UTC)
    since = now - timedelta(days=DAYS)
    async with memory.transaction(caller) as tx:
        by_day = {
            each: await viewing_overview.created_by_day(tx, caller, each, since, _MAX_BY_DAY)
            for each in ("fact_created", "rule_created")
        }
        return Overview(
            is_empty=not await viewing_overview.has_memories(tx, caller),
            bands=await viewing_overview.confidence_bands(tx, caller, MAX_COUNTED + 1),
            rules=await viewing_overview.rules_by_maturity(tx, caller, MAX_COUNTED + 1),
            backlog=await viewing_overview.backlog(tx, caller, MAX_COUNTED + 1),
            tokens=TokenUse(
                await consolidation.tokens_last_day(tx, caller), [], memory.config.consolidation.daily_token_limit
            ),
            vital_fading=await viewing_overview.vital_fading(
                tx,
                caller,
                fading_below=memory.config.confidence.fading_below,
                until=now + _SOON,
                max_oldest=_MAX_OLDEST,
                max_rows=MAX_WAITING,
            ),
            harmful_rules=await viewing_overview.harms(tx, caller, await review.harmful(tx, caller, MAX_WAITING)),
            unseen_distilled=len(await looking.list_unlooked(tx, caller, limit=MAX_WAITING)),
            facts_by_day=_oldest_first(by_day["fact_created"]),
            rules_by_day=_oldest_first(by_day["rule_created"]),
            events=await viewing_overview.latest_events(tx, caller, now - timedelta(days=1), _MAX_EVENTS),
        )


async def get_health(memory: Memory, caller: Caller) -> MemoryHealth:
    """Return the backlog, the token use and the vectors of the tenant."""
    version = memory.embedder.version
    since = datetime.now(UTC) - timedelta(days=DAYS)
    async with memory.transaction(caller) as tx:
        by_day = await viewing_overview.tokens_by_day(tx, caller, since, _MAX_BY_DAY)
        return MemoryHealth(
            backlog=await viewing_overview.backlog(tx, caller, MAX_COUNTED + 1),
            tokens=TokenUse(
                await consolidation.tokens_last_day(tx, caller),
                _oldest_first(by_day),
                memory.config.consolidation.daily_token_limit,
            ),
            model=f"{version.model} {version.version}",
            stale_vectors=await viewing_overview.stale_vectors(tx, caller, version.id, MAX_COUNTED + 1),
        )


def _oldest_first(by_days_ago: Mapping[int, int]) -> list[int]:
    return [by_days_ago.get(days, 0) for days in range(DAYS - 1, -1, -1)]
