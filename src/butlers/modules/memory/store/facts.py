"""Queries on the facts table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any
from uuid import UUID
from zlib import crc32

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.model import MemoryEdit, NewFact, Permanence, fact_key
from butlers.modules.memory.domain.text import truncate_for_index
from butlers.modules.memory.store.embedding_versions import EmbeddedText
from butlers.modules.memory.store.events import event_origin
from butlers.modules.memory.store.statements import statements

_sql = statements("facts")
_LOCKS = 512
"""Locks that the keys of a tenant share."""
_KEYS_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class LiveFact:
    """The live fact with a key."""

    id: UUID
    content: str
    permanence: Permanence
    importance: float
    tags: tuple[str, ...]
    confidence: float

    def equals(self, fact: NewFact) -> bool:
        """Whether storing that fact would only confirm this one."""
        compared = ("content", "permanence", "importance", "tags")
        return all(getattr(self, name) == getattr(fact, name) for name in compared)


@dataclass(frozen=True, slots=True)
class UpdateTarget:
    """A live fact whose content is to be updated."""

    id: UUID
    scope: str
    subject: str
    predicate: str
    entity_id: UUID | None
    permanence: Permanence
    importance: float
    tags: tuple[str, ...]


def key_lock(caller: Caller, key: str) -> str:
    """The name of the lock of a key, for a transaction that begins with it."""
    return f"{caller.tenant}\x1f{_bucket(key)}"


def _bucket(key: str) -> int:
    return crc32(key.encode()) % _LOCKS


async def lock_key(tx: Connection, caller: Caller, key: str) -> None:
    """Wait until no other writer has this key."""
    await lock_keys(tx, caller, [key])


async def lock_keys(tx: Connection, caller: Caller, keys: Iterable[str]) -> None:
    """Wait until no other writer has any of these keys; locks in one order for all writers, so none deadlock.

    Keys share locks: the server has some thousands for all tenants, and one act may have as many keys.
    """
    buckets = sorted({_bucket(key) for key in keys})
    await _sql.lock_buckets(tx, tenant_id=caller.tenant, buckets=buckets)


async def lock_keys_of_facts(
    tx: Connection,
    caller: Caller,
    fact_ids: Iterable[UUID],
    entity_ids: Iterable[UUID] = (),
    *,
    more: Iterable[str] = (),
) -> None:
    """Lock the keys of these facts, those they would have with these entities, and more keys."""
    ids, others = list(fact_ids), list(entity_ids)
    keys = set(more)
    for start in range(0, len(ids), _KEYS_AT_ONCE):
        rows = _sql.keys_of_facts(tx, tenant_id=caller.tenant, ids=ids[start : start + _KEYS_AT_ONCE])
        keys |= {
            fact_key(row["scope"], row["subject"], row["predicate"], entity_id)
            async for row in rows
            for entity_id in (row["entity_id"], *others)
        }
    await lock_keys(tx, caller, keys)


async def update_targets(
    tx: Connection, caller: Caller, ids: Sequence[UUID], scopes: Sequence[str]
) -> dict[UUID, UpdateTarget]:
    """The facts among these ids that are live and in scope, by id."""
    rows = _sql.update_targets(tx, tenant_id=caller.tenant, ids=list(ids), scopes=list(scopes))
    return {
        row["id"]: UpdateTarget(**{**row, "permanence": Permanence(row["permanence"]), "tags": tuple(row["tags"])})
        async for row in rows
    }


async def find_same_content(tx: Connection, caller: Caller, fact: NewFact, scopes: Sequence[str]) -> UUID | None:
    """The id of a live fact in scope with the same subject, predicate and content."""
    fact_id: UUID | None = await _sql.find_same_content(tx, **_content_filter(caller, fact, scopes))
    return fact_id


async def was_retracted_since(
    tx: Connection, caller: Caller, fact: NewFact, scopes: Sequence[str], since: datetime
) -> bool:
    """Whether a caller retracted a fact with the same content since then."""
    return bool(await _sql.was_retracted_since(tx, **_content_filter(caller, fact, scopes), since=since))


def _content_filter(caller: Caller, fact: NewFact, scopes: Sequence[str]) -> dict[str, Any]:
    values = {name: getattr(fact, name) for name in ("subject", "predicate", "content")}
    return {"tenant_id": caller.tenant, "scopes": list(scopes), **values}


async def lock_live_by_key(tx: Connection, caller: Caller, fact: NewFact) -> LiveFact | None:
    """Lock and return the live fact with the same key."""
    if fact.entity_id is not None:
        row = await _sql.lock_live_by_entity(
            tx, tenant_id=caller.tenant, scope=fact.scope, entity_id=fact.entity_id, predicate=fact.predicate
        )
    else:
        row = await _sql.lock_live_by_subject(
            tx, tenant_id=caller.tenant, scope=fact.scope, subject=fact.subject, predicate=fact.predicate
        )
    return _live_fact(row) if row else None


async def lock_live(tx: Connection, caller: Caller, fact_id: UUID) -> LiveFact | None:
    """Lock and return a live fact by its id."""
    row = await _sql.lock_live(tx, tenant_id=caller.tenant, id=fact_id)
    return _live_fact(row) if row else None


def _live_fact(row: Mapping[str, Any]) -> LiveFact:
    return LiveFact(**{**row, "permanence": Permanence(row["permanence"]), "tags": tuple(row["tags"])})


async def supersede(tx: Connection, caller: Caller, fact_id: UUID) -> None:
    """Supersede a live fact: no search finds it any more."""
    await _sql.supersede(tx, tenant_id=caller.tenant, id=fact_id)


@dataclass(frozen=True, slots=True)
class InsertResult:
    """The id of a new fact, or the live fact that has its key; and whether other live facts have its topic."""

    id: UUID | None
    existing: LiveFact | None
    has_topic: bool


async def insert_if_free(
    tx: Connection,
    caller: Caller,
    fact: NewFact,
    embedded: EmbeddedText,
    *,
    supersedes_id: UUID | None,
    source_butler: str | None,
    source_episode_id: UUID | None,
    confidence: float,
    payload: Mapping[str, Any],
) -> InsertResult:
    """Store a live fact with its event, which has this payload too, if its key is free.

    Else lock the live fact that has the key. The caller has locked the key.
    """
    set_values = {"scope": fact.scope, "permanence": fact.permanence.value, "confidence": confidence}
    replaced = {"supersedes_id": str(supersedes_id)} if supersedes_id else {}
    row = await _sql.insert_if_free(
        tx,
        tenant_id=caller.tenant,
        searchable=truncate_for_index(fact.searchable),
        **embedded._asdict(),
        confidence=confidence,
        decay_rate=fact.permanence.decay_rate,
        source_butler=source_butler,
        source_episode_id=source_episode_id,
        supersedes_id=supersedes_id,
        **asdict(fact),
        **event_origin(caller, {**set_values, **replaced, **payload}),
    )
    inserted_id, *existing, has_topic = row
    columns = [field.name for field in fields(LiveFact)]
    known = None if inserted_id else _live_fact(dict(zip(columns, existing, strict=True)))
    return InsertResult(inserted_id, known, has_topic)


async def supersession_chain(
    tx: Connection, caller: Caller, fact_id: UUID, limit: int
) -> tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]]:
    """The facts that a fact superseded, latest first, and those that superseded it, earliest first."""
    before = _sql.superseded_chain(tx, tenant_id=caller.tenant, id=fact_id, max_rows=limit)
    after = _sql.superseding_chain(tx, tenant_id=caller.tenant, id=fact_id, max_rows=limit)
    return [dict(row) async for row in before], [dict(row) async for row in after]


async def edit(tx: Connection, caller: Caller, fact_id: UUID, change: MemoryEdit) -> bool:
    """Change a live fact in place; False where it is not live."""
    edited = await _sql.edit(tx, tenant_id=caller.tenant, id=fact_id, importance=change.importance, **change.columns)
    return edited is not None


async def move(tx: Connection, caller: Caller, fact_id: UUID, entity_id: UUID) -> bool:
    """Move a live fact to an entity; False where it is not live. The caller holds both keys."""
    return await _sql.move(tx, tenant_id=caller.tenant, id=fact_id, entity_id=entity_id) is not None


async def get_for_correction(tx: Connection, caller: Caller, fact_id: UUID) -> UpdateTarget | None:
    """A fact in any state, as far as its correction keeps it."""
    row = await _sql.get_for_correction(tx, tenant_id=caller.tenant, id=fact_id)
    if row is None:
        return None
    return UpdateTarget(**{**row, "permanence": Permanence(row["permanence"]), "tags": tuple(row["tags"])})


async def key_holders(
    tx: Connection, caller: Caller, entity_ids: Mapping[UUID, UUID | None], leaving: Iterable[UUID]
) -> dict[UUID, UUID]:
    """The live facts, other than the leaving ones, that hold the keys these facts would have with these entities."""
    rows = _sql.key_holders(
        tx,
        tenant_id=caller.tenant,
        ids=list(entity_ids),
        entity_ids=list(entity_ids.values()),
        leaving=list(leaving),
    )
    return {row["id"]: row["holder_id"] async for row in rows}
