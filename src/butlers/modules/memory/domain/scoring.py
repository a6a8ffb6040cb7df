"""The composite score of recall."""

import math
from dataclasses import dataclass
from typing import NamedTuple

RECENCY_HALF_LIFE_DAYS = 7.0


@dataclass(frozen=True, slots=True)
class ScoreWeights:
    """The weight of each signal."""

    relevance: float = 0.4
    importance: float = 0.3
    recency: float = 0.2
    confidence: float = 0.1


class ScoreSignals(NamedTuple):
    """The signals of a candidate, each in [0, 1]."""

    relevance: float
    importance: float
    recency: float
    confidence: float


def recency(idle_days: float | None) -> float:
    """1 for a memory referenced now, halved for every week since; 0 for one never referenced."""
    if idle_days is None:
        return 0.0
    return min(1.0, math.exp(-math.log(2) / RECENCY_HALF_LIFE_DAYS * max(idle_days, 0.0)))


def composite_score(signals: ScoreSignals, weights: ScoreWeights) -> float:
    """The weighted sum of the signals."""
    return (
        weights.relevance * signals.relevance
        + weights.importance * signals.importance
        + weights.recency * signals.recency
        + weights.confidence * signals.confidence
    )
