"""Decay of confidence, fusion of ranks and the composite score."""

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from butlers.modules.memory.domain.decay import effective_confidence
from butlers.modules.memory.domain.fusion import normalized_relevance, rrf_score
from butlers.modules.memory.domain.matching import Match, match_of
from butlers.modules.memory.domain.model import CANDIDATE_DECAY_RATE, Permanence
from butlers.modules.memory.domain.scoring import ScoreSignals, ScoreWeights, composite_score, recency

NOW = datetime(2026, 7, 28, 12, tzinfo=UTC)
SHARES = st.floats(0, 1)
RATES = st.one_of(st.sampled_from([each.decay_rate for each in Permanence]), st.floats(0, 10))
DAYS = st.floats(0, 40_000)
RANKS = st.none() | st.integers(1, 100)


@given(SHARES, RATES, DAYS, DAYS)
def test_confidence_never_rises_with_age(confidence, rate, some, more):
    younger, older = NOW - timedelta(days=min(some, more)), NOW - timedelta(days=max(some, more))
    before = effective_confidence(confidence, rate, younger, NOW)
    after = effective_confidence(confidence, rate, older, NOW)
    assert 0 <= after <= before <= confidence


@given(SHARES, st.none() | DAYS)
def test_permanent_confidence_does_not_decay(confidence, days):
    """Scenario: Permanent facts never decay"""
    confirmed = None if days is None else NOW - timedelta(days=days)
    assert effective_confidence(confidence, 0.0, confirmed, NOW) == confidence


@given(SHARES, st.floats(0.0001, 10))
def test_an_unconfirmed_memory_has_no_confidence(confidence, rate):
    """Scenario: Unconfirmed memory returns zero confidence"""
    assert effective_confidence(confidence, rate, None, NOW) == 0.0


@given(SHARES, RATES, DAYS)
def test_a_confirmation_from_the_future_counts_as_one_from_now(confidence, rate, days):
    ahead = effective_confidence(confidence, rate, NOW + timedelta(days=days), NOW)
    assert ahead == pytest.approx(confidence, rel=1e-12, abs=1e-100)


@pytest.mark.parametrize(
    ("permanence", "half_life_days"), [("stable", 346.6), ("standard", 86.6), ("volatile", 23.1), ("ephemeral", 6.9)]
)
def test_confidence_halves_in_the_half_life_of_its_permanence(permanence, half_life_days):
    rate = Permanence.named(permanence).decay_rate
    left = effective_confidence(1.0, rate, NOW - timedelta(days=half_life_days), NOW)
    assert left == pytest.approx(0.5, abs=0.005)


def test_a_candidate_rule_fades_faster_than_a_standard_one():
    assert Permanence.STANDARD.decay_rate < CANDIDATE_DECAY_RATE


@given(DAYS.filter(lambda days: days < 5_000))
def test_recency_halves_every_week(days):
    """Scenario: Recency score uses exponential decay"""
    assert recency(days + 7) == pytest.approx(recency(days) / 2, rel=1e-9)
    assert recency(days) == pytest.approx(math.exp(-math.log(2) / 7 * days))
    assert 0 < recency(days) <= 1


def test_recency_is_full_now_nothing_without_a_reference_and_never_above_one():
    assert recency(0) == recency(-3) == 1.0
    assert recency(None) == 0.0


@given(RANKS, RANKS, st.integers(1, 100))
def test_fusion_is_symmetric(one, other, depth):
    assert rrf_score(one, other, depth) == rrf_score(other, one, depth)


@given(st.integers(1, 100), RANKS, st.integers(1, 100))
def test_a_better_rank_never_fuses_to_a_worse_score(rank, other, step):
    assert rrf_score(rank, other, 200) > rrf_score(rank + step, other, 200)


@given(st.integers(3, 100), st.integers(1, 100))
def test_a_missing_or_deeper_rank_counts_as_the_one_after_the_last(depth, step):
    assert rrf_score(3, None, depth) == 1 / 63 + 1 / (60 + depth + 1) == rrf_score(3, depth + step, depth)


@given(RANKS, RANKS, st.integers(100, 200))
def test_relevance_lies_between_0_and_1_and_is_spread_over_both(one, other, depth):
    assume(one or other)
    assert 0 <= normalized_relevance(rrf_score(one, other, depth), depth) <= 1
    assert normalized_relevance(rrf_score(1, 1, depth), depth) == 1.0
    assert normalized_relevance(rrf_score(depth, None, depth), depth) == 0.0
    assert (
        normalized_relevance(rrf_score(10, None, depth), depth)
        < 0.5
        < normalized_relevance(rrf_score(2, 2, depth), depth)
    )


SIGNALS = st.builds(ScoreSignals, SHARES, SHARES, SHARES, SHARES)
WEIGHTS = st.builds(ScoreWeights, SHARES, SHARES, SHARES, SHARES)


@given(SIGNALS, WEIGHTS, st.sampled_from(["relevance", "importance", "recency", "confidence"]), SHARES)
def test_the_score_never_falls_when_a_part_of_it_rises(signals, weights, name, value):
    raised = signals._replace(**{name: max(value, getattr(signals, name))})
    assert composite_score(raised, weights) >= composite_score(signals, weights)


@given(SIGNALS)
def test_the_score_is_the_weighted_sum_of_its_parts(signals):
    """Scenario: Composite score formula"""
    expected = 0.4 * signals.relevance + 0.3 * signals.importance + 0.2 * signals.recency + 0.1 * signals.confidence
    assert composite_score(signals, ScoreWeights()) == pytest.approx(expected)
    assert 0 <= composite_score(signals, ScoreWeights()) <= 1 + 1e-12


@pytest.mark.parametrize(
    ("similarity", "coverage", "match"),
    [
        (0.9, 0.0, "strong"),
        (0.5, 0.8, "strong"),
        (0.62, 0.0, "fair"),
        (0.4, 0.41, "fair"),
        (0.5, 0.1, "weak"),
        (-0.5, 1.0, "weak"),
        (None, 0.6, "strong"),
        (None, 0.5, "fair"),
        (None, None, "weak"),
    ],
)
def test_a_match_weighs_meaning_twice_as_much_as_words(similarity, coverage, match):
    assert match_of(similarity, coverage) == match


def test_a_band_is_at_least_itself_and_every_worse_one():
    bands = list(Match)
    assert [[one.is_at_least(other) for other in bands] for one in bands] == [
        [True, True, True],
        [False, True, True],
        [False, False, True],
    ]
