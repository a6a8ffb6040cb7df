"""What works."""

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
from butlers.modules.memory.store.facts import Confirmation
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
    """A new candidate's id."""
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
    """What a live rule says, and what it said before it became a warning."""

    id: UUID
    content: str
    original: str | None = None
    awaits_inversion: bool = False


async def nearest(
    tx: Connection, caller: Caller, embedded: EmbeddedText, scopes: Sequence[str], most: int
) -> list[RuleWording]:
    """The live rules in scope that are nearest to a vector."""
    rows = _sql.nearest(
        tx,
        tenant_id=caller.tenant,
        version=embedded.version_id,
        embedding=embedded.vector,
        scopes=list(scopes),
        most=most,
    )
    return [RuleWording(row["id"], row["content"], awaits_inversion=row["awaits_inversion"]) async for row in rows]


async def anti_patterns(tx: Connection, caller: Caller, scopes: Sequence[str]) -> list[RuleWording]:
    """The warnings in scope, with what they said before they did harm."""
    rows = _sql.warnings(tx, tenant_id=caller.tenant, scopes=list(scopes))
    return [RuleWording(row["id"], row["content"], row["original"]) async for row in rows]


async def forgotten_since(
    tx: Connection, caller: Caller, scopes: Sequence[str], since: datetime
) -> list[RuleWording]:
    """The rules in scope that somebody wanted forgotten since then."""
    rows = _sql.unwanted(tx, tenant_id=caller.tenant, scopes=list(scopes), since=since)
    return [RuleWording(row["id"], row["content"]) async for row in rows]


async def live_among(tx: Connection, caller: Caller, ids: Sequence[UUID], scopes: Sequence[str]) -> set[UUID]:
    """Those of these rules that are live and in scope."""
    return {
        row["id"] async for row in _sql.live_among(tx, tenant_id=caller.tenant, ids=list(ids), scopes=list(scopes))
    }


async def lock_track_record(
    tx: Connection, caller: Caller, rule_id: UUID
) -> tuple[TrackRecord, dict[str, Any]] | None:
    """What is known of a rule's use, and its metadata, held until the transaction ends."""
    row = await _sql.track_record(tx, tenant_id=caller.tenant, id=rule_id)
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
    """Write what is known of a rule's use after one more."""
    await _sql.mark(
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
    """Keep one use of a rule and how it went."""
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


async def confirm(tx: Connection, caller: Caller, rule_id: UUID, *, supported: bool = True) -> Confirmation | None:
    """Start the decay of a live rule anew; None when it is not live. Supported, a distilled one counts as stored."""
    row = await _sql.confirm(tx, tenant_id=caller.tenant, id=rule_id, supported=supported, whole=RULE_CONFIDENCE)
    return Confirmation(row["confidence"], row["last_confirmed_at"]) if row else None


async def forget(tx: Connection, caller: Caller, rule_id: UUID) -> bool:
    """Take a live rule out of every search; False when it is not live."""
    return await _sql.forget(tx, tenant_id=caller.tenant, id=rule_id) is not None


async def restore(tx: Connection, caller: Caller, rule_id: UUID) -> bool:
    """Bring a forgotten rule back; False when it is not forgotten."""
    return await _sql.restore(tx, tenant_id=caller.tenant, id=rule_id) is not None
