"""Fingerprints of rules: equal for the same advice, different for any other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from butlers.modules.memory.domain.rule_fingerprint import fingerprint

ANY_TEXT = st.text(st.characters(), max_size=60)
# No fillers, and nothing that looks like a plural.
PLAIN_WORDS = ["ask", "book", "before", "noon", "ada", "7", "stra\u00dfe", "caf\u00e9", "do"]
PLAIN_RULES = st.lists(st.sampled_from(PLAIN_WORDS), min_size=1, max_size=8)
RULES = st.lists(st.sampled_from([*PLAIN_WORDS, "never", "not"]), min_size=1, max_size=8)
MARKS = st.sampled_from([" ", ", ", "; ", " - ", ": ", "! ", "\n", "\u2003", " \u2026 ", "_", " (", ") ", "\u201d "])
FILLERS = st.sampled_from(["the", "a", "an", "any", "always", "please", "should", "must"])


@pytest.mark.parametrize(
    "same",
    [
        "Ask before booking the train",
        "ASK BEFORE BOOKING THE TRAIN",
        "  ask   before\nbooking the train.  ",
        "Ask, before booking the train!",
        "\u201cAsk before booking the train\u201d",
        "Ask before booking a train",
        "Ask before booking trains",
        "Always ask before booking any train",
        "Please make sure to ask before booking the trains.",
        "You should always ask before booking a train",
        "You must ask before booking all trains",
        "**Ask** before _booking_ the train",
        "\uff21sk before booking the train",
    ],
)
def test_case_punctuation_and_fillers_change_nothing(same):
    assert fingerprint(same) == fingerprint("Ask before booking the train")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Don't call after ten", "Don\u2019t call after ten"),
        ("Use the user's name", "Use the user\u2019s name"),
        ("Bring coffee to the caf\u00e9", "Bring coffee to the cafe\u0301"),
        ("Post to STRASSE", "Post to stra\u00dfe"),
    ],
)
def test_equivalent_characters_change_nothing(one, other):
    assert fingerprint(one) == fingerprint(other)


@pytest.mark.parametrize(
    "other",
    [
        "Never ask before booking the train",
        "Do not ask before booking the train",
        "Don't ask before booking the train",
        "Ask after booking the train",
        "Ask before booking the plane",
        "Ask before booking the train twice",
        "Ask before booking 2 trains",
        "Book before asking the train",
        "The train before booking ask",
        "Ask Ada before booking the train",
        "Ask before",
        "",
    ],
)
def test_other_words_make_another_rule(other):
    assert fingerprint(other) != fingerprint("Ask before booking the train")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Call before noon", "Call after noon"),
        ("Always call", "Never call"),
        ("Order 2 coffees", "Order 3 coffees"),
        ("Keep 1.5 litres", "Keep 15 litres"),
        ("Call at 10:30", "Call at 1030"),
        ("Forward mail from Ada to Bob", "Forward mail from Bob to Ada"),
        ("Tea, not coffee", "Coffee, not tea"),
        ("Accept invitations", "Do not accept invitations"),
        ("Check with the boss", "Check with the bos"),
        ("Book with or without breakfast", "Book with breakfast"),
    ],
)
def test_a_word_or_a_number_or_their_order_makes_another_rule(one, other):
    assert fingerprint(one) != fingerprint(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Keep the freezer below -5 degrees", "Keep the freezer below 5 degrees"),
        ("Ask when the price is > 100", "Ask when the price is < 100"),
        ("Tip 10% in restaurants", "Tip 10 \u20ac in restaurants"),
        ("Pay up to $50 without asking", "Pay up to \u20ac50 without asking"),
        ("Answer questions about C++", "Answer questions about C#"),
        ("Play music of the 1980s", "Play music of 1980"),
        ("React with \U0001f44d", "React with \U0001f44e"),
        ("\U0001f44d", "\U0001f44e"),
    ],
)
def test_a_sign_that_changes_the_meaning_makes_another_rule(one, other):
    assert fingerprint(one) != fingerprint(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Do not always book the early train", "Do not book the early train"),
        ("Do not accept all invitations", "Do not accept any invitations"),
        ("Never answer all mails at once", "Never answer any mails at once"),
    ],
)
def test_fillers_count_in_a_negated_rule(one, other):
    assert fingerprint(one) != fingerprint(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("\u0926\u093f\u0928", "\u0926\u093e\u0928"),
        ("\u0e1b\u0e35", "\u0e1b\u0e39"),
        ("\u0baa\u0bbf", "\u0baa\u0bc1"),
    ],
)
def test_vowels_count_in_scripts_that_write_them_as_marks(one, other):
    """Day and gift in Hindi, year and crab in Thai: only the sign for the vowel differs."""
    assert fingerprint(one) != fingerprint(other)


@pytest.mark.parametrize("blank", ["", " \n", "\x00", "...", "!?", "\u200b", "\ud800"])
def test_a_text_without_words_has_an_empty_fingerprint(blank):
    assert fingerprint(blank) == ()


def test_a_rule_of_fillers_alone_is_still_a_rule():
    assert fingerprint("Make sure!") == ("make", "sure")
    assert fingerprint("Always") != fingerprint("All")


@given(ANY_TEXT)
def test_any_text_has_a_fingerprint_that_is_stable(rule):
    first = fingerprint(rule)
    assert fingerprint(rule) == first
    assert all(word and not word.isspace() for word in first)
    second = fingerprint(" ".join(first))
    assert fingerprint(" ".join(second)) == second


@given(RULES, st.lists(MARKS, min_size=8, max_size=8), st.booleans())
def test_marks_and_case_change_nothing(words, marks, upper):
    decorated = "".join(word + mark for word, mark in zip(words, marks, strict=False))
    assert fingerprint(decorated.upper() if upper else decorated) == fingerprint(" ".join(words))


@given(PLAIN_RULES, st.lists(FILLERS, min_size=8, max_size=8))
def test_fillers_change_nothing(words, fillers):
    filled = " ".join(f"{filler} {word}" for word, filler in zip(words, fillers, strict=False))
    assert fingerprint(filled) == fingerprint(" ".join(words))


@given(RULES, RULES)
def test_fingerprints_are_equal_only_for_the_same_words_in_the_same_order(one, other):
    assert (fingerprint(" ".join(one)) == fingerprint(" ".join(other))) == (one == other)
