"""Whom a name means: how well a name matches, and what speaks for one candidate rather than another."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID

from butlers.errors import InvalidInput
from butlers.modules.memory.domain.text import preprocess_query, truncate_query

FUZZY_FROM = 3
"""A name of one or two characters is like too many others."""
MOST_CANDIDATES = 50
"""For each kind of match."""
MOST_FACTS = 500
"""Of each candidate, the latest, that are compared with the hints."""
LARGEST_BOOST = 20.0
LARGEST_DOMAIN_SCORE = 1e6


class NameMatch(StrEnum):
    """How a name was found, the best first."""

    EXACT = "exact"
    ALIAS = "alias"
    PREFIX = "prefix"
    FUZZY = "fuzzy"

    @property
    def score(self) -> float:
        """What the match alone is worth."""
        return _SCORES[self]


_SCORES = {NameMatch.EXACT: 100.0, NameMatch.ALIAS: 80.0, NameMatch.PREFIX: 50.0, NameMatch.FUZZY: 20.0}


@dataclass(frozen=True, slots=True)
class EntityCandidate:
    """An entity that a name may mean."""

    id: UUID
    canonical_name: str
    entity_type: str
    aliases: tuple[str, ...]
    match: NameMatch
    as_written: bool = True
    """Whether the name is the same but for case; if not, accents differ as well."""


@dataclass(frozen=True, slots=True)
class ResolutionHints:
    """What else is known about whom a name means."""

    topic: str = ""
    mentioned_with: tuple[str, ...] = ()
    domain_scores: Mapping[UUID, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for score in self.domain_scores.values():
            if not math.isfinite(score) or abs(score) > LARGEST_DOMAIN_SCORE:
                raise InvalidInput(
                    "a domain score is no score", hint=f"Send numbers of {LARGEST_DOMAIN_SCORE:.0f} at the most."
                )

    @property
    def text(self) -> str:
        """Everything that was said about the surroundings of the name; of very much, the beginning."""
        return truncate_query(preprocess_query(" ".join((self.topic, *self.mentioned_with))))


@dataclass(frozen=True, slots=True)
class KeywordOverlap:
    """How many keywords hints and facts have in common, and how many there are in all."""

    shared: int
    total: int

    @property
    def boost(self) -> float:
        """The share of the words that are common, as points."""
        return LARGEST_BOOST * self.shared / self.total if self.total else 0.0


@dataclass(frozen=True, slots=True)
class ScoredCandidate:
    """A candidate and what it is worth."""

    candidate: EntityCandidate
    score: float


def best_matches(found: Iterable[EntityCandidate]) -> list[EntityCandidate]:
    """Each entity once, by its best match.

    A name that differs in accents counts as the name itself only where nobody is called as it was written.
    """
    candidates = sorted(found, key=lambda each: -each.match.score)
    written = {each.match for each in candidates if each.as_written}
    best: dict[UUID, EntityCandidate] = {}
    for each in candidates:
        outdone = each.match in {NameMatch.EXACT, NameMatch.ALIAS} and not each.as_written and each.match in written
        match = NameMatch.PREFIX if outdone else each.match
        if each.id not in best or match.score > best[each.id].match.score:
            best[each.id] = EntityCandidate(each.id, each.canonical_name, each.entity_type, each.aliases, match)
    return list(best.values())


def rank_candidates(
    candidates: Iterable[EntityCandidate],
    overlaps: Mapping[UUID, KeywordOverlap],
    domain_scores: Mapping[UUID, float],
) -> list[ScoredCandidate]:
    """The candidates with their scores, the likeliest first; equal ones by name, then by id."""

    def score(candidate: EntityCandidate) -> float:
        boost = overlaps[candidate.id].boost if candidate.id in overlaps else 0.0
        return round(candidate.match.score + boost + domain_scores.get(candidate.id, 0.0), 4)

    scored = (ScoredCandidate(each, score(each)) for each in candidates)
    return sorted(scored, key=lambda each: (-each.score, each.candidate.canonical_name, each.candidate.id))
