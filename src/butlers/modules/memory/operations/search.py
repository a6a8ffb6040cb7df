"""Candidate search: one plan for each memory type, and one statement for the candidates of all of them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.lexical import select_terms, term_weights
from butlers.modules.memory.domain.model import MemoryType, SearchMode
from butlers.modules.memory.domain.ranking import Candidate
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import search as queries
from butlers.modules.memory.store.search import (
    MAX_COUNTED_ROWS,
    PreparedQuestion,
    Question,
    SearchPlan,
    Statistics,
    TableEstimate,
)

LANGUAGE = "english"
MIN_GRAPH_ROWS = 2_500
"""Up to this size comparing every vector is as fast as the HNSW index."""
_GRAPH_ROW_COST = 10
"""A row that the HNSW index finds costs as much as ten that are compared; those of other tenants count."""
_MIN_GRAPH_DEPTH = 100
"""Rows that the HNSW index is asked for at least."""
_SETTLED_ROWS = 5_000
"""Statistics of more memories than these are kept longer: collecting them takes longer, and they change slowly."""
_SETTLED_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class Search:
    """A question with its scope, mode and depth."""

    memory: Memory
    tx: Connection
    caller: Caller
    question: str
    embedding: Sequence[float] | None
    mode: SearchMode
    scope: str | None
    min_confidence: float
    depth: int
    advice_only: bool = False
    """Whether rules that await inversion are left out."""

    async def candidates(self, types: Collection[MemoryType]) -> list[Candidate]:
        """Return the candidates of each type that the semantic and keyword arms find."""
        prepared, statistics = await self._prepare()
        kinds = sorted(types)
        weights = term_weights(prepared.terms, [statistics[kind] for kind in kinds])
        question = Question(self.question, self.embedding, self.memory.embedder.version.id, LANGUAGE, weights)
        return await queries.candidates(
            self.tx,
            [self._plan(kind, prepared, statistics) for kind in kinds],
            question,
            min_confidence=self.min_confidence,
            depth=self.depth,
            advice_only=self.advice_only,
            with_neighbours=self.mode is SearchMode.BLENDED,
        )

    async def graphs(self) -> set[MemoryType]:
        """Return the types whose HNSW index the vector arm reads."""
        prepared, statistics = await self._prepare()
        return {kind for kind in MemoryType if self._plan(kind, prepared, statistics).uses_graph}

    async def _prepare(self) -> tuple[PreparedQuestion, Statistics]:
        """Return the terms of the question and the statistics of the scope, which are cached."""
        cache, key = self.memory.search_statistics, (self.caller.tenant, self.scope)
        statistics = cache.find(key)
        prepared = await queries.prepare(
            self.tx,
            self.caller,
            self.question,
            LANGUAGE,
            scopes=self.memory.scopes(self.scope),
            butlers=self.memory.butlers(self.scope),
            loads_statistics=statistics is None,
        )
        if prepared.statistics is not None:
            statistics = prepared.statistics
            is_settled = sum(each.size for each in statistics.values()) > _SETTLED_ROWS
            cache.put(key, statistics, _SETTLED_SECONDS if is_settled else None)
        return prepared, statistics or {}

    def _plan(self, memory_type: MemoryType, prepared: PreparedQuestion, statistics: Statistics) -> SearchPlan:
        memory, (size, shares) = self.memory, statistics[memory_type]
        is_episode = memory_type is MemoryType.EPISODE
        table = prepared.tables[memory_type]
        if size == MAX_COUNTED_ROWS:
            size = max(size, table.rows)
        return SearchPlan(
            memory_type,
            memory.butlers(self.scope) if is_episode else memory.scopes(self.scope),
            uses_graph(size, self.depth, table),
            None if self.mode is SearchMode.SEMANTIC else select_terms(prepared.terms, shares, size),
        )


async def graphs_to_read(memory: Memory, tx: Connection, caller: Caller, scope: str, depth: int) -> set[MemoryType]:
    """Return the types whose HNSW index is read for the nearest memories in a scope; others are compared exactly."""
    return await Search(memory, tx, caller, "", None, SearchMode.SEMANTIC, scope, 0.0, depth).graphs()


def uses_graph(size: int, depth: int, table: TableEstimate) -> bool:
    """Return whether the HNSW index of a table reads less than a comparison of the `size` vectors in scope.

    The index finds the rows of all tenants, so it reads the more, the smaller the share in scope is.
    """
    if not table.has_graph or size < MIN_GRAPH_ROWS:
        return False
    return size * size >= _GRAPH_ROW_COST * max(depth, _MIN_GRAPH_DEPTH) * table.rows
