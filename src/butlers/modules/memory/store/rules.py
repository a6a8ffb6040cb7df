"""Queries on the rules and rule_applications tables."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.maturity import TrackRecord
from butlers.modules.memory.domain.model import RULE_CONFIDENCE, Maturity, MemoryEdit, NewRule, Permanence
from butlers.modules.memory.domain.text import truncate_for_index
from butlers.modules.memory.store.embedding_versions import EmbeddedText
from butlers.modules.memory.store.events import event_origin
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
    payload: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[UUID, bool]:
    """Store a candidate rule with its event, which has this payload too.

    Returns its id, and whether there are other live rules in its scope or global ones.
    """
    row = await _sql.insert(
        tx,
        tenant_id=caller.tenant,
        searchable=truncate_for_index(rule.searchable),
        **embedded._asdict(),
        confidence=confidence,
        decay_rate=rule.decay_rate,
        source_butler=source_butler,
        source_episode_id=source_episode_id,
        **{**asdict(rule), "permanence": rule.permanence or Permanence.STANDARD},
        **event_origin(caller, {"scope": rule.scope, "confidence": confidence, **payload}),
    )
    return row["id"], row["has_others"]


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
        version=embedded.embedding_version_id,
        embedding=embedded.embedding,
        scopes=list(scopes),
        max_rows=limit,
    )
    return [RuleWording(**row) async for row in rows]


async def anti_patterns(tx: Connection, caller: Caller, scopes: Sequence[str]) -> list[RuleWording]:
    """The anti-patterns in scope, with their original content."""
    rows = _sql.anti_patterns(tx, tenant_id=caller.tenant, scopes=list(scopes))
    return [RuleWording(**row) async for row in rows]


async def forgotten_since(
    tx: Connection, caller: Caller, scopes: Sequence[str], since: datetime
) -> list[RuleWording]:
    """The rules in scope that a caller forgot since then."""
    rows = _sql.forgotten_since(tx, tenant_id=caller.tenant, scopes=list(scopes), since=since)
    return [RuleWording(**row) async for row in rows]


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
    values = dict(row)
    metadata, maturity = values.pop("metadata"), Maturity(values.pop("maturity"))
    return TrackRecord(maturity, **values, awaits_inversion=bool(metadata.get("needs_inversion"))), metadata


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


async def record_application(
    tx: Connection, caller: Caller, rule_id: UUID, outcome: str, reason: str | None, *, has_receipts: bool
) -> str:
    """Record an application of a rule and its outcome; returns the evidence that the session knew the rule.

    `told` at its start, `recalled` later, `none`, or `unknown` where sessions get no receipts.
    """
    evidence: str = await _sql.record_application(
        tx,
        tenant_id=caller.tenant,
        rule_id=rule_id,
        outcome=outcome,
        actor=caller.actor,
        session_id=UUID(caller.session_id) if caller.session_id else None,
        request_id=caller.request_id,
        context={"reason": reason} if reason else {},
        has_receipts=has_receipts,
    )
    return evidence


async def edit(tx: Connection, caller: Caller, rule_id: UUID, change: MemoryEdit) -> bool:
    """Change a live rule in place; False where it is not live."""
    return await _sql.edit(tx, tenant_id=caller.tenant, id=rule_id, **change.columns) is not None
