"""Promotion, demotion and inversion of rules."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from butlers.modules.memory.domain.maturity import (
    TrackRecord,
    after_harmful_mark,
    after_helpful_mark,
    maturity_after_harm,
    maturity_after_help,
    needs_inversion,
)
from butlers.modules.memory.domain.model import Maturity

LADDER = (Maturity.CANDIDATE, Maturity.ESTABLISHED, Maturity.PROVEN)


def record(maturity=Maturity.CANDIDATE, successes=0, harms=0, days=0, effectiveness=0.0, **more) -> TrackRecord:
    return TrackRecord(maturity, successes + harms, successes, harms, effectiveness, timedelta(days=days), **more)


RECORDS = st.builds(
    record,
    st.sampled_from(Maturity),
    st.integers(0, 40),
    st.integers(0, 10),
    st.integers(0, 60),
    st.floats(0, 1),
    awaits_inversion=st.booleans(),
)


@given(RECORDS)
def test_maturity_moves_one_step_at_a_time_up_on_help_and_down_on_harm(before):
    up, down = maturity_after_help(after_helpful_mark(before)), maturity_after_harm(after_harmful_mark(before))
    if before.maturity is Maturity.ANTI_PATTERN:
        assert up is down is Maturity.ANTI_PATTERN
    else:
        level = LADDER.index(before.maturity)
        assert LADDER.index(up) - level in {0, 1}
        assert LADDER.index(down) - level in {0, -1}


@given(RECORDS)
def test_a_mark_changes_only_its_own_counts(before):
    helped, harmed = after_helpful_mark(before), after_harmful_mark(before)
    assert (helped.applied, helped.successes) == (before.applied + 1, before.successes + 1)
    assert (harmed.applied, harmed.harms) == (before.applied + 1, before.harms + 1)
    assert (helped.harms, harmed.successes) == (before.harms, before.successes)
    assert 0 <= harmed.effectiveness < 1
    assert 0 < helped.effectiveness <= 1
    for after in (helped, harmed):
        same = ("maturity", "age", "awaits_inversion")
        assert [getattr(after, name) for name in same] == [getattr(before, name) for name in same]


@given(RECORDS)
def test_a_rule_that_awaits_inversion_is_never_promoted(before):
    waiting = replace(before, awaits_inversion=True)
    assert maturity_after_help(after_helpful_mark(waiting)) is before.maturity


def test_four_successes_make_up_for_one_harm():
    assert after_harmful_mark(record(successes=4)).effectiveness == pytest.approx(4 / (4 + 4 * 1 + 0.01))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (record(successes=5, effectiveness=0.6), Maturity.ESTABLISHED),
        (record(successes=4, effectiveness=1.0), Maturity.CANDIDATE),
        (record(successes=5, effectiveness=0.59), Maturity.CANDIDATE),
        (record(successes=99, effectiveness=1.0, days=99), Maturity.ESTABLISHED),
        (record(Maturity.ESTABLISHED, successes=15, effectiveness=0.8, days=30), Maturity.PROVEN),
        (record(Maturity.ESTABLISHED, successes=14, effectiveness=1.0, days=30), Maturity.ESTABLISHED),
        (record(Maturity.ESTABLISHED, successes=15, effectiveness=0.79, days=30), Maturity.ESTABLISHED),
        (record(Maturity.ESTABLISHED, successes=15, effectiveness=1.0, days=29), Maturity.ESTABLISHED),
    ],
)
def test_promotion_starts_exactly_at_its_thresholds(before, after):
    assert maturity_after_help(before) is after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (record(Maturity.PROVEN, effectiveness=0.8), Maturity.PROVEN),
        (record(Maturity.PROVEN, effectiveness=0.79), Maturity.ESTABLISHED),
        (record(Maturity.PROVEN, effectiveness=0.1), Maturity.ESTABLISHED),
        (record(Maturity.ESTABLISHED, effectiveness=0.6), Maturity.ESTABLISHED),
        (record(Maturity.ESTABLISHED, effectiveness=0.59), Maturity.CANDIDATE),
        (record(Maturity.CANDIDATE, effectiveness=0.0), Maturity.CANDIDATE),
    ],
)
def test_demotion_starts_exactly_below_its_thresholds(before, after):
    assert maturity_after_harm(before) is after


@pytest.mark.parametrize(
    ("track_record", "needed"),
    [
        (record(harms=3, effectiveness=0.29), True),
        (record(harms=2, effectiveness=0.0), False),
        (record(harms=3, effectiveness=0.3), False),
        (record(Maturity.ANTI_PATTERN, harms=9, effectiveness=0.0), False),
    ],
)
def test_a_rule_needs_inversion_after_three_harms_and_low_effectiveness(track_record, needed):
    assert needs_inversion(track_record) is needed
