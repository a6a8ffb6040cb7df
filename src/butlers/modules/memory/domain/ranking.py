"""Ranking of search candidates."""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from butlers.modules.memory.domain.fusion import blended_score, normalized_relevance, rrf_score
from butlers.modules.memory.domain.matching import Match, match_of
from butlers.modules.memory.domain.model import MAX_IMPORTANCE, MemoryType, SearchMode
from butlers.modules.memory.domain.scoring import ScoreSignals, ScoreWeights, composite_score, recency

NEIGHBOUR_SHARE = 0.2
"""The share of its better neighbour's score that an episode of a session gets in a blended search."""


class Candidate(NamedTuple):
    """A memory that a search found, with the values it is ranked by."""

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
    coverage: float | None = None
    """The share of the query that its terms cover."""
    previous_similarity: float | None = None
    previous_coverage: float | None = None
    next_similarity: float | None = None
    next_coverage: float | None = None
    """The measures of the episodes before and after it in its session; only for a blended search."""


class ScoredMemory(NamedTuple):
    """A candidate with its score and the parts of the score."""

    candidate: Candidate
    score: float
    rrf_score: float | None = None
    signals: ScoreSignals | None = None

    @property
    def importance(self) -> float | None:
        """The importance used for the score, from 0 to 10."""
        return self.signals.importance * MAX_IMPORTANCE if self.signals else self.candidate.importance

    @property
    def match(self) -> Match:
        """How well the memory fits the question."""
        return match_of(self.candidate.similarity, self.candidate.coverage)


def rank_search(candidates: Iterable[Candidate], mode: SearchMode, depth: int) -> list[ScoredMemory]:
    """The candidates by the score of the mode, the highest first."""
    return _sort(_search_score(candidate, mode, depth) for candidate in candidates)


def rank_recall(
    candidates: Iterable[Candidate],
    mode: SearchMode,
    weights: ScoreWeights,
    maturity_importance: dict[str, float],
    depth: int,
) -> list[ScoredMemory]:
    """The candidates by composite score, the highest first. Ranks are fused to `depth`."""
    return _sort(_recall_score(candidate, mode, weights, maturity_importance, depth) for candidate in candidates)


def _search_score(candidate: Candidate, mode: SearchMode, depth: int) -> ScoredMemory:
    if mode is SearchMode.SEMANTIC:
        return ScoredMemory(candidate, candidate.similarity or 0.0)
    if mode is SearchMode.KEYWORD:
        # A rank is below 1, so a memory with all the words comes before any with some of them.
        return ScoredMemory(candidate, (candidate.rank or 0.0) + (1.0 if candidate.has_all else 0.0))
    if mode is SearchMode.BLENDED:
        return ScoredMemory(candidate, _blended_score(candidate))
    fused = rrf_score(candidate.semantic_rank, candidate.keyword_rank, depth)
    return ScoredMemory(candidate, fused, fused)


def _blended_score(candidate: Candidate) -> float:
    """How well a memory fits the query; of an episode, the better of its neighbours in the session counts too."""
    own = blended_score(candidate.similarity, candidate.coverage)
    neighbour = max(
        blended_score(candidate.previous_similarity, candidate.previous_coverage),
        blended_score(candidate.next_similarity, candidate.next_coverage),
    )
    return min(1.0, own + NEIGHBOUR_SHARE * neighbour)


def _recall_score(
    candidate: Candidate,
    mode: SearchMode,
    weights: ScoreWeights,
    maturity_importance: dict[str, float],
    depth: int,
) -> ScoredMemory:
    if mode is SearchMode.BLENDED:
        fused, relevance = None, _blended_score(candidate)
    else:
        fused = rrf_score(candidate.semantic_rank, candidate.keyword_rank, depth)
        relevance = normalized_relevance(fused, depth)
    importance = maturity_importance[candidate.maturity] if candidate.maturity else candidate.importance or 0.0
    signals = ScoreSignals(
        relevance=relevance,
        importance=importance / MAX_IMPORTANCE,
        recency=recency(candidate.idle_days),
        confidence=candidate.confidence or 0.0,
    )
    return ScoredMemory(candidate, composite_score(signals, weights), fused, signals)


def _sort(scored: Iterable[ScoredMemory]) -> list[ScoredMemory]:
    """By score, then the newer one, then the smaller id: a total order."""
    return sorted(scored, key=lambda each: (-each.score, -each.candidate.created_at.timestamp(), each.candidate.id))
