"""One look for memories: by which arms, in which way, and what is known of each that they find."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

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
from butlers.modules.memory.store import search as arms
from butlers.modules.memory.store.search import SearchPlan

MAX_EXACT_ROWS = 12_000
MIN_GRAPH_ROWS = 5_000
"""From here on a graph that holds little else finds the nearest sooner than comparing everything."""
SMALL_SCOPE_ROWS = 1_000
_MAX_COUNTED_ROWS = 100_000


@dataclass(slots=True)
class Search:
    """A question, where it is asked, and how deep each arm looks."""

    memory: Memory
    tx: Connection
    caller: Caller
    question: str
    embedding: Sequence[float] | None
    mode: SearchMode
    scope: str | None
    least_confidence: float
    depth: int
    _words: Sequence[str] | None = None

    async def candidates(self, types: Collection[MemoryType]) -> list[Candidate]:
        """What the arms find of each type."""
        found: list[Candidate] = []
        for memory_type in sorted(types):
            found += await arms.candidates(self.tx, self.caller, memory_type, await self.way_to(memory_type))
        if self.mode is SearchMode.BLENDED and self.embedding is not None:
            return await self._measured(found, self.embedding)
        return found

    async def way_to(self, memory_type: MemoryType) -> SearchPlan:
        """How memories of a type are looked for, by how many there are."""
        by_words = self.mode is not SearchMode.SEMANTIC
        size = await self._size(memory_type)
        has_graph = size >= MIN_GRAPH_ROWS and await self._fills_a_graph(memory_type, size)
        return SearchPlan(
            scopes=self._scopes(memory_type),
            min_confidence=self.least_confidence,
            depth=self.depth,
            embedding=self.embedding,
            version_id=self.memory.embedder.version.id,
            question=self.question if by_words else None,
            terms=await self._picked(size) if by_words else ALL_TERMS,
            is_exact=size <= MAX_EXACT_ROWS and not has_graph,
        )

    async def _measured(self, found: Sequence[Candidate], embedding: Sequence[float]) -> list[Candidate]:
        """The same with both measures known of each, also where only one arm found it."""
        asked = (await self._lexemes())[:MAX_TERMS]
        version = self.memory.embedder.version.id
        looked = await arms.measure(self.tx, self.caller, found, version, embedding, asked)
        says = term_weights(asked, [row["terms"] for row in looked.values()])
        return [
            each._replace(similarity=row["similarity"], coverage=says.coverage(row["terms"]))
            for each in found
            if (row := looked.get(each.id))
        ]

    def _scopes(self, memory_type: MemoryType) -> Sequence[str] | None:
        memory = self.memory
        return memory.butlers(self.scope) if memory_type is MemoryType.EPISODE else memory.scopes(self.scope)

    async def _size(self, memory_type: MemoryType) -> int:
        """About how many memories are in scope, which decides how they are searched."""
        scopes = self._scopes(memory_type)
        key = (self.caller.tenant, memory_type, tuple(scopes) if scopes else None)
        return await self.memory.sizes.get(
            key, lambda: arms.count_in_scope(self.tx, self.caller, memory_type, scopes, _MAX_COUNTED_ROWS)
        )

    async def _fills_a_graph(self, memory_type: MemoryType, size: int) -> bool:
        """Whether so many memories are most of a graph: few of the neighbours it leads to are then others'."""
        whole = await self.memory.graphs.get(memory_type, lambda: arms.hnsw_index_rows(self.tx, memory_type))
        return whole is not None and 2 * size >= whole

    async def _picked(self, size: int) -> TermSelection:
        """The words worth looking up in a large tenant or for a long question."""
        if size <= SMALL_SCOPE_ROWS and len(self.question) <= MAX_SHORT_QUESTION:
            return ALL_TERMS
        frequencies = {} if size <= SMALL_SCOPE_ROWS else await self._frequencies()
        return select_terms(await self._lexemes(), frequencies, size, self.depth)

    async def _lexemes(self) -> Sequence[str]:
        """The words of the question as the index knows them, asked for once."""
        if self._words is None:
            self._words = await arms.query_lexemes(self.tx, self.question)
        return self._words

    async def _frequencies(self) -> Mapping[str, float]:
        """How common words are among the tenant's memories."""
        return await self.memory.words.get(self.caller.tenant, lambda: arms.term_frequencies(self.tx))
