"""How answers look: ids as strings, times in ISO 8601, no vectors, nothing that is empty."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from typing_extensions import TypedDict

SHOWN_CHARACTERS = 1_000
_HIDDEN = frozenset({"embedding", "search_vector", "tenant_id", "embedding_version_id"})


class StoredEpisode(TypedDict):
    """A new episode."""

    id: str
    expires_at: str


class StoredFact(TypedDict, total=False):
    """A fact that is known now: new, in place of another, or confirmed."""

    id: str
    superseded_id: str
    confirmed_existing: bool


class StoredRule(TypedDict):
    """A new rule."""

    id: str


class Memory(TypedDict, total=False):
    """A memory; its own fields and, in a search, the parts of its score."""

    memory_type: str
    type: str
    id: str
    content: str
    truncated: bool
    score: float
    confidence: float
    lifecycle: str
    provenance: str
    subject: str
    predicate: str
    entity_id: str
    scope: str
    permanence: str
    importance: float
    maturity: str
    effectiveness_score: float
    butler: str
    session_id: str
    tags: list[str]
    metadata: dict[str, Any]
    source_butler: str
    reference_count: int
    created_at: str
    last_referenced_at: str
    last_confirmed_at: str
    expires_at: str
    similarity: float
    rank: float
    semantic_rank: int
    keyword_rank: int
    rrf_score: float
    coverage: float
    relevance: float
    recency: float
    tenant_id: str
    stored_confidence: float
    decay_rate: float
    validity: str
    source_episode_id: str
    supersedes_id: str
    applied_count: int
    success_count: int
    harmful_count: int
    last_applied_at: str
    last_evaluated_at: str
    consolidated: bool
    consolidation_status: str
    consolidation_attempts: int
    retry_count: int
    last_consolidation_error: str
    last_error: str
    next_consolidation_retry_at: str
    expired: bool


def list_item(record: Mapping[str, Any]) -> Memory:
    """A memory as a list shows it: long content shortened, housekeeping left out."""
    shown = full_record(record)
    shown.pop("tenant_id", None)
    shown.pop("metadata", None)
    content = shown["content"]
    if len(content) > SHOWN_CHARACTERS:
        shown["content"] = content[:SHOWN_CHARACTERS] + "…"
        shown["truncated"] = True
    return shown


def full_record(record: Mapping[str, Any]) -> Memory:
    """A whole memory."""
    shown = {
        name: to_json(value)
        for name, value in record.items()
        if value is not None and (name == "tenant_id" or name not in _HIDDEN)
    }
    shown["type"] = shown["memory_type"]
    shown["lifecycle"] = lifecycle(record)
    if provenance := (record.get("metadata") or {}).get("provenance"):
        shown["provenance"] = provenance
    return shown  # type: ignore[return-value]


def lifecycle(record: Mapping[str, Any]) -> str:
    """Where a memory stands in its life, in one word."""
    metadata = record.get("metadata") or {}
    validity = record.get("validity") or "active"
    if metadata.get("forgotten") or "forgotten_until" in metadata:
        return "forgotten"
    if record.get("expired"):
        return "expired"
    if validity == "active" and metadata.get("status") == "fading":
        return "fading"
    return str(validity)


def to_json(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, Mapping):
        return {name: to_json(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(each) for each in value]
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value
