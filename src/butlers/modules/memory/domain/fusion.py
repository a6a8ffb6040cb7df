"""How what two arms say of a memory becomes one score: by its ranks in both, or by the measures themselves."""

from functools import cache

RRF_K = 60


def rrf_score(semantic_rank: int | None, keyword_rank: int | None, depth: int) -> float:
    """The fused score of a memory at these ranks (from 1); one that an arm did not find ranks just behind it."""
    missing = depth + 1
    return 1 / (RRF_K + (semantic_rank or missing)) + 1 / (RRF_K + (keyword_rank or missing))


def normalized_relevance(score: float, depth: int) -> float:
    """The fused score on a scale from the least to the largest value fusion can give at this depth."""
    least, largest = _bounds(depth)
    return min(1.0, max(0.0, (score - least) / (largest - least)))


def blended_score(similarity: float | None, coverage: float) -> float:
    """Nearness and words, half and half, each from 0 to 1: unlike a rank it says how well a memory fits."""
    return (max(similarity or 0.0, 0.0) + coverage) / 2


@cache
def _bounds(depth: int) -> tuple[float, float]:
    return rrf_score(depth, None, depth), rrf_score(1, 1, depth)
