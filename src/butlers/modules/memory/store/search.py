"""Queries of a search: the statistics its plan is made from, and the candidates of both arms."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.lexical import TermSelection, TermShares
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.domain.ranking import Candidate
from butlers.modules.memory.domain.text import truncate_query
from butlers.modules.memory.store.statements import statements

_sql = statements("search")
MAX_COUNTED_ROWS = 100_000
_MAX_SAMPLED, _MAX_COUNTED_TERMS = 3_000, 1_000
MAX_RANKED_ROWS = 5_000
"""Rows that the keyword arm ranks at most, if its terms have more matches than expected."""


class TableEstimate(NamedTuple):
    """The estimated rows of a table, of all tenants, and whether its vector index is an HNSW index."""

    rows: int
    has_graph: bool


class TypeStatistics(NamedTuple):
    """The memories of one type in scope, and the shares of the tenant's that have each common term."""

    size: int
    shares: TermShares


Statistics = Mapping[MemoryType, TypeStatistics]


class PreparedQuestion(NamedTuple):
    """The lexemes of a question, the state of the tables, and the statistics if they were requested."""

    terms: Sequence[str]
    tables: Mapping[MemoryType, TableEstimate]
    statistics: Statistics | None


class SearchPlan(NamedTuple):
    """The scopes, the vector arm and the terms of a search in one memory type."""

    memory_type: MemoryType
    scopes: Sequence[str] | None
    uses_graph: bool
    """Whether the vector arm reads the HNSW index instead of comparing every vector in scope."""
    terms: TermSelection | None
    """The terms that the keyword arm looks up; None without a keyword arm."""


class Question(NamedTuple):
    """The question of a search, its vector and the weights of its terms."""

    text: str
    embedding: Sequence[float] | None
    version: UUID
    language: str
    weights: Mapping[str, float]


async def prepare(
    tx: Connection,
    caller: Caller,
    question: str,
    language: str,
    *,
    scopes: Sequence[str] | None,
    butlers: Sequence[str] | None,
    loads_statistics: bool,
) -> PreparedQuestion:
    """The lexemes of a question and what its plan is made from."""
    row = await _sql.prepare(
        tx,
        tenant_id=caller.tenant,
        language=language,
        question=truncate_query(question),
        loads_statistics=loads_statistics,
        scopes=scopes,
        butlers=butlers,
        max_counted=MAX_COUNTED_ROWS,
        max_sampled=_MAX_SAMPLED,
        max_terms=_MAX_COUNTED_TERMS,
    )
    tables = {MemoryType(name): TableEstimate(**values) for name, values in row["tables"].items()}
    statistics = {MemoryType(name): _type_statistics(values) for name, values in (row["statistics"] or {}).items()}
    return PreparedQuestion(row["terms"], tables, statistics if loads_statistics else None)


def _type_statistics(values: Mapping[str, Any]) -> TypeStatistics:
    sampled, counts = values["sampled"], values["counts"]
    is_complete = sampled < _MAX_SAMPLED and len(counts) < _MAX_COUNTED_TERMS
    shares = {term: count / sampled for term, count in counts.items()}
    return TypeStatistics(values["size"], TermShares(shares, 0.0 if is_complete else 1 / sampled))


async def candidates(
    tx: Connection,
    plans: Sequence[SearchPlan],
    question: Question,
    *,
    min_confidence: float,
    depth: int,
    advice_only: bool,
    with_neighbours: bool,
) -> list[Candidate]:
    """The memories that either arm finds, in the current tenant."""
    rows = _sql.candidates(
        tx,
        plans=[_to_json(plan) for plan in plans],
        advice_only=advice_only,
        with_neighbours=with_neighbours,
        min_confidence=min_confidence,
        depth=depth,
        embedding=question.embedding,
        version=question.version,
        language=question.language,
        question=truncate_query(question.text),
        max_ranked=MAX_RANKED_ROWS,
        weighted_terms=list(question.weights),
        term_weights=list(question.weights.values()),
    )
    return [Candidate(**{**row, "memory_type": MemoryType(row["memory_type"])}) async for row in rows]


def _to_json(plan: SearchPlan) -> dict[str, Any]:
    terms = plan.terms
    return {
        "memory_type": plan.memory_type.value,
        "scopes": None if plan.scopes is None else list(plan.scopes),
        "uses_graph": plan.uses_graph,
        "single": None if terms is None else list(terms.single),
        "first": [] if terms is None else [first for first, _ in terms.pairs],
        "second": [] if terms is None else [second for _, second in terms.pairs],
        "fallback": [] if terms is None else list(terms.fallback),
    }
