"""What is known."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.model import FACT_CONFIDENCE, NewFact, Permanence, fact_key
from butlers.modules.memory.domain.text import truncate_for_index
from butlers.modules.memory.store.embedding_versions import EmbeddedText
from butlers.modules.memory.store.statements import statements

_sql = statements("facts")


@dataclass(frozen=True, slots=True)
class LiveFact:
    """The fact that holds a key now."""

    id: UUID
    content: str
    permanence: Permanence
    importance: float
    tags: tuple[str, ...]

    def says(self, fact: NewFact) -> bool:
        """Whether storing that fact would change nothing but the day it was checked."""
        return (self.content, self.permanence, self.importance, self.tags) == (
            fact.content,
            fact.permanence,
            fact.importance,
            fact.tags,
        )


@dataclass(frozen=True, slots=True)
class Confirmation:
    """When a belief was renewed, and how strong it is."""

    confidence: float
    last_confirmed_at: datetime


@dataclass(frozen=True, slots=True)
class UpdateTarget:
    """A live fact that is to say something else."""

    id: UUID
    scope: str
    subject: str
    predicate: str
    entity_id: UUID | None
    permanence: Permanence
    importance: float
    tags: tuple[str, ...]


async def lock_key(tx: Connection, caller: Caller, key: str) -> None:
    """Wait until no other writer has this key."""
    await _sql.lock_key(tx, tenant_id=caller.tenant, key=key)


async def lock_keys(tx: Connection, caller: Caller, keys: Iterable[str]) -> None:
    """Wait until no other writer has any of these keys; in one order for all, so that no two wait in a circle."""
    await _sql.lock_keys(tx, tenant_id=caller.tenant, keys=sorted(set(keys)))


async def lock_keys_of_facts(tx: Connection, caller: Caller, fact_ids: Sequence[UUID]) -> None:
    """The same for the keys of these facts: whoever writes them comes before or after, never between."""
    rows = _sql.keys_of(tx, tenant_id=caller.tenant, ids=list(fact_ids))
    keys = [fact_key(row["scope"], row["subject"], row["predicate"], row["entity_id"]) async for row in rows]
    await lock_keys(tx, caller, keys)


async def update_targets(
    tx: Connection, caller: Caller, ids: Sequence[UUID], scopes: Sequence[str]
) -> dict[UUID, UpdateTarget]:
    """Those of these facts that are live and in scope."""
    rows = _sql.targets(tx, tenant_id=caller.tenant, ids=list(ids), scopes=list(scopes))
    return {
        row["id"]: UpdateTarget(
            row["id"],
            row["scope"],
            row["subject"],
            row["predicate"],
            row["entity_id"],
            Permanence(row["permanence"]),
            row["importance"],
            tuple(row["tags"]),
        )
        async for row in rows
    }


async def find_same_content(tx: Connection, caller: Caller, fact: NewFact, scopes: Sequence[str]) -> UUID | None:
    """A live fact in scope that says this already, however important it is held."""
    found: UUID | None = await _sql.saying(
        tx,
        tenant_id=caller.tenant,
        scopes=list(scopes),
        subject=fact.subject,
        predicate=fact.predicate,
        content=fact.content,
    )
    return found


async def was_retracted_since(
    tx: Connection, caller: Caller, fact: NewFact, scopes: Sequence[str], since: datetime
) -> bool:
    """Whether somebody wanted forgotten, since then, that this is so."""
    return bool(
        await _sql.is_unwanted(
            tx,
            tenant_id=caller.tenant,
            scopes=list(scopes),
            subject=fact.subject,
            predicate=fact.predicate,
            content=fact.content,
            since=since,
        )
    )


async def lock_live_by_key(tx: Connection, caller: Caller, fact: NewFact) -> LiveFact | None:
    """The live fact with the same key."""
    if fact.entity_id is not None:
        row = await _sql.live_by_entity(
            tx, tenant_id=caller.tenant, scope=fact.scope, entity_id=fact.entity_id, predicate=fact.predicate
        )
    else:
        row = await _sql.live_by_subject(
            tx, tenant_id=caller.tenant, scope=fact.scope, subject=fact.subject, predicate=fact.predicate
        )
    if row is None:
        return None
    return LiveFact(row["id"], row["content"], Permanence(row["permanence"]), row["importance"], tuple(row["tags"]))


async def supersede(tx: Connection, caller: Caller, fact_id: UUID) -> None:
    """Take a live fact out of every search."""
    await _sql.supersede(tx, tenant_id=caller.tenant, id=fact_id)


async def insert(
    tx: Connection,
    caller: Caller,
    fact: NewFact,
    embedded: EmbeddedText,
    *,
    supersedes_id: UUID | None,
    source_butler: str | None,
    source_episode_id: UUID | None = None,
    confidence: float = FACT_CONFIDENCE,
) -> UUID:
    """A new live fact's id."""
    fact_id: UUID = await _sql.insert(
        tx,
        tenant_id=caller.tenant,
        subject=fact.subject,
        predicate=fact.predicate,
        content=fact.content,
        searchable=truncate_for_index(fact.searchable),
        embedding=embedded.vector,
        embedding_version_id=embedded.version_id,
        importance=fact.importance,
        confidence=confidence,
        permanence=fact.permanence.value,
        decay_rate=fact.permanence.decay_rate,
        source_butler=source_butler,
        source_episode_id=source_episode_id,
        supersedes_id=supersedes_id,
        entity_id=fact.entity_id,
        scope=fact.scope,
        tags=list(fact.tags),
        metadata=fact.metadata,
    )
    return fact_id


async def confirm(tx: Connection, caller: Caller, fact_id: UUID, *, supported: bool = True) -> Confirmation | None:
    """Start the decay of a live fact anew; None if it is not live. Supported, a distilled one is wholly believed."""
    row = await _sql.confirm(tx, tenant_id=caller.tenant, id=fact_id, supported=supported, whole=FACT_CONFIDENCE)
    return Confirmation(row["confidence"], row["last_confirmed_at"]) if row else None


async def forget(tx: Connection, caller: Caller, fact_id: UUID) -> bool:
    """Retract a live fact; False when it is not live."""
    return await _sql.forget(tx, tenant_id=caller.tenant, id=fact_id) is not None


async def restore(tx: Connection, caller: Caller, fact_id: UUID) -> bool:
    """Bring back a fact that was retracted or let go; False when it is neither."""
    await lock_keys_of_facts(tx, caller, [fact_id])
    return await _sql.restore(tx, tenant_id=caller.tenant, id=fact_id) is not None


async def supersession_chain(
    tx: Connection, caller: Caller, fact_id: UUID, most: int
) -> tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]]:
    """What a fact superseded, latest first, and what superseded it, earliest first."""
    before = _sql.superseded_chain(tx, tenant_id=caller.tenant, id=fact_id, most=most)
    after = _sql.superseding_chain(tx, tenant_id=caller.tenant, id=fact_id, most=most)
    return [dict(row) async for row in before], [dict(row) async for row in after]
