"""Ranking of search candidates."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from butlers.modules.memory.domain.fusion import rrf_score
from butlers.modules.memory.domain.model import MemoryType, SearchMode
from butlers.modules.memory.domain.ranking import Candidate, rank_recall, rank_search
from butlers.modules.memory.domain.scoring import ScoreWeights

NOW = datetime(2026, 7, 28, 12, tzinfo=UTC)
MATURITY = {"candidate": 4.0, "established": 6.0, "proven": 8.0, "anti_pattern": 6.0}
RANKS = st.none() | st.integers(1, 3)


def fact(number: int, **known) -> Candidate:
    return Candidate(MemoryType.FACT, UUID(int=number), known.pop("created_at", NOW), **known)


@st.composite
def candidates(draw) -> list[Candidate]:
    """Candidates, many of them with equal scores."""
    numbers = draw(st.lists(st.integers(0, 10**6), unique=True, max_size=12))
    return [
        fact(
            number,
            created_at=NOW - timedelta(days=draw(st.integers(0, 1))),
            semantic_rank=draw(RANKS),
            keyword_rank=draw(RANKS),
            similarity=draw(st.sampled_from([0.1, 0.5])),
            rank=draw(st.none() | st.sampled_from([0.1, 0.5])),
            has_all=draw(st.none() | st.booleans()),
            importance=5.0,
            idle_days=1.0,
            confidence=1.0,
        )
        for number in numbers
    ]


def is_sorted(scored) -> bool:
    keys = [(-each.score, -each.candidate.created_at.timestamp(), each.candidate.id) for each in scored]
    return keys == sorted(keys)


@given(candidates(), st.sampled_from(SearchMode), st.randoms(use_true_random=False))
def test_the_order_is_total_and_does_not_depend_on_the_order_of_arrival(some, mode, random):
    """Scenario: Deterministic ordering with tie-breaking"""
    shuffled = random.sample(some, len(some))
    assert rank_search(some, mode, 20) == rank_search(shuffled, mode, 20)
    assert is_sorted(rank_search(some, mode, 20))
    assert rank_recall(some, mode, ScoreWeights(), MATURITY, 100) == rank_recall(
        shuffled, mode, ScoreWeights(), MATURITY, 100
    )
    assert is_sorted(rank_recall(some, mode, ScoreWeights(), MATURITY, 100))


def test_among_equals_the_newer_comes_first_and_then_the_smaller_id():
    """Scenario: Context output remains deterministic under score ties"""
    same = {"semantic_rank": 1, "importance": 5.0, "idle_days": 0.0, "confidence": 1.0}
    old, second, first = fact(1, created_at=NOW - timedelta(seconds=1), **same), fact(3, **same), fact(2, **same)
    ordered = rank_recall([old, second, first], SearchMode.HYBRID, ScoreWeights(), MATURITY, 100)
    assert [each.candidate for each in ordered] == [first, second, old]


def test_hybrid_goes_by_the_fused_score_and_shows_it():
    both, one = fact(1, semantic_rank=2, keyword_rank=1), fact(2, semantic_rank=1)
    first, second = rank_search([one, both], SearchMode.HYBRID, 20)
    assert (first.candidate, first.score, first.rrf_score) == (both, rrf_score(2, 1, 20), rrf_score(2, 1, 20))
    assert second.score == 1 / 61 + 1 / (60 + 21)


def test_a_memory_with_all_the_words_comes_before_one_with_some():
    some, every = fact(1, rank=0.9, has_all=False), fact(2, rank=0.01, has_all=True)
    assert [each.candidate for each in rank_search([some, every], SearchMode.KEYWORD, 20)] == [every, some]


def test_a_rule_takes_its_importance_from_its_maturity():
    same = {"semantic_rank": 1, "idle_days": 0.0, "confidence": 0.5}
    rules = [Candidate(MemoryType.RULE, UUID(int=n), NOW, maturity=m, **same) for n, m in enumerate(MATURITY)]
    ordered = rank_recall(rules, SearchMode.HYBRID, ScoreWeights(), MATURITY, 100)
    assert [each.candidate.maturity for each in ordered] == ["proven", "established", "anti_pattern", "candidate"]
    assert [each.importance for each in ordered] == [8.0, 6.0, 6.0, 4.0]


def test_relevance_outweighs_recent_use():
    """With every relevance close to 1, recent memories would come before the one that answers the query."""
    relevant = fact(1, semantic_rank=1, keyword_rank=1, importance=5.0, idle_days=30.0, confidence=1.0)
    recent = fact(2, semantic_rank=9, importance=5.0, idle_days=0.0, confidence=1.0)
    assert rank_recall([recent, relevant], SearchMode.HYBRID, ScoreWeights(), MATURITY, 100)[0].candidate == relevant


def test_blended_is_the_mean_of_similarity_and_coverage():
    near, matching, both = (
        fact(1, similarity=0.8, coverage=0.0),
        fact(2, similarity=-0.2, coverage=0.5),
        fact(3, similarity=0.5, coverage=0.6),
    )
    ordered = rank_search([near, matching, both], SearchMode.BLENDED, 100)
    assert [each.candidate for each in ordered] == [both, near, matching]
    assert [each.score for each in ordered] == pytest.approx([0.55, 0.4, 0.25])
    assert ordered[0].rrf_score is None


def test_an_episode_gets_a_share_of_the_better_of_its_neighbours():
    alone = fact(1, similarity=0.4, coverage=0.4)
    between = alone._replace(previous_similarity=0.2, previous_coverage=0.0, next_similarity=0.6, next_coverage=0.4)
    at_the_top = alone._replace(similarity=1.0, coverage=1.0, next_similarity=1.0, next_coverage=1.0)
    scores = [rank_search([each], SearchMode.BLENDED, 100)[0].score for each in (alone, between, at_the_top)]
    assert scores == pytest.approx([0.4, 0.4 + 0.2 * 0.5, 1.0])


def test_recall_takes_relevance_from_the_measures_in_blended_mode():
    found = fact(1, similarity=0.5, semantic_rank=1, keyword_rank=1, coverage=0.7)
    by_rank, by_measure = (
        rank_recall([found], mode, ScoreWeights(), MATURITY, 20)[0]
        for mode in (SearchMode.HYBRID, SearchMode.BLENDED)
    )
    assert [each.signals and each.signals.relevance for each in (by_rank, by_measure)] == pytest.approx([1.0, 0.6])
    assert [each.rrf_score is None for each in (by_rank, by_measure)] == [False, True]


def test_fresh_memories_of_one_importance_are_recalled_in_the_order_of_a_hybrid_search():
    """Two late ranks do not outweigh the first rank of one arm, though recall looks deeper than it answers."""
    same = {"importance": 5.0, "idle_days": 0.0, "confidence": 1.0}
    ranks = [(1, None), (None, 1), (40, 45), (30, 90), (2, 60), (70, 2), (3, 4)]
    found = [fact(n, semantic_rank=a, keyword_rank=b, **same) for n, (a, b) in enumerate(ranks)]
    recalled = rank_recall(found, SearchMode.HYBRID, ScoreWeights(), MATURITY, 20)
    assert [each.candidate for each in recalled] == [
        each.candidate for each in rank_search(found, SearchMode.HYBRID, 20)
    ]
    assert [each.candidate.id.int for each in recalled[:3]] == [6, 0, 1]
    assert {each.signals.relevance for each in recalled[-2:]} == {0.0}
