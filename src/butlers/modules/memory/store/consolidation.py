"""What waits to be consolidated, who has it, and the record of each batch."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection, Database
from butlers.modules.memory.domain.consolidation_prompt import KnownFact, KnownRule, PromptEpisode
from butlers.modules.memory.store.statements import statements

_sql = statements("consolidation")


@dataclass(frozen=True, slots=True)
class EpisodeGroup:
    """One tenant's waiting episodes of one butler."""

    tenant: str
    butler: str
    waiting: int
    retries: int
    oldest: datetime


@dataclass(frozen=True, slots=True)
class EpisodeBatch:
    """Episodes one worker has taken, under a lease that only it can use."""

    run_id: UUID
    token: UUID
    butler: str
    episodes: Sequence[PromptEpisode]

    @property
    def ids(self) -> list[UUID]:
        """The ids of its episodes."""
        return [episode.id for episode in self.episodes]


@dataclass(frozen=True, slots=True)
class LeasedEpisode:
    """An episode of a batch, as it is when the batch is finished."""

    id: UUID
    ours: bool
    forgotten: bool


@dataclass(frozen=True, slots=True)
class FailedEpisode:
    """An episode after an attempt that came to nothing."""

    id: UUID
    status: str
    attempts: int


@dataclass(slots=True)
class RunRecord:
    """What is written down of a batch when it has ended."""

    status: str = "succeeded"
    session_id: UUID | None = None
    episodes: int = 0
    facts_created: int = 0
    facts_updated: int = 0
    rules_created: int = 0
    confirmed: int = 0
    errors: list[str] = field(default_factory=list)
    parse_errors: list[str] = field(default_factory=list)
    input_tokens: int = 0
    output_tokens: int = 0
    tokens_estimated: bool = False
    error: str | None = None

    def begin_again(self) -> None:
        """Nothing has been applied, or all of it was taken back."""
        self.facts_created = self.facts_updated = self.rules_created = self.confirmed = 0
        self.errors = []

    def come_to_nothing(self, status: str, error: str) -> None:
        """The batch ended without an effect; what was wrong with its parts stays on record."""
        said = self.errors
        self.begin_again()
        self.status, self.error, self.errors = status, error, said


async def groups_of_all_tenants(database: Database, most: int) -> list[EpisodeGroup]:
    """Who has episodes that wait, in all tenants; their words stay where they are."""
    return [_group(row) for row in await database.fetch_across_tenants(_sql.groups_everywhere.sql, most)]


async def groups(tx: Connection, caller: Caller, most: int) -> list[EpisodeGroup]:
    """Whose episodes wait in the caller's tenant."""
    return [_group(row) async for row in _sql.groups(tx, tenant_id=caller.tenant, most=most)]


def _group(row: Any) -> EpisodeGroup:
    return EpisodeGroup(row["tenant_id"], row["butler"], row["waiting"], row["retries"], row["oldest"])


async def is_free(tx: Connection, caller: Caller, butler: str) -> bool:
    """Whether no worker has the group; while the transaction lasts, no other can take it."""
    await _sql.lock_group(tx, tenant_id=caller.tenant, butler=butler)
    return not await _sql.is_taken(tx, tenant_id=caller.tenant, butler=butler)


async def attempts(tx: Connection, caller: Caller, butler: str) -> int:
    """How often the first of the waiting episodes was tried in vain."""
    return await _sql.attempts(tx, tenant_id=caller.tenant, butler=butler) or 0


async def pending_episodes(tx: Connection, caller: Caller, butler: str, most: int) -> list[PromptEpisode]:
    """The next episodes of a group, left where they are."""
    rows = _sql.waiting(tx, tenant_id=caller.tenant, butler=butler, most=most)
    return [_observation(row) async for row in rows]


async def claim(
    tx: Connection, caller: Caller, batch: EpisodeBatch, *, lease_seconds: float, most: int
) -> list[PromptEpisode]:
    """The next episodes of a group, now under the batch's lease."""
    rows = _sql.claim(
        tx, tenant_id=caller.tenant, butler=batch.butler, token=batch.token, lease_seconds=lease_seconds, most=most
    )
    return [_observation(row) async for row in rows]


def _observation(row: Any) -> PromptEpisode:
    return PromptEpisode(row["id"], row["content"], row["created_at"], row["importance"])


async def renew_lease(tx: Connection, caller: Caller, token: UUID, lease_seconds: float) -> bool:
    """Keep a lease for longer; False when nothing is under it any more."""
    rows = _sql.extend(tx, tenant_id=caller.tenant, token=token, lease_seconds=lease_seconds)
    return bool([row async for row in rows])


async def release_lease(tx: Connection, caller: Caller, token: UUID, ids: Sequence[UUID] | None = None) -> None:
    """Give episodes back untouched: these, or all of the lease."""
    await _sql.release(tx, tenant_id=caller.tenant, token=token, ids=ids)


async def lock_batch(tx: Connection, caller: Caller, batch: EpisodeBatch) -> list[LeasedEpisode]:
    """The episodes of a batch that are still there, nobody else's to change until the transaction ends."""
    rows = _sql.hold(tx, tenant_id=caller.tenant, ids=batch.ids, token=batch.token)
    return [LeasedEpisode(row["id"], row["ours"], row["forgotten"]) async for row in rows]


async def lock_targets(tx: Connection, caller: Caller, ids: Sequence[UUID]) -> None:
    """Hold what is to be changed or confirmed, in one order for all, so that no two wait in a circle."""
    for statement in (_sql.hold_facts, _sql.hold_rules):
        async for _ in statement(tx, tenant_id=caller.tenant, ids=list(ids)):
            pass


async def mark_consolidated(tx: Connection, caller: Caller, token: UUID, ids: Sequence[UUID]) -> list[UUID]:
    """These episodes of a lease are consolidated from now on."""
    return [row["id"] async for row in _sql.mark(tx, tenant_id=caller.tenant, token=token, ids=list(ids))]


async def record_failure(
    tx: Connection, caller: Caller, token: UUID, error: str, max_attempts: int
) -> list[FailedEpisode]:
    """Count one more attempt at the episodes of a lease."""
    rows = _sql.fail(tx, tenant_id=caller.tenant, token=token, error=error, max_attempts=max_attempts)
    return [FailedEpisode(row["id"], row["status"], row["attempts"]) async for row in rows]


async def dead_letters(tx: Connection, caller: Caller, most: int) -> list[dict[str, Any]]:
    """Episodes that were set aside after their last attempt."""
    return [dict(row) async for row in _sql.dead_letters(tx, tenant_id=caller.tenant, most=most)]


async def requeue(tx: Connection, caller: Caller, ids: Sequence[UUID] | None, days: int) -> list[UUID]:
    """Let episodes that were set aside wait again: these, or all of them."""
    return [row["id"] async for row in _sql.requeue(tx, tenant_id=caller.tenant, ids=ids, days=days)]


async def begin_run(tx: Connection, caller: Caller, batch: EpisodeBatch, episodes: int) -> None:
    """Note that a batch is about to be given to a model; earlier ones of the group that say nothing are lost."""
    await _sql.give_up_lost(tx, tenant_id=caller.tenant, butler=batch.butler)
    await _sql.begin_run(
        tx, tenant_id=caller.tenant, id=batch.run_id, butler=batch.butler, token=batch.token, episodes=episodes
    )


async def finish_run(tx: Connection, caller: Caller, run_id: UUID, record: RunRecord) -> None:
    """Note how a batch ended."""
    await _sql.end_run(
        tx,
        tenant_id=caller.tenant,
        id=run_id,
        status=record.status,
        session_id=record.session_id,
        episodes=record.episodes,
        facts_created=record.facts_created,
        facts_updated=record.facts_updated,
        rules_created=record.rules_created,
        confirmed=record.confirmed,
        errors=record.errors,
        parse_errors=record.parse_errors,
        input_tokens=record.input_tokens,
        output_tokens=record.output_tokens,
        tokens_estimated=record.tokens_estimated,
        error=record.error,
    )


async def tokens_last_day(tx: Connection, caller: Caller) -> int:
    """The tokens the tenant's batches took in the last day."""
    tokens: int = await _sql.spent(tx, tenant_id=caller.tenant)
    return tokens


async def latest_run(tx: Connection, caller: Caller) -> dict[str, Any] | None:
    """The tenant's latest batch that has ended."""
    row = await _sql.latest_run(tx, tenant_id=caller.tenant)
    return dict(row) if row else None


async def near_facts(
    tx: Connection, caller: Caller, episode_ids: Sequence[UUID], version: UUID, scopes: Sequence[str], most: int
) -> list[KnownFact]:
    """The live facts nearest to any of these episodes."""
    rows = _sql.near_facts(
        tx, tenant_id=caller.tenant, ids=list(episode_ids), version=version, scopes=list(scopes), most=most
    )
    return [KnownFact(**row) async for row in rows]


async def near_rules(
    tx: Connection, caller: Caller, episode_ids: Sequence[UUID], version: UUID, scopes: Sequence[str], most: int
) -> list[KnownRule]:
    """The live rules nearest to any of these episodes."""
    rows = _sql.near_rules(
        tx, tenant_id=caller.tenant, ids=list(episode_ids), version=version, scopes=list(scopes), most=most
    )
    return [KnownRule(**row) async for row in rows]
