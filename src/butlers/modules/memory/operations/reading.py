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
from butlers.modules.memory.domain.ranking import Candidate, Scored
from butlers.modules.memory.domain.scoring import Weights
from butlers.modules.memory.domain.text import question
from butlers.modules.memory.domain.words import LONGEST_PLAIN_QUESTION, coverage, rarest, weights
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import memories
from butlers.modules.memory.store import search as arms
from butlers.modules.memory.store.search import Looking

DEEP = 100
"""How many of each arm are put together where more is weighed than the order they came in."""
EXACT_UP_TO = 12_000
GRAPH_FROM = 5_000
"""From here on a graph that holds little else finds the nearest sooner than comparing everything."""
FEW = 1_000
_COUNTED_AT_MOST = 100_000
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
        found = await _candidates(memory, tx, caller, asked, embedding, mode, scope, min_confidence, depth, types)
        best = ranking.found(found, mode, depth)[:limit]
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
    found = await _candidates(
        memory, tx, caller, asked, embedding, mode, scope, retrieval.min_confidence, depth, types
    )
    weights = Weights(**retrieval.score_weights.model_dump())
    return ranking.recalled(found, weights, retrieval.maturity_importance.model_dump(), depth)


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


async def _candidates(
    memory: Memory,
    tx: Connection,
    caller: Caller,
    asked: str,
    embedding: Sequence[float] | None,
    mode: Mode,
    scope: str | None,
    min_confidence: float,
    depth: int,
    types: Collection[MemoryType],
) -> list[Candidate]:
    """What the arms find of each type, so deep."""
    found: list[Candidate] = []
    for memory_type in sorted(types):
        looking = await _looking(
            memory, tx, caller, memory_type, asked, embedding, mode, scope, min_confidence, depth
        )
        found += await arms.candidates(tx, caller, memory_type, looking)
    if mode is Mode.BLENDED and embedding is not None:
        return await _measured(memory, tx, caller, asked, embedding, scope, found)
    return found


async def _measured(
    memory: Memory,
    tx: Connection,
    caller: Caller,
    asked: str,
    embedding: Sequence[float],
    scope: str | None,
    found: Sequence[Candidate],
) -> list[Candidate]:
    """The same with both measures known of each, also where only one arm found it."""
    size = await _size(memory, tx, caller, MemoryType.FACT, memory.scopes(scope))
    telling = weights(await arms.lexemes(tx, asked), await _frequencies(memory, tx, caller, size))
    looked = await arms.closer(tx, caller, found, memory.embedder.version.id, embedding, telling)
    return [
        each._replace(similarity=row["similarity"], coverage=coverage(row["words"], telling))
        for each in found
        if (row := looked.get(each.id))
    ]


async def _looking(
    memory: Memory,
    tx: Connection,
    caller: Caller,
    memory_type: MemoryType,
    asked: str,
    embedding: Sequence[float] | None,
    mode: Mode,
    scope: str | None,
    min_confidence: float,
    depth: int,
) -> Looking:
    scopes = memory.butlers(scope) if memory_type is MemoryType.EPISODE else memory.scopes(scope)
    words = mode is not Mode.SEMANTIC
    size = await _size(memory, tx, caller, memory_type, scopes)
    has_graph = size >= GRAPH_FROM and await _fills_a_graph(memory, tx, memory_type, size)
    return Looking(
        scopes=scopes,
        least_confidence=min_confidence,
        depth=depth,
        embedding=embedding,
        version_id=memory.embedder.version.id,
        question=asked if words else None,
        picked=await _picked(memory, tx, caller, asked, size, depth) if words else None,
        exactly=size <= EXACT_UP_TO and not has_graph,
    )


async def _size(
    memory: Memory, tx: Connection, caller: Caller, memory_type: MemoryType, scopes: Sequence[str] | None
) -> int:
    """About how many memories are in scope, which decides how they are searched."""
    key = (caller.tenant, memory_type, tuple(scopes) if scopes else None)
    return await memory.sizes.get(key, lambda: arms.size(tx, caller, memory_type, scopes, _COUNTED_AT_MOST))


async def _fills_a_graph(memory: Memory, tx: Connection, memory_type: MemoryType, size: int) -> bool:
    """Whether so many memories are most of a graph: few of the neighbours it leads to are then somebody else's."""
    whole = await memory.graphs.get(memory_type, lambda: arms.graph_size(tx, memory_type))
    return whole is not None and 2 * size >= whole


async def _picked(
    memory: Memory, tx: Connection, caller: Caller, asked: str, size: int, depth: int
) -> Sequence[str] | None:
    """The words worth looking up in a large tenant or for a long question; None for all of them."""
    if size <= FEW and len(asked) <= LONGEST_PLAIN_QUESTION:
        return None
    words = await arms.lexemes(tx, asked)
    frequencies = {} if size <= FEW else await _frequencies(memory, tx, caller, size)
    return rarest(words, frequencies, size, depth)


async def _frequencies(memory: Memory, tx: Connection, caller: Caller, size: int) -> dict[str, float]:
    """How common words are among the tenant's memories, looked at anew whenever there are twice as many."""
    return await memory.words.get((caller.tenant, size.bit_length()), lambda: arms.word_frequencies(tx))


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
