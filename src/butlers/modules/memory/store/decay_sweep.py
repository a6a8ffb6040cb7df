"""Time at work on facts and rules, a page at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection, Database
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.domain.text import truncate_for_index
from butlers.modules.memory.store.embedding_versions import EmbeddedText
from butlers.modules.memory.store.events import caller_payload
from butlers.modules.memory.store.statements import statements

_sql = statements("decay_sweep")
MIN_ID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Below which belief a memory fades, and below which it is let go."""

    fading_below: float
    expired_below: float


@dataclass(frozen=True, slots=True)
class SweepPage:
    """What time did to some memories, and the last of them."""

    seen: int
    last: UUID
    fading: int
    recovered: int
    expired: int
    held_back: int


@dataclass(frozen=True, slots=True)
class HarmfulRule:
    """A rule that should become a warning."""

    id: UUID
    content: str
    reasons: Sequence[str]


async def list_tenants(database: Database) -> list[str]:
    """Every tenant that has memories."""
    return [row["tenant_id"] for row in await database.fetch_across_tenants(_sql.tenants.sql)]


async def count_live(tx: Connection, caller: Caller, kind: MemoryType) -> int:
    """How many memories of that kind are live."""
    statement = {MemoryType.FACT: _sql.live_facts, MemoryType.RULE: _sql.live_rules}[kind]
    counted: int = await statement(tx, tenant_id=caller.tenant)
    return counted


async def sweep_page(
    tx: Connection, caller: Caller, kind: MemoryType, after: UUID, most: int, at: Thresholds, may_expire: int
) -> SweepPage:
    """Let time work on the next memories of that kind behind an id."""
    statement = {MemoryType.FACT: _sql.sweep_facts, MemoryType.RULE: _sql.sweep_rules}[kind]
    row = await statement(
        tx,
        tenant_id=caller.tenant,
        after=after,
        most=most,
        fading_below=at.fading_below,
        expired_below=at.expired_below,
        may_expire=may_expire,
        actor=caller.actor,
        request_id=caller.request_id,
        caller_payload=caller_payload(caller),
    )
    return SweepPage(
        row["seen"], row["last"] or after, row["fading"], row["recovered"], row["expired"], row["held_back"]
    )


async def preview_sweep(tx: Connection, caller: Caller, kind: MemoryType, at: Thresholds) -> SweepPage:
    """What a sweep of that kind would do, without a cap."""
    statement = {MemoryType.FACT: _sql.would_sweep_facts, MemoryType.RULE: _sql.would_sweep_rules}[kind]
    row: Any = await statement(
        tx, tenant_id=caller.tenant, fading_below=at.fading_below, expired_below=at.expired_below
    )
    return SweepPage(row["seen"], MIN_ID, row["fading"], row["recovered"], row["expired"], 0)


async def rules_to_invert(tx: Connection, caller: Caller, after: UUID, most: int) -> list[HarmfulRule]:
    """The next rules behind an id that should become warnings."""
    rows = _sql.to_invert(tx, tenant_id=caller.tenant, after=after, most=most)
    return [HarmfulRule(row["id"], row["content"], row["reasons"]) async for row in rows]


async def invert_rule(
    tx: Connection, caller: Caller, rule: HarmfulRule, warning: str, embedded: EmbeddedText
) -> bool:
    """Turn a rule into a warning; False when it is not what it was any more."""
    turned = await _sql.invert(
        tx,
        tenant_id=caller.tenant,
        id=rule.id,
        original=rule.content,
        content=warning,
        searchable=truncate_for_index(warning),
        embedding=embedded.vector,
        embedding_version_id=embedded.version_id,
    )
    return turned is not None
