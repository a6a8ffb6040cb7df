"""The arms of a search: the nearest vectors and the right words, of one kind of memory at a time."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from asyncpg import Record

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.lexical import ALL_TERMS, TermSelection
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.domain.ranking import Candidate
from butlers.modules.memory.domain.text import truncate_query
from butlers.modules.memory.store.statements import statements

_SQL = {
    MemoryType.FACT: statements("facts"),
    MemoryType.RULE: statements("rules"),
    MemoryType.EPISODE: statements("episodes"),
}
_words = statements("memories")
MAX_RANKED_ROWS = 5_000
"""How many rows the keyword arm ranks at the most, however common its words are."""
_OVERFETCH = 3
_ALL = 2**31


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """What is looked for, and where."""

    scopes: Sequence[str] | None
    least_confidence: float
    depth: int
    embedding: Sequence[float] | None = None
    version_id: UUID | None = None
    question: str | None = None
    picked: TermSelection = ALL_TERMS
    exactly: bool = True


async def candidates(tx: Connection, caller: Caller, memory_type: MemoryType, looking: SearchPlan) -> list[Candidate]:
    """What either arm found; exactly: by comparing every vector in scope, otherwise by the vector index."""
    if not looking.exactly:
        # Through a graph or not is another matter for a tenant that fills it than for one that does not.
        await _words.plan(tx, mode="force_custom_plan")
        rows = await _fetch_rows(tx, caller, memory_type, looking)
        await _words.plan(tx, mode="auto")
    else:
        rows = await _fetch_rows(tx, caller, memory_type, looking, reach=looking.depth * _OVERFETCH)
        if looking.embedding is not None and _needs_full_scan(rows, looking.depth):
            rows = await _fetch_rows(tx, caller, memory_type, looking, reach=_ALL)
    return [_candidate(memory_type, row) for row in rows if row["id"] is not None]


def _candidate(memory_type: MemoryType, row: Record) -> Candidate:
    return Candidate(
        memory_type,
        row["id"],
        row["created_at"],
        row["similarity"],
        row["semantic_rank"],
        row["rank"],
        row["has_all"],
        row["keyword_rank"],
        row.get("importance"),
        row.get("idle_days"),
        row.get("confidence"),
        row.get("maturity"),
        bool(row.get("awaits_inversion")),
    )


def _needs_full_scan(rows: Sequence[Record], depth: int) -> bool:
    """Whether so many of the nearest are not believed any more that those behind them have to be looked at.

    There is a row to tell by even when nothing was found.
    """
    nearest = sum(row["semantic_rank"] is not None for row in rows)
    return nearest < depth and bool(rows[0]["compared"] == depth * _OVERFETCH)


async def _fetch_rows(
    tx: Connection, caller: Caller, memory_type: MemoryType, looking: SearchPlan, **reach: int
) -> list[Record]:
    statement = getattr(_SQL[memory_type], "candidates_exact" if reach else "candidates_indexed")
    found = statement(
        tx,
        tenant_id=caller.tenant,
        version=looking.version_id,
        embedding=looking.embedding,
        scopes=looking.scopes,
        least_confidence=looking.least_confidence,
        depth=looking.depth,
        question=looking.question,
        alone=looking.picked.alone,
        firsts=[one for one, _ in looking.picked.pairs],
        seconds=[other for _, other in looking.picked.pairs],
        reserve=looking.picked.reserve,
        most=MAX_RANKED_ROWS,
        **reach,
    )
    return [row async for row in found]


async def measure(
    tx: Connection,
    caller: Caller,
    found: Iterable[Candidate],
    version_id: UUID,
    embedding: Sequence[float],
    words: Collection[str],
) -> dict[UUID, Record]:
    """Of each that was found, whichever arm found it: how near it is, and which of the words it has."""
    ids: dict[MemoryType, list[UUID]] = {kind: [] for kind in MemoryType}
    for each in found:
        ids[each.memory_type].append(each.id)
    rows = _words.closer(
        tx,
        tenant_id=caller.tenant,
        version=version_id,
        embedding=embedding,
        words=list(words),
        fact_ids=ids[MemoryType.FACT],
        rule_ids=ids[MemoryType.RULE],
        episode_ids=ids[MemoryType.EPISODE],
    )
    return {row["id"]: row async for row in rows}


async def count_in_scope(
    tx: Connection, caller: Caller, memory_type: MemoryType, scopes: Sequence[str] | None, most: int
) -> int:
    """How many live memories are in scope, counted no further than `most`."""
    counted: int = await _SQL[memory_type].size(tx, tenant_id=caller.tenant, scopes=scopes, most=most)
    return counted


async def hnsw_index_rows(tx: Connection, memory_type: MemoryType) -> int | None:
    """About how many memories, whoever's, the graph of a kind holds; None where there is no graph."""
    whole: int | None = await _words.graph_size(tx, index=f"{memory_type}s_embedding")
    return whole


async def word_frequencies(tx: Connection) -> dict[str, float]:
    """The share of the tenant's facts each common word stands in."""
    rows: Any = _words.word_frequencies(tx)
    return {row["word"]: row["share"] async for row in rows}


async def query_lexemes(tx: Connection, question: str) -> list[str]:
    """The words of a question as the index knows them, in the order they come in."""
    words: list[str] = await _words.lexemes(tx, question=truncate_query(question))
    return words
