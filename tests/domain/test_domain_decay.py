"""Decay of confidence: the time at which it falls below a threshold."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from butlers.modules.memory.domain.decay import effective_confidence, fades_at

CONFIRMED = datetime(2026, 1, 1, tzinfo=UTC)


@given(confidence=st.floats(0.01, 1), rate=st.floats(0.0001, 0.5), threshold=st.floats(0.01, 0.99))
def test_a_memory_has_the_threshold_left_when_it_fades(confidence, rate, threshold):
    fading = fades_at(confidence, rate, CONFIRMED, threshold)
    assert fading is not None
    expected = min(confidence, threshold)
    assert effective_confidence(confidence, rate, CONFIRMED, fading) == pytest.approx(expected, rel=1e-6)


def test_a_standard_fact_fades_after_two_hundred_and_one_days():
    assert fades_at(1.0, 0.008, CONFIRMED, 0.2) == pytest.approx(
        CONFIRMED + timedelta(days=201.18), abs=timedelta(hours=1)
    )


@pytest.mark.parametrize(
    ("confidence", "rate", "confirmed_at", "threshold"),
    [(1.0, 0.0, CONFIRMED, 0.2), (1.0, 0.008, None, 0.2), (1.0, 0.008, CONFIRMED, 0.0), (1.0, 1e-9, CONFIRMED, 0.2)],
    ids=["permanent", "never confirmed", "no threshold", "after the last year"],
)
def test_a_memory_without_a_time_to_fade_has_none(confidence, rate, confirmed_at, threshold):
    assert fades_at(confidence, rate, confirmed_at, threshold) is None
