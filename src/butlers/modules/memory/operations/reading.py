"""Search, recall and retrieval of memories."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.contract import add_note
from butlers.db import Connection
from butlers.errors import Unavailable
from butlers.modules.memory.domain import ranking
from butlers.modules.memory.domain.errors import MemoryNotFound
from butlers.modules.memory.domain.matching import Match
from butlers.modules.memory.domain.model import MAX_LISTED_CHARACTERS, MemoryType, SearchMode
from butlers.modules.memory.domain.ranking import ScoredMemory
from butlers.modules.memory.domain.receipt import ReceiptSource
from butlers.modules.memory.domain.scoring import ScoreWeights
from butlers.modules.memory.domain.text import validate_query
from butlers.modules.memory.operations import receipts
from butlers.modules.memory.operations.search import Search
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import memories

MIN_CANDIDATES = 100
"""Candidates per arm where the score depends on more than their ranks."""
_EMBED_TIMEOUT_SECONDS = 5.0
# One more than a list shows, so that it can say that a content was cut.
_FETCHED_CHARACTERS = MAX_LISTED_CHARACTERS + 1

SearchResult = dict[str, Any]


async def search(
    memory: Memory,
    caller: Caller,
    query: str,
    *,
    types: Collection[MemoryType],
    scope: str | None,
    mode: SearchMode,
    limit: int,
    min_confidence: float,
) -> list[SearchResult]:
    """Return the best matches of the given types, each with the parts of its score."""
    query = validate_query(query)
    embedding, mode = await embed_query(memory, caller, query, mode)
    depth = max(MIN_CANDIDATES, limit) if mode is SearchMode.BLENDED else limit
    async with memory.read_transaction(caller) as tx:
        matches = Search(memory, tx, caller, query, embedding, mode, scope, min_confidence, depth)
        best = ranking.rank_search(await matches.candidates(types), mode, depth)[:limit]
        rows = await memories.fetch_many(tx, caller, [each.candidate.id for each in best], _FETCHED_CHARACTERS)
    receipts.record_found(memory, caller, ReceiptSource.SEARCH, best)
    return [_to_result(rows[each.candidate.id], each) for each in best if each.candidate.id in rows]


async def recall(
    memory: Memory, caller: Caller, topic: str, *, scope: str | None, limit: int, types: Collection[MemoryType]
) -> list[SearchResult]:
    """Return the most relevant facts and rules for a topic, and mark them as referenced, unless a reader asks."""
    query = validate_query(topic, "topic")
    embedding, mode = await embed_query(memory, caller, query, SearchMode(memory.config.retrieval.recall_mode))
    async with memory.read_transaction(caller) as tx:
        ranked = await rank_for_recall(memory, tx, caller, query, embedding, mode, scope, types, limit)
        best = ranked[:limit]
        rows = await _fetch_recalled(tx, caller, best)
    receipts.record_found(memory, caller, ReceiptSource.RECALL, best)
    return [_to_result(rows[each.candidate.id], each) for each in best if each.candidate.id in rows]


async def _fetch_recalled(
    tx: Connection, caller: Caller, best: Sequence[ScoredMemory]
) -> dict[UUID, Mapping[str, Any]]:
    facts, rules = _ids(best, MemoryType.FACT), _ids(best, MemoryType.RULE)
    if caller.is_reader:
        return await memories.fetch_many(tx, caller, [*facts, *rules], _FETCHED_CHARACTERS)
    return await memories.mark_referenced(tx, caller, facts=facts, rules=rules, max_characters=_FETCHED_CHARACTERS)


async def rank_for_recall(
    memory: Memory,
    tx: Connection,
    caller: Caller,
    query: str,
    embedding: Sequence[float] | None,
    mode: SearchMode,
    scope: str | None,
    types: Collection[MemoryType],
    limit: int,
) -> list[ScoredMemory]:
    """Return facts and rules by composite score, without marking them as referenced.

    Both arms look 100 deep, because importance and recency can lift what they find there. Relevance fuses the
    first of them only: fused 100 deep, two late ranks would outweigh the first rank of one arm.
    """
    retrieval = memory.config.retrieval
    fused = max(retrieval.default_limit, limit)
    depth = max(MIN_CANDIDATES, fused)
    found = await Search(
        memory, tx, caller, query, embedding, mode, scope, retrieval.min_confidence, depth, advice_only=True
    ).candidates(types)
    weights = ScoreWeights(**retrieval.score_weights.model_dump())
    ranked = ranking.rank_recall(found, mode, weights, retrieval.maturity_importance.model_dump(), fused)
    least = Match(retrieval.least_match)
    return [each for each in ranked if each.match.is_at_least(least)]


async def get(memory: Memory, caller: Caller, memory_type: MemoryType, memory_id: UUID) -> SearchResult:
    """Return a memory in any state and mark it as referenced, unless a reader asks. Raises `MemoryNotFound`."""
    async with memory.read_transaction(caller) as tx:
        record = await memories.get(tx, caller, memory_type, memory_id, counted=not caller.is_reader)
    if record is None:
        raise MemoryNotFound(memory_type, memory_id)
    receipts.record_read(memory, caller, memory_type, memory_id)
    return {**record, "memory_type": memory_type.value}


async def embed_query(
    memory: Memory, caller: Caller, query: str, mode: SearchMode
) -> tuple[Sequence[float] | None, SearchMode]:
    """Return the vector of a query and the mode to search in.

    Without a model, or with a busy one, the mode becomes keyword and the answer says so; semantic search raises
    `Unavailable`.
    """
    if mode is SearchMode.KEYWORD:
        return None, mode
    try:
        async with asyncio.timeout(_EMBED_TIMEOUT_SECONDS):
            return await memory.embedder.embed(query, tenant=caller.tenant), mode
    except TimeoutError:
        busy = f"the embedding model is busy: no answer within {_EMBED_TIMEOUT_SECONDS:g} s"
        fault = Unavailable(busy, hint="Try again soon, or search with mode = keyword.")
    except Unavailable as unavailable:
        fault = unavailable
    if mode is SearchMode.SEMANTIC:
        raise fault
    memory.warn(f"searching by words alone: {fault.message}")
    add_note(f"Searched by words alone: {fault.message}. Memories in other words are missing from this answer.")
    return None, SearchMode.KEYWORD


def _ids(scored: Sequence[ScoredMemory], memory_type: MemoryType) -> list[UUID]:
    return [each.candidate.id for each in scored if each.candidate.memory_type is memory_type]


def _to_result(row: Any, scored: ScoredMemory) -> SearchResult:
    candidate, signals = scored.candidate, scored.signals
    parts: SearchResult = {
        "score": scored.score,
        "match": scored.match.value,
        "confidence": candidate.confidence,
        "similarity": candidate.similarity,
        "rank": candidate.rank,
        "semantic_rank": candidate.semantic_rank,
        "keyword_rank": candidate.keyword_rank,
        "rrf_score": scored.rrf_score,
        "coverage": candidate.coverage,
    }
    if signals is not None:
        parts |= {"relevance": signals.relevance, "recency": signals.recency, "importance": scored.importance}
    return {**row, **parts}
