"""Fusion of semantic and keyword results into one score, by rank or by measure."""

from functools import cache

RRF_K = 60


def rrf_score(semantic_rank: int | None, keyword_rank: int | None, depth: int) -> float:
    """The reciprocal rank fusion of two ranks (from 1); a missing or deeper rank counts as the one after the last."""
    after_last = depth + 1
    return sum(1 / (RRF_K + min(rank or after_last, after_last)) for rank in (semantic_rank, keyword_rank))


def normalized_relevance(score: float, depth: int) -> float:
    """The fused score scaled to 0..1 between the lowest and the highest score possible at this depth."""
    lowest, highest = _score_range(depth)
    return min(1.0, max(0.0, (score - lowest) / (highest - lowest)))


def blended_score(similarity: float | None, coverage: float | None) -> float:
    """The mean of similarity and coverage, each from 0 to 1; unlike a rank it measures how well a memory fits."""
    return (max(similarity or 0.0, 0.0) + (coverage or 0.0)) / 2


@cache
def _score_range(depth: int) -> tuple[float, float]:
    return rrf_score(depth, None, depth), rrf_score(1, 1, depth)
