"""Queries on the rules and rule_applications tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.maturity import TrackRecord
from butlers.modules.memory.domain.model import RULE_CONFIDENCE, Maturity, NewRule, Permanence
from butlers.modules.memory.domain.text import truncate_for_index
from butlers.modules.memory.store.embedding_versions import EmbeddedText
from butlers.modules.memory.store.facts import ConfirmationResult
from butlers.modules.memory.store.statements import statements

_sql = statements("rules")


async def insert(
    tx: Connection,
    caller: Caller,
    rule: NewRule,
    embedded: EmbeddedText,
    *,
    source_butler: str | None,
    source_episode_id: UUID | None = None,
    confidence: float = RULE_CONFIDENCE,
) -> UUID:
    """Store a candidate rule; returns its id."""
    rule_id: UUID = await _sql.insert(
        tx,
        tenant_id=caller.tenant,
        content=rule.content,
        searchable=truncate_for_index(rule.searchable),
        embedding=embedded.vector,
        embedding_version_id=embedded.version_id,
        scope=rule.scope,
        confidence=confidence,
        permanence=(rule.permanence or Permanence.STANDARD).value,
        decay_rate=rule.decay_rate,
        source_butler=source_butler,
        source_episode_id=source_episode_id,
        tags=list(rule.tags),
        metadata=rule.metadata,
    )
    return rule_id


@dataclass(frozen=True, slots=True)
class RuleWording:
    """The content of a rule, and the original content of an anti-pattern."""

    id: UUID
    content: str
    original: str | None = None
    awaits_inversion: bool = False


async def nearest(
    tx: Connection, caller: Caller, embedded: EmbeddedText, scopes: Sequence[str], limit: int
) -> list[RuleWording]:
    """The live rules in scope nearest to a vector."""
    rows = _sql.nearest(
        tx,
        tenant_id=caller.tenant,
        version=embedded.version_id,
        embedding=embedded.vector,
        scopes=list(scopes),
        max_rows=limit,
    )
    return [RuleWording(row["id"], row["content"], awaits_inversion=row["awaits_inversion"]) async for row in rows]


async def anti_patterns(tx: Connection, caller: Caller, scopes: Sequence[str]) -> list[RuleWording]:
    """The anti-patterns in scope, with their original content."""
    rows = _sql.anti_patterns(tx, tenant_id=caller.tenant, scopes=list(scopes))
    return [RuleWording(row["id"], row["content"], row["original"]) async for row in rows]


async def forgotten_since(
    tx: Connection, caller: Caller, scopes: Sequence[str], since: datetime
) -> list[RuleWording]:
    """The rules in scope that a caller forgot since then."""
    rows = _sql.forgotten_since(tx, tenant_id=caller.tenant, scopes=list(scopes), since=since)
    return [RuleWording(row["id"], row["content"]) async for row in rows]


async def live_among(tx: Connection, caller: Caller, ids: Sequence[UUID], scopes: Sequence[str]) -> set[UUID]:
    """The ids among these of rules that are live and in scope."""
    return {
        row["id"] async for row in _sql.live_among(tx, tenant_id=caller.tenant, ids=list(ids), scopes=list(scopes))
    }


async def lock_track_record(
    tx: Connection, caller: Caller, rule_id: UUID
) -> tuple[TrackRecord, dict[str, Any]] | None:
    """Lock a rule; returns its track record and metadata, or None where there is no such rule."""
    row = await _sql.lock_track_record(tx, tenant_id=caller.tenant, id=rule_id)
    if row is None:
        return None
    record = TrackRecord(
        maturity=Maturity(row["maturity"]),
        applied=row["applied_count"],
        successes=row["success_count"],
        harms=row["harmful_count"],
        effectiveness=row["effectiveness_score"],
        age=row["age"],
        awaits_inversion=bool(row["metadata"].get("needs_inversion")),
    )
    return record, row["metadata"]


async def write_track_record(
    tx: Connection, caller: Caller, rule_id: UUID, record: TrackRecord, maturity: Maturity, metadata: dict[str, Any]
) -> None:
    """Write a rule's track record, maturity and metadata."""
    await _sql.write_track_record(
        tx,
        tenant_id=caller.tenant,
        id=rule_id,
        maturity=maturity.value,
        applied_count=record.applied,
        success_count=record.successes,
        harmful_count=record.harms,
        effectiveness_score=record.effectiveness,
        metadata=metadata,
    )


async def record_application(tx: Connection, caller: Caller, rule_id: UUID, outcome: str, reason: str | None) -> None:
    """Record an application of a rule and its outcome."""
    await _sql.record_application(
        tx,
        tenant_id=caller.tenant,
        rule_id=rule_id,
        outcome=outcome,
        actor=caller.actor,
        session_id=UUID(caller.session_id) if caller.session_id else None,
        request_id=caller.request_id,
        context={"reason": reason} if reason else {},
    )


async def confirm(
    tx: Connection, caller: Caller, rule_id: UUID, *, supported: bool = True
) -> ConfirmationResult | None:
    """Restart the decay of a live rule; None where it is not live.

    Supported, a distilled rule gets the confidence of a stored one.
    """
    row = await _sql.confirm(
        tx, tenant_id=caller.tenant, id=rule_id, is_supported=supported, full_confidence=RULE_CONFIDENCE
    )
    return ConfirmationResult(row["confidence"], row["last_confirmed_at"]) if row else None
