"""Finding: the right memories come out. Fetch, think, touch."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.errors import Unavailable
from butlers.modules.memory.domain import ranking
from butlers.modules.memory.domain.errors import MemoryNotFound
from butlers.modules.memory.domain.model import MemoryType, Mode
from butlers.modules.memory.domain.ranking import Scored
from butlers.modules.memory.domain.scoring import Weights
from butlers.modules.memory.domain.text import question
from butlers.modules.memory.operations.looking import Look
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import memories

DEEP = 100
"""How many of each arm are put together where more is weighed than the order they came in."""
_EMBED_SECONDS = 5.0

Shown = dict[str, Any]


async def search(
    memory: Memory,
    caller: Caller,
    query: str,
    *,
    types: Collection[MemoryType],
    scope: str | None,
    mode: Mode,
    limit: int,
    min_confidence: float,
) -> list[Shown]:
    """The best matches among the types asked for, each with the parts of its score."""
    asked = question(query)
    embedding, mode = await embedded_question(memory, asked, mode)
    depth = max(DEEP, limit) if mode is Mode.BLENDED else limit
    async with memory.reading(caller) as tx:
        look = Look(memory, tx, caller, asked, embedding, mode, scope, min_confidence, depth)
        best = ranking.found(await look.candidates(types), mode, depth)[:limit]
        rows = await memories.show(tx, caller, **_ids(best))
    return [_shown(rows[each.candidate.id], each) for each in best if each.candidate.id in rows]


async def recall(
    memory: Memory, caller: Caller, topic: str, *, scope: str | None, limit: int, types: Collection[MemoryType]
) -> list[Shown]:
    """The facts and rules that matter most for a topic, noted as referenced."""
    asked = question(topic, "topic")
    embedding, mode = await embedded_question(memory, asked, Mode(memory.config.retrieval.recall_mode))
    async with memory.reading(caller) as tx:
        best = (await recalled(memory, tx, caller, asked, embedding, mode, scope, types))[:limit]
        ids = _ids(best)
        rows = await memories.touch(tx, caller, facts=ids["facts"], rules=ids["rules"])
    return [_shown(rows[each.candidate.id], each) for each in best if each.candidate.id in rows]


async def recalled(
    memory: Memory,
    tx: Connection,
    caller: Caller,
    asked: str,
    embedding: Sequence[float] | None,
    mode: Mode,
    scope: str | None,
    types: Collection[MemoryType],
) -> list[Scored]:
    """Facts and rules by composite score, without noting anything."""
    retrieval = memory.config.retrieval
    depth = max(DEEP, retrieval.default_limit)
    look = Look(memory, tx, caller, asked, embedding, mode, scope, retrieval.min_confidence, depth)
    weights = Weights(**retrieval.score_weights.model_dump())
    return ranking.recalled(await look.candidates(types), weights, retrieval.maturity_importance.model_dump(), depth)


async def get(memory: Memory, caller: Caller, memory_type: MemoryType, memory_id: UUID) -> Shown:
    """A whole memory, whatever its state, noted as referenced."""
    async with memory.reading(caller) as tx:
        record = await memories.get(tx, caller, memory_type, memory_id)
    if record is None:
        raise MemoryNotFound(memory_type, memory_id)
    return {**record, "memory_type": memory_type.value}


async def embedded_question(memory: Memory, asked: str, mode: Mode) -> tuple[Sequence[float] | None, Mode]:
    """The question's vector; without a model, or with a slow one, hybrid search goes on with words alone."""
    if mode is Mode.KEYWORD:
        return None, mode
    try:
        return await _in_time(memory, asked), mode
    except Unavailable:
        if mode is Mode.SEMANTIC:
            raise
        memory.warn("the embedding model is not available: searching by words alone")
        return None, Mode.KEYWORD


async def _in_time(memory: Memory, asked: str) -> Sequence[float]:
    try:
        async with asyncio.timeout(_EMBED_SECONDS):
            return await memory.embedder.embed(asked)
    except TimeoutError:
        raise Unavailable("the embedding model is too slow right now", hint="Search with mode = keyword.") from None


def _ids(best: Sequence[Scored]) -> dict[str, list[UUID]]:
    found = {"facts": MemoryType.FACT, "rules": MemoryType.RULE, "episodes": MemoryType.EPISODE}
    return {
        name: [each.candidate.id for each in best if each.candidate.memory_type is kind]
        for name, kind in found.items()
    }


def _shown(row: Any, scored: Scored) -> Shown:
    """A memory with its score and the parts the score is made of."""
    candidate, signals = scored.candidate, scored.signals
    parts: Shown = {
        "score": scored.score,
        "confidence": candidate.confidence,
        "similarity": candidate.similarity,
        "rank": candidate.rank,
        "semantic_rank": candidate.semantic_rank,
        "keyword_rank": candidate.keyword_rank,
        "rrf_score": scored.rrf_score,
        "coverage": candidate.coverage,
    }
    if signals is not None:
        parts |= {"relevance": signals.relevance, "recency": signals.recency}
        parts |= {"importance": scored.importance}
    return {**row, **parts}
