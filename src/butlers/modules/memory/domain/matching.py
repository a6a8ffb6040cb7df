"""Match bands: how well a memory fits a question, in one word."""

from enum import StrEnum

MIN_STRONG_FIT = 0.6
MIN_FAIR_FIT = 0.4
"""The least fit of a band; `bench/matching.py --calibrate` measures what they are worth."""


class Match(StrEnum):
    """The bands, the best first."""

    STRONG = "strong"
    FAIR = "fair"
    WEAK = "weak"

    def is_at_least(self, least: "Match") -> bool:
        """Whether it is as good as another band, or better."""
        bands = list(Match)
        return bands.index(self) <= bands.index(least)


def fit_of(similarity: float | None, coverage: float | None) -> float:
    """How well a memory fits a question, from 0 to 1; meaning counts twice as much as words.

    Without a similarity the words alone decide.
    """
    if similarity is None:
        return coverage or 0.0
    return (2 * max(similarity, 0.0) + (coverage or 0.0)) / 3


def match_of(similarity: float | None, coverage: float | None) -> Match:
    """The band of a memory."""
    fit = fit_of(similarity, coverage)
    if fit >= MIN_STRONG_FIT:
        return Match.STRONG
    return Match.FAIR if fit >= MIN_FAIR_FIT else Match.WEAK
