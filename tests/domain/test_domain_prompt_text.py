"""Escaping of text for prompts: tags, lines, invisible characters, and what stays as it is."""

import sys
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from butlers.prompt_text import _pieces, escape_between_tags, escape_line, escape_lines, fold_line
from prompt_corpus import HOSTILE, ORDINARY, invisible_in, tags_in

# Arabic and Syriac signs and the number signs of Kaithi: format characters that have a glyph.
VISIBLE_FORMATS = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
SPECIAL = st.sampled_from(
    "<>&/!?| \"'={}\n\t\u200b\u200c\u200d\ufe0f\u00ad\u202e\u20e3\u0338\U0001f469\U0001f3fd\u2764\U0001f3f4"
    "\U000e0067\U000e007f\u0645\u0915\u094d\uff1c\ufe64\uff1e\uff0f\uff01\ufe681#a"
)
TEXTS = st.text(SPECIAL, max_size=30) | st.text(max_size=40) | st.sampled_from(HOSTILE)
ESCAPES = (escape_line, escape_between_tags)


@pytest.mark.parametrize("escape", ESCAPES)
@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_is_one_visible_line_without_tags(escape, text):
    for each in (text, f"tea {text}", f"{text} tea", text * 2):
        line = escape(each)
        assert "\n" not in line
        assert len(line.splitlines()) <= 1
        assert (tags_in(line), invisible_in(line)) == ([], [])


@pytest.mark.parametrize("text", ORDINARY)
def test_an_ordinary_text_stays_as_it_is(text):
    assert escape_line(text) == fold_line(text) == text


@pytest.mark.parametrize("text", ORDINARY)
def test_between_tags_only_brackets_and_ampersands_are_escaped(text):
    line = escape_between_tags(text.replace("\uff1c", "<").replace("\uff1e", ">"))
    assert line.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") == (
        text.replace("\uff1c", "<").replace("\uff1e", ">")
    )
    assert not set(line) & set("<>")


@pytest.mark.parametrize("escape", [*ESCAPES, fold_line, escape_lines])
@given(text=TEXTS)
def test_what_is_escaped_once_stays_the_same(escape, text):
    assert escape(escape(text)) == escape(text)


@given(TEXTS)
def test_no_text_has_a_tag_or_a_second_line(text):
    for escape in ESCAPES:
        line = escape(text)
        assert tags_in(line) == []
        assert len(line.splitlines()) <= 1
        assert line.strip() == " ".join(line.split())


@given(TEXTS, TEXTS)
def test_a_block_keeps_its_lines_and_nothing_else(first, second):
    lines = escape_lines(f"{first}\n{second}").split("\n")
    assert lines == [escape_line(each) for each in f"{first}\n{second}".split("\n")]


def test_every_control_and_format_character_without_a_glyph_is_dropped():
    kept = {
        number
        for number in range(sys.maxunicode + 1)
        if unicodedata.category(chr(number)) in {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}
        and chr(number) in escape_line(f"a{chr(number)}b")
    }
    assert kept == VISIBLE_FORMATS


def test_a_joiner_stays_only_where_it_is_part_of_the_spelling():
    assert escape_line("a\u200cb \u200d\u0915 \u0915\u200d x\u200d\U0001f680") == "ab \u0915 \u0915 x\U0001f680"


@pytest.mark.parametrize(
    "text",
    ["word " * 2_400, "<x" * 6_000, "< a" * 4_000, "<" * 12_000, "\u200b\u00e9" * 6_000, "\U0001f600\u200d" * 6_000],
    ids=["words", "tags", "spaced tags", "brackets", "invisible", "emoji"],
)
def test_the_longest_line_of_a_context_is_escaped_in_milliseconds(text):
    """The time grows with the length only, whatever the text is."""

    def seconds(each: str) -> float:
        started = time.process_time()
        escape_line(each)
        return time.process_time() - started

    assert min(seconds(text) for _ in range(5)) < 0.02
    assert min(seconds(text * 20) for _ in range(3)) < 0.4


@given(st.lists(st.text(max_size=20) | st.sampled_from(HOSTILE), min_size=1, max_size=8), st.integers(1, 400))
def test_a_long_text_is_folded_as_its_words_are(parts, times):
    words = (" ".join(parts) + " ").split(" ") * times
    assert fold_line(" ".join(words)) == " ".join(folded for word in words if (folded := fold_line(word)))


def test_a_long_text_is_folded_in_pieces_of_whole_words():
    """Each substitution holds the interpreter's lock."""
    text = "wörd\u200b " * 60_000
    pieces = list(_pieces(text))
    assert "".join(pieces) == text
    assert max(map(len, pieces)) < 5_000
    assert all(piece.startswith(" ") for piece in pieces[1:])
