"""Candidates of a search, and the order they come in."""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from butlers.modules.memory.domain.fusion import blended_score, normalized_relevance, rrf_score
from butlers.modules.memory.domain.model import MAX_IMPORTANCE, MemoryType, SearchMode
from butlers.modules.memory.domain.scoring import ScoreSignals, ScoreWeights, composite_score, recency


class Candidate(NamedTuple):
    """A memory a search found, with what is known of it before it is read."""

    memory_type: MemoryType
    id: UUID
    created_at: datetime
    similarity: float | None = None
    semantic_rank: int | None = None
    rank: float | None = None
    has_all: bool | None = None
    keyword_rank: int | None = None
    importance: float | None = None
    idle_days: float | None = None
    confidence: float | None = None
    maturity: str | None = None
    awaits_inversion: bool = False
    coverage: float | None = None
    """How much of the question its words are; known where the measures are blended."""


class ScoredMemory(NamedTuple):
    """A candidate with its score and the parts the score is made of."""

    candidate: Candidate
    score: float
    rrf_score: float | None = None
    signals: ScoreSignals | None = None

    @property
    def importance(self) -> float | None:
        """The importance that counted, from 0 to 10."""
        return self.signals.importance * MAX_IMPORTANCE if self.signals else self.candidate.importance


def rank_search(candidates: Iterable[Candidate], mode: SearchMode, depth: int) -> list[ScoredMemory]:
    """Candidates by what the mode goes by, the best first."""
    return _ordered(_search_score(candidate, mode, depth) for candidate in candidates)


def rank_recall(
    candidates: Iterable[Candidate], weights: ScoreWeights, maturity_importance: dict[str, float], depth: int
) -> list[ScoredMemory]:
    """Candidates by relevance, importance, recency and confidence together, the best first."""
    return _ordered(
        _recall_score(candidate, weights, maturity_importance, depth)
        for candidate in candidates
        if not candidate.awaits_inversion
    )


def _search_score(candidate: Candidate, mode: SearchMode, depth: int) -> ScoredMemory:
    if mode is SearchMode.SEMANTIC:
        return ScoredMemory(candidate, candidate.similarity or 0.0)
    if mode is SearchMode.KEYWORD:
        # A rank lies below 1: a memory with all the words comes before every one with some.
        return ScoredMemory(candidate, (candidate.rank or 0.0) + (1.0 if candidate.has_all else 0.0))
    if mode is SearchMode.BLENDED:
        return ScoredMemory(candidate, blended_score(candidate.similarity, candidate.coverage or 0.0))
    fused = rrf_score(candidate.semantic_rank, candidate.keyword_rank, depth)
    return ScoredMemory(candidate, fused, fused)


def _recall_score(
    candidate: Candidate, weights: ScoreWeights, maturity_importance: dict[str, float], depth: int
) -> ScoredMemory:
    if candidate.coverage is None:
        fused = rrf_score(candidate.semantic_rank, candidate.keyword_rank, depth)
        fits = normalized_relevance(fused, depth)
    else:
        fused, fits = None, blended_score(candidate.similarity, candidate.coverage)
    weight = maturity_importance[candidate.maturity] if candidate.maturity else candidate.importance or 0.0
    signals = ScoreSignals(
        relevance=fits,
        importance=weight / MAX_IMPORTANCE,
        recency=recency(candidate.idle_days),
        confidence=candidate.confidence or 0.0,
    )
    return ScoredMemory(candidate, composite_score(signals, weights), fused, signals)


def _ordered(scored: Iterable[ScoredMemory]) -> list[ScoredMemory]:
    """Score, then the newer one, then the smaller id: the same order every time."""
    return sorted(scored, key=lambda each: (-each.score, -each.candidate.created_at.timestamp(), each.candidate.id))
