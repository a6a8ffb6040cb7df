"""Queries of consolidation: pending episodes, leases, and the record of each batch."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection, Database
from butlers.modules.memory.domain.consolidation_prompt import (
    MAX_KNOWN_CHARACTERS,
    KnownFact,
    KnownRule,
    PromptEpisode,
)
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.store.statements import statements

_sql = statements("consolidation")
Known = TypeVar("Known", KnownFact, KnownRule)


@dataclass(frozen=True, slots=True)
class EpisodeGroup:
    """The pending episodes of one butler in one tenant."""

    tenant: str
    butler: str
    pending: int
    retries: int
    oldest: datetime


@dataclass(frozen=True, slots=True)
class EpisodeBatch:
    """Episodes that one worker has leased; only the holder of the token writes their result."""

    run_id: UUID
    token: UUID
    butler: str
    episodes: Sequence[PromptEpisode]

    @property
    def ids(self) -> list[UUID]:
        """The ids of the episodes."""
        return [episode.id for episode in self.episodes]


@dataclass(frozen=True, slots=True)
class LeasedEpisode:
    """An episode of a batch when its result is written."""

    id: UUID
    is_leased: bool
    is_forgotten: bool
    is_deleted: bool = False
    """Whether it expired and was deleted since; only a proposal outlives its episodes."""


@dataclass(frozen=True, slots=True)
class FailedEpisode:
    """An episode after a failed attempt."""

    id: UUID
    status: str
    attempts: int


@dataclass(slots=True)
class RunRecord:
    """The record of a batch."""

    status: str = "succeeded"
    session_id: UUID | None = None
    episodes: int = 0
    facts_created: int = 0
    facts_updated: int = 0
    rules_created: int = 0
    confirmed: int = 0
    proposed: int = 0
    known_left_out: int = 0
    errors: list[str] = field(default_factory=list)
    parse_errors: list[str] = field(default_factory=list)
    input_tokens: int = 0
    output_tokens: int = 0
    tokens_estimated: bool = False
    error: str | None = None

    def reset_counts(self) -> None:
        """Reset the counts and errors after a rollback."""
        self.facts_created = self.facts_updated = self.rules_created = self.confirmed = self.proposed = 0
        self.errors = []

    def fail(self, status: str, error: str) -> None:
        """Record that the batch had no effect; the errors of its actions stay."""
        errors = self.errors
        self.reset_counts()
        self.status, self.error, self.errors = status, error, errors


async def groups_of_all_tenants(database: Database, limit: int) -> list[EpisodeGroup]:
    """The groups with pending episodes in all tenants."""
    return [EpisodeGroup(**row) for row in await database.fetch_across_tenants(_sql.groups_of_all_tenants.sql, limit)]


async def groups(tx: Connection, caller: Caller, limit: int) -> list[EpisodeGroup]:
    """The groups with pending episodes in the caller's tenant."""
    return [EpisodeGroup(**row) async for row in _sql.groups(tx, tenant_id=caller.tenant, max_rows=limit)]


async def lock_group_if_free(tx: Connection, caller: Caller, butler: str) -> bool:
    """Lock the group; return whether no worker has it and no retry of it is due later."""
    await _sql.lock_group(tx, tenant_id=caller.tenant, butler=butler)
    return not await _sql.is_taken(tx, tenant_id=caller.tenant, butler=butler)


async def attempts(tx: Connection, caller: Caller, butler: str) -> int:
    """The failed attempts of the group's first pending episode."""
    rows = _sql.claimable_episodes(tx, tenant_id=caller.tenant, butler=butler, max_rows=1, max_characters=0)
    return max([row["consolidation_attempts"] async for row in rows], default=0)


async def claimable_episodes(
    tx: Connection, caller: Caller, butler: str, limit: int, max_characters: int
) -> list[PromptEpisode]:
    """The next episodes of a group, without a lease, contents cut after so many characters."""
    rows = _sql.claimable_episodes(
        tx, tenant_id=caller.tenant, butler=butler, max_rows=limit, max_characters=max_characters
    )
    return [PromptEpisode(row["id"], row["content"], row["happened_at"], row["importance"]) async for row in rows]


async def claim(
    tx: Connection, caller: Caller, batch: EpisodeBatch, *, lease_seconds: float, limit: int, max_characters: int
) -> list[PromptEpisode]:
    """Lease the next episodes of a group to the batch; their contents are cut after so many characters."""
    rows = _sql.claim(
        tx,
        tenant_id=caller.tenant,
        butler=batch.butler,
        token=batch.token,
        lease_seconds=lease_seconds,
        max_rows=limit,
        max_characters=max_characters,
    )
    return [PromptEpisode(**row) async for row in rows]


async def renew_lease(tx: Connection, caller: Caller, token: UUID, lease_seconds: float) -> bool:
    """Extend a lease; False when no episode is under it any more."""
    rows = _sql.renew_lease(tx, tenant_id=caller.tenant, token=token, lease_seconds=lease_seconds)
    return bool([row async for row in rows])


async def release_lease(tx: Connection, caller: Caller, token: UUID, ids: Sequence[UUID] | None = None) -> None:
    """Give episodes back unchanged: these, or all of the lease."""
    await _sql.release_lease(tx, tenant_id=caller.tenant, token=token, ids=ids)


async def lock_batch(tx: Connection, caller: Caller, batch: EpisodeBatch) -> list[LeasedEpisode]:
    """Lock the episodes of a batch that still exist."""
    rows = _sql.lock_batch(tx, tenant_id=caller.tenant, ids=batch.ids, token=batch.token)
    return [LeasedEpisode(**row) async for row in rows]


async def lock_targets(tx: Connection, caller: Caller, ids: Sequence[UUID]) -> None:
    """Lock the facts and rules that a batch changes, in one order for all workers: no two deadlock."""
    for statement in (_sql.lock_facts, _sql.lock_rules):
        async for _ in statement(tx, tenant_id=caller.tenant, ids=list(ids)):
            pass


async def mark_consolidated(tx: Connection, caller: Caller, token: UUID, ids: Sequence[UUID]) -> list[UUID]:
    """Mark these episodes of a lease as consolidated; returns their ids."""
    rows = _sql.mark_consolidated(tx, tenant_id=caller.tenant, token=token, ids=list(ids))
    return [row["id"] async for row in rows]


async def record_failure(
    tx: Connection, caller: Caller, token: UUID, error: str, max_attempts: int
) -> list[FailedEpisode]:
    """Count a failed attempt at the episodes of a lease."""
    rows = _sql.record_failure(tx, tenant_id=caller.tenant, token=token, error=error, max_attempts=max_attempts)
    return [FailedEpisode(**row) async for row in rows]


async def dead_letters(tx: Connection, caller: Caller, limit: int) -> tuple[list[dict[str, Any]], int]:
    """The first episodes that failed their last attempt, and the number of all."""
    rows = [dict(row) async for row in _sql.dead_letters(tx, tenant_id=caller.tenant, max_rows=limit)]
    totals = [row.pop("total") for row in rows]
    return rows, max(totals, default=0)


async def requeue(tx: Connection, caller: Caller, ids: Sequence[UUID] | None, days: int) -> list[UUID]:
    """Make dead letters pending again, these or all of them; returns their ids."""
    return [row["id"] async for row in _sql.requeue(tx, tenant_id=caller.tenant, ids=ids, days=days)]


async def begin_run(tx: Connection, caller: Caller, batch: EpisodeBatch, episodes: int) -> None:
    """Record a batch before a model is asked; unfinished runs of the group are marked as lost."""
    await _sql.mark_lost_runs(tx, tenant_id=caller.tenant, butler=batch.butler)
    await _sql.begin_run(
        tx, tenant_id=caller.tenant, id=batch.run_id, butler=batch.butler, token=batch.token, episodes=episodes
    )


async def book_prompt(tx: Connection, caller: Caller, run_id: UUID, tokens: int) -> None:
    """Count the estimated tokens of a prompt whose session starts."""
    await _sql.book_prompt(tx, tenant_id=caller.tenant, id=run_id, input_tokens=tokens)


async def finish_run(tx: Connection, caller: Caller, run_id: UUID, record: RunRecord) -> None:
    """Record the result of a batch."""
    await _sql.finish_run(tx, tenant_id=caller.tenant, id=run_id, **asdict(record))


async def tokens_last_day(tx: Connection, caller: Caller) -> int:
    """The tokens of the tenant's batches in the last day."""
    return int(await _sql.tokens_last_day(tx, tenant_id=caller.tenant))


async def latest_run(tx: Connection, caller: Caller) -> dict[str, Any] | None:
    """The tenant's latest finished batch."""
    row = await _sql.latest_run(tx, tenant_id=caller.tenant)
    return dict(row) if row else None


async def nearest(
    tx: Connection,
    caller: Caller,
    known: type[Known],
    episode_ids: Sequence[UUID],
    version: UUID,
    scopes: Sequence[str],
    limit: int,
    *,
    uses_graph: bool,
) -> list[Known]:
    """The live facts or rules nearest to any of these episodes, by the HNSW index or exact."""
    rows = _sql.nearest_to_episodes(
        tx,
        tenant_id=caller.tenant,
        memory_type=MemoryType.FACT if known is KnownFact else MemoryType.RULE,
        episode_ids=list(episode_ids),
        version=version,
        scopes=list(scopes),
        uses_graph=uses_graph,
        max_rows=limit,
        max_characters=MAX_KNOWN_CHARACTERS + 1,
    )
    names = [each.name for each in fields(known)]
    return [known(**{name: row[name] for name in names}) async for row in rows]
