"""Validation and preparation of texts, and selection of search terms."""

import math
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from butlers.errors import InvalidInput
from butlers.modules.memory.domain.lexical import (
    MAX_EXPECTED_ROWS,
    MAX_PAIRED_TERMS,
    MAX_TERMS,
    MAX_WEIGHTED_TERMS,
    TermSelection,
    TermShares,
    select_terms,
    term_weights,
)
from butlers.modules.memory.domain.model import (
    MAX_KEY_CHARACTERS,
    NewEpisode,
    NewFact,
    NewRule,
    Permanence,
    sanitize_text,
    validate_content,
    validate_short_text,
)
from butlers.modules.memory.domain.text import (
    MAX_INDEXED_BYTES,
    MAX_QUERY_CHARACTERS,
    MAX_VECTOR_BYTES,
    preprocess_query,
    preprocess_text,
    truncate_for_index,
    validate_query,
)

ANY_TEXT = st.text(st.characters(), max_size=80)
BLANKS = st.text(st.sampled_from(" \t\n\r\x00\u00a0\u2003\x85\x1f"), max_size=5)


@given(ANY_TEXT)
def test_preprocessed_text_has_no_nul_bytes(text):
    """Scenario: NUL bytes removed"""
    assert "\x00" not in preprocess_text(f"a\x00{text}\x00b")
    assert preprocess_text("a\x00b") == "ab"


@given(ANY_TEXT)
def test_preprocessed_text_has_single_spaces_only(text):
    """Scenario: Whitespace normalization"""
    prepared = preprocess_text(text)
    assert prepared == " ".join(prepared.split())
    assert preprocess_text("a \t\n b\r\n") == "a b"
    assert preprocess_text(prepared) == prepared


@pytest.mark.parametrize("letter", ["a", "é", "€", "𠀀"])
@pytest.mark.parametrize("before", ["", "a", "ab", "abc"])
def test_text_is_cut_to_a_megabyte_without_splitting_a_character(before, letter):
    long = before + letter * (MAX_INDEXED_BYTES // len(letter.encode()) + 1)
    cut = preprocess_text(long)
    assert MAX_INDEXED_BYTES - 4 < len(cut.encode()) <= MAX_INDEXED_BYTES
    assert long.startswith(cut)
    assert preprocess_query(long) == long


@given(ANY_TEXT)
def test_a_query_is_normalized_and_never_cut(text):
    """Scenario: Search query preprocessing"""
    assert preprocess_query(text) == preprocess_text(text)
    assert preprocess_query(None) == preprocess_query("") == preprocess_query(" \x00") == ""


@given(BLANKS)
def test_a_blank_query_is_refused(text):
    with pytest.raises(InvalidInput, match="query is blank"):
        validate_query(text)


def test_only_the_beginning_of_a_very_long_query_is_searched():
    assert validate_query("word " * 1000) == ("word " * 1000).strip()
    assert validate_query("é" * 1_000_000) == "é" * MAX_QUERY_CHARACTERS


@given(ANY_TEXT)
def test_indexed_text_is_prepared_like_a_query(text):
    assert truncate_for_index(text) == preprocess_text(text)


@pytest.mark.parametrize("letter", ["a", "é", "€", "𠀀"])
def test_indexed_text_is_bounded_in_bytes_without_splitting_a_character(letter):
    long = letter * MAX_VECTOR_BYTES
    assert MAX_VECTOR_BYTES - 4 < len(truncate_for_index(long).encode()) <= MAX_VECTOR_BYTES
    assert long.startswith(truncate_for_index(long))


@given(ANY_TEXT)
def test_sanitized_text_can_be_stored(text):
    storable = sanitize_text(text)
    storable.encode()
    assert "\x00" not in storable
    assert unicodedata.is_normalized("NFC", storable)
    assert sanitize_text(storable) == storable


def test_equivalent_spellings_of_a_name_have_one_key():
    assert NewFact(subject="Zoe\u0308", predicate="p", content="c").key == (
        NewFact(subject=" Zo\u00eb ", predicate="p", content="d").key
    )


@given(BLANKS)
def test_every_kind_of_blank_text_is_refused(blank):
    for build in (
        lambda: NewFact(subject=blank, predicate="p", content="c"),
        lambda: NewFact(subject="s", predicate=blank, content="c"),
        lambda: NewFact(subject="s", predicate="p", content=blank),
        lambda: NewFact(subject="s", predicate="p", content="c", scope=blank),
        lambda: NewRule(content=blank),
        lambda: NewRule(content="c", tags=(blank,)),
        lambda: NewEpisode(content=blank, butler="b"),
        lambda: NewEpisode(content="c", butler=blank),
    ):
        with pytest.raises(InvalidInput, match="is blank"):
            build()


@given(st.text(st.characters(), min_size=1, max_size=700))
def test_a_key_is_one_short_line_that_fits_into_an_index(text):
    """PostgreSQL can't index an entry over 2,704 bytes: scope, subject and predicate together stay below."""
    try:
        short = validate_short_text("subject", text, MAX_KEY_CHARACTERS)
    except InvalidInput:
        return
    assert short.splitlines() == [short] or not set(short) & set("\n\r\x0b\x0c\x85\u2028\u2029")
    assert len(short) <= MAX_KEY_CHARACTERS
    assert len(short.encode()) <= 2 * MAX_KEY_CHARACTERS


def test_a_key_too_long_for_the_index_is_refused_in_any_script():
    assert validate_short_text("subject", "a" * 512, MAX_KEY_CHARACTERS)
    for long in ("a" * 513, "𠀀" * 257, "a" * 10_000):
        with pytest.raises(InvalidInput, match="subject has"):
            validate_short_text("subject", long, MAX_KEY_CHARACTERS)


def test_a_content_is_up_to_a_megabyte_long():
    assert validate_content("content", "é" * 500_000)
    with pytest.raises(InvalidInput, match="longer than a megabyte"):
        validate_content("content", "é" * 500_001)


@pytest.mark.parametrize("importance", [float("nan"), float("inf"), -float("inf"), -0.1, 10.1, 1e6])
def test_an_importance_off_the_scale_is_refused(importance):
    for build in (
        lambda: NewFact(subject="s", predicate="p", content="c", importance=importance),
        lambda: NewEpisode(content="c", butler="b", importance=importance),
    ):
        with pytest.raises(InvalidInput, match="between 0 and 10"):
            build()


def test_every_permanence_has_its_rate():
    """Scenario: Permanence levels and their decay rates"""
    rates = {each.value: each.decay_rate for each in Permanence}
    assert rates == {"permanent": 0.0, "stable": 0.002, "standard": 0.008, "volatile": 0.03, "ephemeral": 0.1}


def test_an_unknown_permanence_is_refused_with_the_list_of_known_ones():
    """Scenario: Invalid permanence rejected"""
    with pytest.raises(ValueError, match="'forever' is not a permanence") as refused:
        Permanence.named("forever")
    assert "permanent, stable, standard, volatile, ephemeral" in str(refused.value)


def test_tags_are_distinct_in_order_and_limited():
    assert NewRule(content="c", tags=("b", "a", " b ")).tags == ("b", "a")
    with pytest.raises(InvalidInput, match="51 tags are too many"):
        NewRule(content="c", tags=tuple(map(str, range(51))))


WORDS = st.lists(st.text(min_size=1, max_size=5), unique=True, max_size=200)


@given(
    WORDS,
    st.dictionaries(st.text(min_size=1, max_size=2), st.floats(0, 1)),
    st.floats(0, 0.001),
    st.integers(1, 10**6),
)
def test_the_selected_terms_are_bounded_the_rarest_and_not_empty(words, common, other, size):
    shares = TermShares(common, other)
    alone, pairs, reserve = select_terms(words, shares, size)
    assert len(alone) <= MAX_TERMS
    assert bool(alone or reserve) == bool(words)
    others = set(words) - set(alone)
    assert not alone or not others or max(map(shares.of, alone)) <= min(map(shares.of, others))
    assert others.issuperset({*reserve, *(word for pair in pairs for word in pair)})
    expected = sum(map(shares.of, alone)) * size + sum(shares.of(one) * shares.of(two) for one, two in pairs) * size
    assert size <= MAX_EXPECTED_ROWS or expected <= MAX_EXPECTED_ROWS * 1.001
    assert len(pairs) == len(set(map(frozenset, pairs))) <= math.comb(MAX_PAIRED_TERMS, 2)


def test_all_terms_are_looked_up_among_few_memories_and_the_rarest_among_many():
    shares = TermShares({"the": 0.9, "user": 0.5, "peanut": 0.01}, 0.0)
    assert select_terms(["the", "user", "peanut"], shares, 1_000) == TermSelection(["peanut", "user", "the"])
    assert select_terms(["the", "user", "peanut"], shares, 100_000) == TermSelection(["peanut"], [], ["user"])


def test_common_terms_are_looked_up_in_pairs_as_far_as_the_budget_goes():
    shares = TermShares({"plan": 0.08, "flight": 0.06, "late": 0.07}, 0.0003)
    found = select_terms(["plan", "flight", "zurich", "late"], shares, 100_000)
    assert found == TermSelection(["zurich"], [("flight", "late"), ("flight", "plan")], ["flight"])


def test_a_term_weighs_more_the_fewer_memories_have_it():
    weights = term_weights(["user", "jazz", "peanut"], [(3, TermShares({"user": 1.0, "jazz": 1 / 3}, 0.0))])
    of_one = {"user": -math.log(3.5 / 4), "jazz": -math.log(1.5 / 4), "peanut": -math.log(0.5 / 4)}
    assert weights == {word: pytest.approx(weight / sum(of_one.values())) for word, weight in of_one.items()}


def test_the_frequencies_of_all_types_that_are_searched_count_by_their_size():
    common, rare = TermShares({"tea": 0.5}, 0.0), TermShares({}, 0.0)
    both = term_weights(["tea", "jazz"], [(90, common), (10, rare)])
    tea, jazz = math.log(101 / 45.5), math.log(101 / 0.5)
    assert both["tea"] == pytest.approx(tea / (tea + jazz))


@given(st.lists(st.text(max_size=2), max_size=40, unique=True), st.dictionaries(st.text(max_size=2), st.floats(0, 1)))
def test_every_term_weighs_something_and_the_heaviest_weigh_1_together(words, common):
    weights = term_weights(words, [(500, TermShares(common, 0.001))])
    assert list(weights) == words
    assert all(weight > 0 for weight in weights.values())
    heaviest = sorted(weights.values())[-MAX_WEIGHTED_TERMS:]
    assert sum(heaviest) == (pytest.approx(1) if words else 0)


def test_the_heaviest_terms_of_a_long_query_are_full_coverage():
    weights = term_weights([f"w{number}" for number in range(60)], [])
    assert weights["w0"] == pytest.approx(1 / MAX_WEIGHTED_TERMS)
