"""Comparison of statements by their words."""

import pytest

from butlers.modules.memory.domain.fact_comparison import Comparison, Statement, compare, is_said_in
from butlers.modules.memory.domain.update_decisions import UpdateDecision, parse_decisions
from memory.made_twins import CONTRADICTIONS, TWINS, Pair


def compared(pair: Pair) -> Comparison:
    new = Statement(pair.other_content, pair.subject, pair.other_predicate)
    return compare(new, Statement(pair.content, pair.subject, pair.predicate))


def test_twins_say_the_same_and_contradictions_never_do():
    assert sum(compared(pair) is Comparison.SAME for pair in TWINS) >= 19
    assert not any(compared(pair) is Comparison.SAME for pair in CONTRADICTIONS)


def test_facts_about_numbered_things_are_about_different_things():
    new, known = Statement("3 disks", "rack", "server_3_disks"), Statement("2 disks", "rack", "server_2_disks")
    assert compare(new, known) is Comparison.DIFFERENT_THING


@pytest.mark.parametrize(
    ("episode", "is_said"),
    [
        ("Asked: I still love purple, you know\nResult: Noted.", True),
        ("Asked: What shall I wear?\nResult: You love purple.", False),
        ("She loves purple.", False),
    ],
)
def test_only_the_prompt_of_an_episode_tells_what_happened(episode, is_said):
    assert is_said_in(Statement("purple", "user", "favourite_color"), episode) is is_said


@pytest.mark.parametrize(
    ("output", "decisions"),
    [
        ('{"decisions": [{"number": 1, "decision": "update"}]}', {1: UpdateDecision.UPDATE}),
        ('Sure:\n```json\n{"decisions": [{"number": 2, "decision": "both"}]}\n```', {2: UpdateDecision.BOTH}),
        ('{"decisions": [{"number": 9, "decision": "update"}, {"number": "1"}, 7, {"decision": "same"}]}', {}),
        ('{"decisions": [{"number": 1, "decision": "delete everything"}]}', {}),
        ('{"decisions": [', {}),
        ("", {}),
    ],
)
def test_decisions_are_read_and_anything_else_is_left_out(output, decisions):
    assert parse_decisions(output, 2) == decisions
