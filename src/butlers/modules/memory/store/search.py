"""Queries of a search: the vector and keyword arms of one memory type, and the measures of a blended search."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from asyncpg import Record

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.lexical import ALL_TERMS, TermSelection
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.domain.ranking import Candidate
from butlers.modules.memory.domain.text import truncate_query
from butlers.modules.memory.store.statements import statements

_sql = statements("search")
MAX_RANKED_ROWS = 5_000
"""Rows that the keyword arm ranks at most, however common its terms are."""
_OVERFETCH = 3
_ALL_ROWS = 2**31


class SearchPlan(NamedTuple):
    """The arms of a search in one memory type, and their limits."""

    scopes: Sequence[str] | None
    min_confidence: float
    depth: int
    embedding: Sequence[float] | None = None
    version: UUID | None = None
    question: str | None = None
    terms: TermSelection = ALL_TERMS
    is_exact: bool = True
    """Whether the vector arm compares every vector in scope instead of reading the vector index."""


async def candidates(tx: Connection, caller: Caller, memory_type: MemoryType, plan: SearchPlan) -> list[Candidate]:
    """The memories that either arm finds."""
    if plan.is_exact:
        rows = await _fetch_rows(tx, caller, memory_type, plan, plan.depth * _OVERFETCH)
        if plan.embedding is not None and _needs_full_scan(rows, plan.depth):
            rows = await _fetch_rows(tx, caller, memory_type, plan, _ALL_ROWS)
    else:
        # Whether the vector index pays off depends on the tenant, so the plan is not shared.
        await _sql.set_plan_cache_mode(tx, mode="force_custom_plan")
        rows = await _fetch_rows(tx, caller, memory_type, plan, plan.depth)
        await _sql.set_plan_cache_mode(tx, mode="force_generic_plan")
    return [
        Candidate(memory_type, **{name: value for name, value in row.items() if name != "compared"})
        for row in rows
        if row["id"] is not None
    ]


def _needs_full_scan(rows: Sequence[Record], depth: int) -> bool:
    """Whether the confidence filter dropped so many of the nearest that more have to be compared.

    The statement returns a row even where it finds nothing.
    """
    nearest = sum(row["semantic_rank"] is not None for row in rows)
    return nearest < depth and bool(rows[0]["compared"] == depth * _OVERFETCH)


async def _fetch_rows(
    tx: Connection, caller: Caller, memory_type: MemoryType, plan: SearchPlan, reach: int
) -> list[Record]:
    settings = plan._asdict()
    terms: TermSelection = settings.pop("terms")
    rows = _sql.candidates(
        tx,
        tenant_id=caller.tenant,
        memory_type=memory_type,
        reach=reach,
        single_terms=terms.single,
        first_terms=[first for first, _ in terms.pairs],
        second_terms=[second for _, second in terms.pairs],
        fallback_terms=terms.fallback,
        max_ranked=MAX_RANKED_ROWS,
        **settings,
    )
    return [row async for row in rows]


async def measure(
    tx: Connection,
    caller: Caller,
    candidates: Iterable[Candidate],
    version_id: UUID,
    embedding: Sequence[float],
    terms: Collection[str],
) -> dict[UUID, Record]:
    """The similarity and the matching terms of each candidate, by id."""
    rows = _sql.measure(
        tx,
        tenant_id=caller.tenant,
        version=version_id,
        embedding=embedding,
        terms=list(terms),
        ids=[candidate.id for candidate in candidates],
    )
    return {row["id"]: row async for row in rows}


async def count_in_scope(
    tx: Connection, caller: Caller, memory_type: MemoryType, scopes: Sequence[str] | None, limit: int
) -> int:
    """The number of live memories in scope, counted up to `limit`."""
    return int(
        await _sql.count_in_scope(tx, tenant_id=caller.tenant, memory_type=memory_type, scopes=scopes, max_rows=limit)
    )


async def hnsw_index_rows(tx: Connection, memory_type: MemoryType) -> int | None:
    """The estimated rows, of all tenants, in the HNSW index of a type; None where it has none."""
    rows: int | None = await _sql.hnsw_index_rows(tx, index_name=f"{memory_type}s_embedding")
    return rows


async def term_frequencies(tx: Connection) -> dict[str, float]:
    """The share of the tenant's facts that have a term, for common terms."""
    return {row["term"]: row["share"] async for row in _sql.term_frequencies(tx)}


async def query_lexemes(tx: Connection, question: str) -> list[str]:
    """The lexemes of a question, in the order they come in."""
    lexemes: list[str] = await _sql.query_lexemes(tx, question=truncate_query(question))
    return lexemes
