"""Queries for the hints of a store: the memories similar to a new one."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.model import NewFact
from butlers.modules.memory.store.embedding_versions import EmbeddedText
from butlers.modules.memory.store.statements import statements

_sql = statements("hints")
MAX_HINTS = 3
MAX_COMPARED = 300
"""The newest memories of a topic that are compared; more would slow the store down."""
MAX_CHARACTERS = 300
"""Characters of a content that a hint shows."""

Similar = list[dict[str, Any]]


async def similar_facts(
    tx: Connection,
    caller: Caller,
    fact: NewFact,
    fact_id: UUID,
    embedded: EmbeddedText,
    scopes: Sequence[str],
    min_similarity: float,
) -> Similar:
    """The most similar of the newest live facts about the subject or entity of a fact."""
    topic = {"subject": fact.subject, "entity_id": fact.entity_id}
    settings = _settings(caller, fact_id, embedded, scopes, min_similarity)
    return [_similar(row) async for row in _sql.similar_facts(tx, **topic, **settings)]


async def similar_rules(
    tx: Connection,
    caller: Caller,
    rule_id: UUID,
    embedded: EmbeddedText,
    scopes: Sequence[str],
    min_similarity: float,
) -> Similar:
    """The most similar of the newest live rules in scope."""
    settings = _settings(caller, rule_id, embedded, scopes, min_similarity)
    return [_similar(row) async for row in _sql.similar_rules(tx, **settings)]


def _settings(
    caller: Caller, memory_id: UUID, embedded: EmbeddedText, scopes: Sequence[str], min_similarity: float
) -> dict[str, Any]:
    return {
        "tenant_id": caller.tenant,
        "id": memory_id,
        "scopes": list(scopes),
        "version": embedded.embedding_version_id,
        "embedding": embedded.embedding,
        "min_similarity": min_similarity,
        "max_compared": MAX_COMPARED,
        "max_characters": MAX_CHARACTERS,
        "max_rows": MAX_HINTS,
    }


def _similar(row: Any) -> dict[str, Any]:
    return {**row, "id": str(row["id"]), "similarity": round(row["similarity"], 3)}
