"""Pairs of near vectors, against a comparison of each with each."""

import math

from hypothesis import given
from hypothesis import strategies as st

from butlers.modules.memory.domain.record_state import Difference, difference, difference_of_payload, revert
from butlers.modules.memory.domain.similar_pairs import Comparable, nearest_pairs

VECTORS = st.tuples(*[st.floats(-1, 1, width=32)] * 3).filter(lambda each: math.hypot(*each) > 0.1)
ITEMS = st.lists(
    st.builds(
        Comparable, VECTORS, st.sets(st.sampled_from("abc"), max_size=2).map(tuple), st.sampled_from([None, 1, 2])
    ),
    max_size=12,
)


def cosine(one, other):
    return sum(a * b for a, b in zip(one, other, strict=True)) / math.hypot(*one) / math.hypot(*other)


@given(ITEMS)
def test_every_near_pair_of_a_group_is_found_and_no_other(items):
    found = nearest_pairs(items, 0.8, 1_000)
    expected = {
        (i, j)
        for i, one in enumerate(items)
        for j, other in enumerate(items)
        if i < j
        and set(one.groups) & set(other.groups)
        and (one.label == other.label or None in {one.label, other.label})
        and cosine(one.vector, other.vector) >= 0.8
    }
    sure = {pair for pair in expected if abs(cosine(*(items[each].vector for each in pair)) - 0.8) > 1e-4}
    pairs = [(first, second) for first, second, _ in found]
    assert sure <= set(pairs)
    assert all(abs(cosine(items[i].vector, items[j].vector) - similarity) < 1e-4 for i, j, similarity in found)
    assert {pair for pair in pairs if pair not in expected} <= {
        pair for pair in pairs if abs(cosine(*(items[each].vector for each in pair)) - 0.8) <= 1e-4
    }
    assert len(pairs) == len(set(pairs))
    assert [similarity for *_, similarity in found] == sorted((each[2] for each in found), reverse=True)


STATES = st.fixed_dictionaries({name: st.integers(0, 2) for name in ("importance", "status", "tags")})


@given(STATES, STATES)
def test_a_difference_that_is_reverted_gives_the_state_before(before, after):
    assert revert(after, [difference(before, after)]) == before


@given(STATES, STATES)
def test_an_event_and_its_words_together_tell_the_whole_difference(before, after):
    whole = difference(before, after)
    told = difference_of_payload(whole.payload)
    assert "tags" not in told.after
    assert "tags" not in told.before
    assert Difference({**told.before, **whole.words.before}, {**told.after, **whole.words.after}) == whole
