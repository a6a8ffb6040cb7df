"""Results of the tools as JSON: ids as strings, times in ISO 8601, no vectors."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NotRequired
from uuid import UUID

from typing_extensions import TypedDict

from butlers.modules.memory.domain.model import MAX_LISTED_CHARACTERS

_INTERNAL_FIELDS = frozenset({"embedding", "search_vector", "embedding_version_id"})


class StoredEpisode(TypedDict):
    """A new episode, and the number of redacted secrets of each kind."""

    id: str
    expires_at: str
    redacted: NotRequired[dict[str, int]]


class SimilarFact(TypedDict):
    """A live fact about the same subject or entity that says nearly the same, or the opposite, under another key."""

    id: str
    subject: str
    predicate: str
    content: str
    similarity: float


class StoredFact(TypedDict, total=False):
    """A stored fact: new, superseding others, or confirming the same one."""

    id: str
    superseded_id: str
    also_superseded_id: str
    confirmed_existing: bool
    similar: list[SimilarFact]
    hint: str
    redacted: dict[str, int]


class SimilarRule(TypedDict):
    """A live rule that says nearly the same."""

    id: str
    content: str
    similarity: float


class StoredRule(TypedDict, total=False):
    """A new rule."""

    id: str
    similar: list[SimilarRule]
    hint: str
    redacted: dict[str, int]


class Memory(TypedDict, total=False):
    """A memory: its fields and, in a search, the parts of its score; a list leaves fields without a value out."""

    memory_type: str
    type: str
    id: str
    content: str
    truncated: bool
    score: float
    match: str
    confidence: float
    lifecycle: str
    provenance: str | None
    subject: str
    predicate: str
    entity_id: str | None
    scope: str
    permanence: str
    importance: float
    maturity: str
    effectiveness_score: float
    butler: str
    session_id: str | None
    tags: list[str]
    metadata: dict[str, Any]
    source_butler: str | None
    reference_count: int
    created_at: str
    last_referenced_at: str | None
    last_confirmed_at: str | None
    expires_at: str | None
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
    source_episode_id: str | None
    supersedes_id: str | None
    applied_count: int
    success_count: int
    harmful_count: int
    last_applied_at: str | None
    last_evaluated_at: str | None
    consolidated: bool
    consolidation_status: str
    consolidation_attempts: int
    retry_count: int
    last_consolidation_error: str | None
    last_error: str | None
    next_consolidation_retry_at: str | None
    expired: bool


def list_item(record: Mapping[str, Any]) -> Memory:
    """A memory as an item of a list: long content is cut, tenant and metadata are left out."""
    hidden = {"tenant_id", "metadata"}
    item = {name: value for name, value in full_record(record).items() if value is not None and name not in hidden}
    content = record["content"]
    if len(content) > MAX_LISTED_CHARACTERS:
        item["content"] = content[:MAX_LISTED_CHARACTERS] + "…"
        item["truncated"] = True
    return item  # type: ignore[return-value]


def full_record(record: Mapping[str, Any]) -> Memory:
    """A memory with all its fields, None where there is nothing."""
    item = {name: to_json(value) for name, value in record.items() if name not in _INTERNAL_FIELDS}
    item["type"] = item["memory_type"]
    item["lifecycle"] = lifecycle(record)
    item["provenance"] = (record.get("metadata") or {}).get("provenance")
    return item  # type: ignore[return-value]


def lifecycle(record: Mapping[str, Any]) -> str:
    """The state of a memory as one word."""
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
    """The value as JSON can represent it."""
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
