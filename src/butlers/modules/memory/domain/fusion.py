"""Reciprocal rank fusion: two rankings become one."""

from functools import cache

K = 60


def rrf(semantic_rank: int | None, keyword_rank: int | None, depth: int) -> float:
    """The fused score of a memory at these ranks (from 1); one that an arm did not find ranks just behind it."""
    missing = depth + 1
    return 1 / (K + (semantic_rank or missing)) + 1 / (K + (keyword_rank or missing))


def relevance(score: float, depth: int) -> float:
    """The fused score on a scale from the least to the largest value fusion can give at this depth."""
    least, largest = _bounds(depth)
    return min(1.0, max(0.0, (score - least) / (largest - least)))


@cache
def _bounds(depth: int) -> tuple[float, float]:
    return rrf(depth, None, depth), rrf(1, 1, depth)
