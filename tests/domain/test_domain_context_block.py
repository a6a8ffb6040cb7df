"""The context block: its budgets, its lines and its resistance to hostile content."""

import math
from datetime import UTC, datetime
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from butlers.modules.memory.domain.context_block import (
    CHARACTERS_PER_TOKEN,
    HEADING,
    NOTICE,
    Line,
    LineOutcome,
    Section,
    episode_line,
    fact_line,
    rule_line,
)
from butlers.modules.memory.domain.context_block import render_context as render_block
from butlers.modules.memory.domain.tokens import MAX_PIECE_CHARACTERS, count_tokens_of, split_pieces
from prompt_corpus import HOSTILE, tags_in

TITLES = ("Key Facts", "Active Rules", "Recent Episodes")
NOW = datetime(2026, 7, 28, 12, tzinfo=UTC)
# No surrogates: stored texts have none.
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=60)
CONTENTS = TEXTS | st.sampled_from(HOSTILE)


def count_words(text: str) -> int:
    return len(text.split())


def count_bytes(text: str) -> int:
    return len(text.encode())


COUNTERS = st.sampled_from([count_words, count_bytes])
SHARES = st.tuples(st.floats(0, 0.33), st.floats(0, 0.33), st.floats(0, 0.33)) | st.just((0.6, 0.25, 0.15))


def section(title: str, lines: list[str], share: float) -> Section:
    return Section(title, [Line(len(text), partial(str, text)) for text in lines], share)


def texts(part: Section) -> list[str]:
    return [line.write() for line in part.lines]


@st.composite
def sections(draw) -> list[Section]:
    facts = [fact_line(draw(CONTENTS), draw(CONTENTS), each, 0.5) for each in draw(st.lists(CONTENTS, max_size=6))]
    rules = [rule_line(each, "candidate", 0.0) for each in draw(st.lists(CONTENTS, max_size=6))]
    episodes = [episode_line(each, NOW) for each in draw(st.lists(CONTENTS, max_size=6))]
    parts = zip(TITLES, (facts, rules, episodes), draw(SHARES), strict=True)
    return [section(*part) for part in parts]


def render_context(parts, budget, count) -> str:
    """The text of the block."""
    return render_block(parts, budget, count).text


def lines_by_section(text: str) -> dict[str, list[str]]:
    """The lines below each heading."""
    found: dict[str, list[str]] = {}
    for block in text.split("\n## ")[1:]:
        title, *lines = block.rstrip("\n").split("\n")
        found[title] = lines
    return found


@given(sections(), st.integers(17, 400), COUNTERS)
def test_both_budgets_hold_for_any_content(parts, budget, count):
    """Scenario: Token budget enforcement"""
    text = render_context(parts, budget, count)
    assert count(text) <= budget
    assert len(text) <= budget * CHARACTERS_PER_TOKEN


@given(sections(), st.integers(17, 400), COUNTERS)
def test_only_complete_lines_are_shown_each_below_its_own_heading(parts, budget, count):
    """Scenario: Context structure"""
    text = render_context(parts, budget, count)
    shown = lines_by_section(text)
    assert text.splitlines()[0] == HEADING.strip()
    assert list(shown) == [title for title in TITLES if title in shown]
    for part in parts:
        lines = shown.get(part.title, [])
        remaining = iter(texts(part))
        assert all(line in remaining for line in lines), "lines of the section, in order"
        assert all(line.startswith("- ") for line in lines)
    plain = HEADING + (NOTICE if shown else "")
    assert text == plain + "".join(f"\n## {title}\n" + "".join(f"{x}\n" for x in xs) for title, xs in shown.items())


@given(sections(), st.integers(17, 400), COUNTERS)
def test_the_same_memories_give_the_same_text(parts, budget, count):
    assert render_context(parts, budget, count) == render_context(parts, budget, count)


@given(sections())
def test_with_room_for_everything_everything_is_shown(parts):
    parts = [Section(part.title, part.lines, 0.3) for part in parts]
    shown = lines_by_section(render_context(parts, 10**6, count_words))
    assert shown == {part.title: texts(part) for part in parts if part.lines}


@given(st.integers(1, 30), st.integers(60, 800))
def test_the_lowest_scored_are_left_out_first(lines, budget):
    """Scenario: Context prioritizes highest-scored memories"""
    facts = [f"- fact number {number:02d}" for number in range(lines)]
    shown = lines_by_section(render_context([section("Key Facts", facts, 1.0)], budget, count_bytes)).get(
        "Key Facts", []
    )
    assert shown == facts[: len(shown)]


@given(st.integers(0, 20), st.integers(100, 400))
def test_unused_budget_goes_to_the_next_section(facts, budget):
    """Scenario: Deterministic section quotas"""
    rules = [f"- rule {number:03d}" for number in range(200)]

    def rules_shown(fact_lines: list[str]) -> int:
        parts = [section("Key Facts", fact_lines, 0.5), section("Active Rules", rules, 0.5)]
        return len(lines_by_section(render_context(parts, budget, count_bytes)).get("Active Rules", []))

    shown = [f"- fact {number:03d}" for number in range(facts)]
    assert rules_shown([]) >= rules_shown(shown)
    own_share = 0.5 * (budget - count_bytes(HEADING + NOTICE)) - count_bytes("\n## Active Rules\n")
    assert rules_shown(shown) >= max(0, math.floor(own_share / count_bytes("- rule 000\n")))


def test_a_section_takes_no_more_than_its_share_before_the_others():
    facts, rules = [f"- fact {n:03d}" for n in range(99)], [f"- rule {n:03d}" for n in range(99)]
    text = render_context([section("Key Facts", facts, 0.6), section("Active Rules", rules, 0.4)], 1000, count_bytes)
    spent = {title: count_bytes("\n".join(lines)) for title, lines in lines_by_section(text).items()}
    assert spent["Key Facts"] <= 600
    assert spent["Active Rules"] >= 300


def test_a_line_that_can_never_fit_is_skipped():
    lines = ["- " + "x" * 10_000, "- small"]
    assert lines_by_section(render_context([section("Key Facts", lines, 1.0)], 200, count_bytes)) == {
        "Key Facts": ["- small"]
    }


def test_the_tokens_of_a_line_that_is_too_long_are_not_counted():
    counted = []

    def count(text):
        counted.append(len(text))
        return count_bytes(text)

    render_context([section("Key Facts", ["- " + "x" * 900_000, "- small"], 1.0)], 200, count)
    assert max(counted) < 1_000


def test_of_a_line_with_too_many_tokens_only_the_first_are_counted():
    counted = []

    def count(text):
        counted.append(len(text))
        return count_bytes(text)

    lines = ["- " + "é " * 60_000, "- small"]
    text = render_context([section("Key Facts", lines, 1.0)], 40_000, count)
    assert lines_by_section(text) == {"Key Facts": ["- small"]}
    assert sum(counted) < 40_000


def test_lines_that_do_not_fit_are_read_up_to_a_limit():
    read = []

    def line(number):
        read.append(number)
        return f"- {number} " + "é" * 19_000

    lines = [Line(19_000, partial(line, number)) for number in range(60)]
    assert render_context([Section("Key Facts", lines, 1.0)], 5_000, count_bytes) == HEADING
    assert read == list(range(10))


@pytest.mark.parametrize("lines", [[], ["- " + "x" * 500]])
def test_with_nothing_to_show_there_is_the_heading_alone(lines):
    assert render_context([section("Key Facts", lines, 1.0)], 100, count_bytes) == HEADING


@given(CONTENTS, CONTENTS, CONTENTS)
def test_no_content_leaves_its_line(subject, predicate, content):
    lines = (
        fact_line(subject, predicate, content, 0.5),
        rule_line(content, "proven", 1.0),
        episode_line(content, NOW),
    )
    for line in lines:
        assert len(line.splitlines()) == 1
        assert tags_in(line) == []
        assert line.startswith("- ")


def test_the_formats_of_the_lines():
    assert fact_line("user", "name", "John", 1) == "- [user] [name]: John (confidence: 1.00)"
    assert rule_line("Ask", "proven", 2 / 3) == "- Ask (maturity: proven, effectiveness: 0.67)"
    assert episode_line("Asked", NOW) == "- [2026-07-28] Asked"


def test_an_unknown_token_counts_as_its_bytes():
    assert count_tokens_of("hi 👩 x", ["hi", "[UNK]", "x"], [(0, 2), (3, 4), (5, 6)]) == 1 + 4 + 1


@given(st.lists(st.sampled_from(["word", "x" * 3_000, "\u00e9" * 500, " ", "\n"]), max_size=12).map(" ".join))
def test_the_pieces_of_a_text_are_short_and_make_up_the_text(text):
    pieces = list(split_pieces(text))
    assert "".join(pieces) == text
    assert max(map(len, pieces)) <= MAX_PIECE_CHARACTERS
    assert all(piece.startswith(" ") or "x" * 1_000 in piece for piece in pieces[1:]), "words are not cut"


@given(sections(), st.integers(17, 400), COUNTERS)
def test_every_line_has_an_outcome_and_the_told_ones_are_the_text(parts, budget, count):
    block = render_block(parts, budget, count)
    assert [len(filled.lines) for filled in block.sections] == [len(part.lines) for part in parts]
    shown = lines_by_section(block.text)
    for part, filled in zip(parts, block.sections, strict=True):
        told = [line for line, placed in zip(texts(part), filled.lines, strict=True) if placed.outcome == "told"]
        assert told == shown.get(part.title, [])
        assert filled.used <= max(filled.given, 0) + 1e-6


@given(sections(), st.integers(17, 400), COUNTERS)
def test_the_tokens_of_a_block_are_those_of_its_parts(parts, budget, count):
    block = render_block(parts, budget, count)
    assert count(block.text) <= block.tokens <= budget


def test_a_line_without_room_says_what_it_needs_and_what_is_left():
    lines = ["- " + "a" * 60, "- " + "b" * 60, "- short"]
    block = render_block([section("Key Facts", lines, 1.0)], len(HEADING + NOTICE) + 100, count_bytes)
    told, refused, after = block.sections[0].lines
    assert (told.outcome, told.tokens) == (LineOutcome.TOLD, 63)
    assert refused.outcome is after.outcome is LineOutcome.NO_ROOM
    assert refused.tokens == 63
    assert refused.left == 100 - 63 - len("\n## Key Facts\n")


def test_a_line_that_fits_no_section_is_too_long_and_keeps_no_other_out():
    block = render_block([section("Key Facts", ["- " + "a" * 900, "- short"], 1.0)], 200, count_bytes)
    assert [placed.outcome for placed in block.sections[0].lines] == ["too_long", "told"]
