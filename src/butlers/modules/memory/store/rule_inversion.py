"""Queries of the inversion of rules: into anti-patterns, and back."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.model import Maturity, Permanence
from butlers.modules.memory.domain.text import truncate_for_index
from butlers.modules.memory.store.embedding_versions import EmbeddedText
from butlers.modules.memory.store.statements import statements

_sql = statements("rule_inversion")


@dataclass(frozen=True, slots=True)
class HarmfulRule:
    """A rule that is to become an anti-pattern."""

    id: UUID
    content: str
    reasons: Sequence[str]


@dataclass(frozen=True, slots=True)
class Inversion:
    """What an anti-pattern was: its content, and its state if an event tells it."""

    original: str
    before: Mapping[str, Any] | None


async def rules_to_invert(tx: Connection, caller: Caller, after: UUID, limit: int) -> list[HarmfulRule]:
    """The next rules after an id that are to become anti-patterns."""
    rows = _sql.rules_to_invert(tx, tenant_id=caller.tenant, after=after, max_rows=limit)
    return [HarmfulRule(**row) async for row in rows]


async def invert_rule(
    tx: Connection, caller: Caller, rule: HarmfulRule, content: str, embedded: EmbeddedText
) -> bool:
    """Turn a rule into an anti-pattern with that content; False where the rule changed meanwhile."""
    inverted = await _sql.invert_rule(
        tx, **_texts(caller, rule.id, content), original=rule.content, **embedded._asdict()
    )
    return inverted is not None


async def find_inversion(tx: Connection, caller: Caller, rule_id: UUID) -> Inversion | None:
    """What a live anti-pattern was; None where there is no such one."""
    row = await _sql.inversion(tx, tenant_id=caller.tenant, id=rule_id)
    return Inversion(**row) if row else None


async def revert_inversion(
    tx: Connection,
    caller: Caller,
    rule_id: UUID,
    content: str,
    embedded: EmbeddedText,
    *,
    maturity: Maturity,
    permanence: Permanence,
    decay_rate: float,
) -> bool:
    """Turn an anti-pattern into the rule it was; False where it is none, or was inverted from another content."""
    reverted = await _sql.revert_inversion(
        tx,
        **_texts(caller, rule_id, content),
        **embedded._asdict(),
        maturity=maturity.value,
        permanence=permanence.value,
        decay_rate=decay_rate,
    )
    return reverted is not None


async def warnings_of(tx: Connection, caller: Caller, ids: Iterable[UUID]) -> dict[UUID, str]:
    """The warnings that reverted rules were, by the id of the rule."""
    rows = _sql.warnings_of(tx, tenant_id=caller.tenant, ids=list(ids))
    return {row["id"]: row["content"] async for row in rows}


async def warn_again(tx: Connection, caller: Caller, rule_id: UUID, content: str, embedded: EmbeddedText) -> bool:
    """Give a reverted rule the content of the warning it was; False where it has another one by now."""
    return await _sql.warn_again(tx, **_texts(caller, rule_id, content), **embedded._asdict()) is not None


def _texts(caller: Caller, rule_id: UUID, content: str) -> dict[str, Any]:
    return {
        "tenant_id": caller.tenant,
        "id": rule_id,
        "content": content,
        "searchable": truncate_for_index(content),
    }
