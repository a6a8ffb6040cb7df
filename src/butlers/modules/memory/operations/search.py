"""Candidate search: choice of the query plan for each memory type, and measures of the candidates."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.lexical import (
    ALL_TERMS,
    MAX_SHORT_QUESTION,
    MAX_TERMS,
    TermSelection,
    select_terms,
    term_weights,
)
from butlers.modules.memory.domain.model import MemoryType, SearchMode
from butlers.modules.memory.domain.ranking import Candidate
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import search as queries
from butlers.modules.memory.store.search import SearchPlan

MAX_EXACT_ROWS = 12_000
MIN_GRAPH_ROWS = 5_000
"""From this size on HNSW is faster than an exact scan, where it holds mostly rows in scope."""
SMALL_SCOPE_ROWS = 1_000
_MAX_COUNTED_ROWS = 100_000


@dataclass(slots=True)
class Search:
    """A query with its scope, mode and depth."""

    memory: Memory
    tx: Connection
    caller: Caller
    question: str
    embedding: Sequence[float] | None
    mode: SearchMode
    scope: str | None
    min_confidence: float
    depth: int
    _query_lexemes: Sequence[str] | None = None

    async def candidates(self, types: Collection[MemoryType]) -> list[Candidate]:
        """Return the candidates of each type that the semantic and keyword arms find."""
        found: list[Candidate] = []
        for memory_type in sorted(types):
            found += await queries.candidates(self.tx, self.caller, memory_type, await self.plan_for(memory_type))
        if self.mode is SearchMode.BLENDED and self.embedding is not None:
            return await self._measure(found, self.embedding)
        return found

    async def plan_for(self, memory_type: MemoryType) -> SearchPlan:
        """Return the query plan for a memory type, chosen by the number of memories in scope."""
        use_keywords = self.mode is not SearchMode.SEMANTIC
        size = await self._count_in_scope(memory_type)
        use_hnsw = size >= MIN_GRAPH_ROWS and await self._fills_hnsw_index(memory_type, size)
        return SearchPlan(
            scopes=self._scopes(memory_type),
            min_confidence=self.min_confidence,
            depth=self.depth,
            embedding=self.embedding,
            version=self.memory.embedder.version.id,
            question=self.question if use_keywords else None,
            terms=await self._select_terms(size) if use_keywords else ALL_TERMS,
            is_exact=size <= MAX_EXACT_ROWS and not use_hnsw,
        )

    async def _measure(self, found: Sequence[Candidate], embedding: Sequence[float]) -> list[Candidate]:
        """Return the candidates with similarity and coverage, also where only one arm found them."""
        terms = (await self._lexemes())[:MAX_TERMS]
        version = self.memory.embedder.version.id
        rows = await queries.measure(self.tx, self.caller, found, version, embedding, terms)
        weights = term_weights(terms, [row["terms"] for row in rows.values()])
        return [
            each._replace(similarity=row["similarity"], coverage=weights.coverage(row["terms"]))
            for each in found
            if (row := rows.get(each.id))
        ]

    def _scopes(self, memory_type: MemoryType) -> Sequence[str] | None:
        memory = self.memory
        return memory.butlers(self.scope) if memory_type is MemoryType.EPISODE else memory.scopes(self.scope)

    async def _count_in_scope(self, memory_type: MemoryType) -> int:
        scopes = self._scopes(memory_type)
        key = (self.caller.tenant, memory_type, tuple(scopes) if scopes else None)
        return await self.memory.scope_counts.get(
            key, lambda: queries.count_in_scope(self.tx, self.caller, memory_type, scopes, _MAX_COUNTED_ROWS)
        )

    async def _fills_hnsw_index(self, memory_type: MemoryType, size: int) -> bool:
        """Whether at least half of the HNSW index is in scope, so that few neighbours it finds are filtered out."""
        rows = await self.memory.hnsw_rows.get(memory_type, lambda: queries.hnsw_index_rows(self.tx, memory_type))
        return rows is not None and 2 * size >= rows

    async def _select_terms(self, size: int) -> TermSelection:
        """Return the terms to look up: all in a small scope, the selective ones otherwise."""
        if size <= SMALL_SCOPE_ROWS and len(self.question) <= MAX_SHORT_QUESTION:
            return ALL_TERMS
        frequencies: Mapping[str, float] = {}
        if size > SMALL_SCOPE_ROWS:
            load = partial(queries.term_frequencies, self.tx)
            frequencies = await self.memory.term_frequencies.get(self.caller.tenant, load)
        return select_terms(await self._lexemes(), frequencies, size, self.depth)

    async def _lexemes(self) -> Sequence[str]:
        """Return the lexemes of the question; fetched once."""
        if self._query_lexemes is None:
            self._query_lexemes = await queries.query_lexemes(self.tx, self.question)
        return self._query_lexemes
