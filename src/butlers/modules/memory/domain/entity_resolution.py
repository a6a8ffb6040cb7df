"""Scoring of the entities a name may mean."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from uuid import UUID

from butlers.errors import InvalidInput
from butlers.modules.memory.domain.text import preprocess_query, truncate_query

FUZZY_FROM = 3
"""Characters a name needs for fuzzy matching; a shorter one resembles too many others."""
MAX_CANDIDATES = 50
"""Candidates for each kind of match."""
MAX_COMPARED_FACTS = 500
"""The latest facts of each candidate that are compared with the hints."""
MAX_BOOST = 20.0
MAX_DOMAIN_SCORE = 1e6


class NameMatch(StrEnum):
    """The kinds of match between a name and an entity, the best first."""

    EXACT = "exact"
    ALIAS = "alias"
    PREFIX = "prefix"
    FUZZY = "fuzzy"

    @property
    def score(self) -> float:
        """The points for the match alone."""
        return _SCORES[self]


_SCORES = {NameMatch.EXACT: 100.0, NameMatch.ALIAS: 80.0, NameMatch.PREFIX: 50.0, NameMatch.FUZZY: 20.0}


@dataclass(frozen=True, slots=True)
class EntityCandidate:
    """An entity that a name may mean, with its match."""

    id: UUID
    canonical_name: str
    entity_type: str
    aliases: tuple[str, ...]
    match: NameMatch
    as_written: bool = True
    """Whether the name differs at most in case; otherwise its accents differ too."""


@dataclass(frozen=True, slots=True)
class ResolutionHints:
    """Context that tells entities of the same name apart."""

    topic: str = ""
    mentioned_with: tuple[str, ...] = ()
    domain_scores: Mapping[UUID, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for score in self.domain_scores.values():
            if not math.isfinite(score) or abs(score) > MAX_DOMAIN_SCORE:
                raise InvalidInput(
                    "a domain score is out of range",
                    hint=f"Send numbers from {-MAX_DOMAIN_SCORE:.0f} to {MAX_DOMAIN_SCORE:.0f}.",
                )

    @property
    def text(self) -> str:
        """The topic and the words beside the name as one query, cut to the length a query may have."""
        return truncate_query(preprocess_query(" ".join((self.topic, *self.mentioned_with))))


@dataclass(frozen=True, slots=True)
class KeywordOverlap:
    """The number of keywords hints and facts share, and of all their keywords."""

    shared: int
    total: int

    @property
    def boost(self) -> float:
        """The share of common keywords, as points."""
        return MAX_BOOST * self.shared / self.total if self.total else 0.0


@dataclass(frozen=True, slots=True)
class ScoredCandidate:
    """A candidate with its score."""

    candidate: EntityCandidate
    score: float


def best_matches(found: Iterable[EntityCandidate]) -> list[EntityCandidate]:
    """Each entity once, with its best match.

    A name with other accents is an exact or alias match only if no candidate matches as written.
    """
    candidates = sorted(found, key=lambda each: -each.match.score)
    matched_as_written = {each.match for each in candidates if each.as_written}
    best: dict[UUID, EntityCandidate] = {}
    for each in candidates:
        is_full_name = each.match in {NameMatch.EXACT, NameMatch.ALIAS}
        is_downgraded = is_full_name and not each.as_written and each.match in matched_as_written
        match = NameMatch.PREFIX if is_downgraded else each.match
        if each.id not in best or match.score > best[each.id].match.score:
            best[each.id] = replace(each, match=match, as_written=True)
    return list(best.values())


def rank_candidates(
    candidates: Iterable[EntityCandidate],
    overlaps: Mapping[UUID, KeywordOverlap],
    domain_scores: Mapping[UUID, float],
) -> list[ScoredCandidate]:
    """The candidates by score, the highest first; equal ones by name, then by id."""

    def score(candidate: EntityCandidate) -> float:
        boost = overlaps[candidate.id].boost if candidate.id in overlaps else 0.0
        return round(candidate.match.score + boost + domain_scores.get(candidate.id, 0.0), 4)

    scored = (ScoredCandidate(each, score(each)) for each in candidates)
    return sorted(scored, key=lambda each: (-each.score, each.candidate.canonical_name, each.candidate.id))
