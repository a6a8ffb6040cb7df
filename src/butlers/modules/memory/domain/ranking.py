"""Candidates of a search, and the order they come in."""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from butlers.modules.memory.domain.fusion import blend, relevance, rrf
from butlers.modules.memory.domain.model import MOST_IMPORTANT, MemoryType, Mode
from butlers.modules.memory.domain.scoring import Signals, Weights, composite, recency


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


class Scored(NamedTuple):
    """A candidate with its score and the parts the score is made of."""

    candidate: Candidate
    score: float
    rrf_score: float | None = None
    signals: Signals | None = None

    @property
    def importance(self) -> float | None:
        """The importance that counted, from 0 to 10."""
        return self.signals.importance * MOST_IMPORTANT if self.signals else self.candidate.importance


def found(candidates: Iterable[Candidate], mode: Mode, depth: int) -> list[Scored]:
    """Candidates by what the mode goes by, the best first."""
    return _ordered(_scored(candidate, mode, depth) for candidate in candidates)


def recalled(
    candidates: Iterable[Candidate], weights: Weights, maturity_importance: dict[str, float], depth: int
) -> list[Scored]:
    """Candidates by relevance, importance, recency and confidence together, the best first."""
    return _ordered(
        _composite(candidate, weights, maturity_importance, depth)
        for candidate in candidates
        if not candidate.awaits_inversion
    )


def _scored(candidate: Candidate, mode: Mode, depth: int) -> Scored:
    if mode is Mode.SEMANTIC:
        return Scored(candidate, candidate.similarity or 0.0)
    if mode is Mode.KEYWORD:
        # A rank lies below 1: a memory with all the words comes before every one with some.
        return Scored(candidate, (candidate.rank or 0.0) + (1.0 if candidate.has_all else 0.0))
    if mode is Mode.BLENDED:
        return Scored(candidate, blend(candidate.similarity, candidate.coverage or 0.0))
    fused = rrf(candidate.semantic_rank, candidate.keyword_rank, depth)
    return Scored(candidate, fused, fused)


def _composite(candidate: Candidate, weights: Weights, maturity_importance: dict[str, float], depth: int) -> Scored:
    if candidate.coverage is None:
        fused = rrf(candidate.semantic_rank, candidate.keyword_rank, depth)
        fits = relevance(fused, depth)
    else:
        fused, fits = None, blend(candidate.similarity, candidate.coverage)
    weight = maturity_importance[candidate.maturity] if candidate.maturity else candidate.importance or 0.0
    signals = Signals(
        relevance=fits,
        importance=weight / MOST_IMPORTANT,
        recency=recency(candidate.idle_days),
        confidence=candidate.confidence or 0.0,
    )
    return Scored(candidate, composite(signals, weights), fused, signals)


def _ordered(scored: Iterable[Scored]) -> list[Scored]:
    """Score, then the newer one, then the smaller id: the same order every time."""
    return sorted(scored, key=lambda each: (-each.score, -each.candidate.created_at.timestamp(), each.candidate.id))
