"""Coverage of the specification: every scenario is named by a test."""

import pytest

from scenarios import covered, listed, named_by

FOLDERS = {"memory": ("memory", "domain", "entities"), "host": ("host", "cli")}
parts = pytest.mark.parametrize("part", FOLDERS)


@parts
def test_every_scenario_has_a_test_that_names_it(part):
    named = covered(*FOLDERS[part])
    assert [title for title in listed(part) if title not in named] == []


@parts
def test_every_scenario_a_test_names_is_one_of_the_specification(part):
    assert sorted(covered(*FOLDERS[part]) - set(listed(part))) == []


@parts
def test_the_list_is_in_order_and_names_nothing_twice(part):
    assert sorted(set(listed(part))) == listed(part)


def test_both_lists_are_complete():
    assert len(listed("memory")) > 60
    assert len(listed("host")) == 8


def test_a_scenario_counts_when_a_test_names_it_and_not_when_a_helper_does():
    source = (
        'def test_a_b():\n    """Scenario: One\n    Scenario: Two\n    """\ndef a():\n    """Scenario: Three"""\n'
    )
    assert named_by(source) == {"One", "Two"}
