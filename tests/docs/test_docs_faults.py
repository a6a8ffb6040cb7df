"""The table of faults is shown by tests, every row of it, and by no test of a row it does not have."""

import re
from pathlib import Path

from rows import PAGE, table

TESTS = Path(__file__).parents[1]
NAMED = re.compile(r"def test_row_0*(\d+)_")


def shown() -> set[int]:
    """The numbers of the rows that tests carry in their names."""
    texts = (path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py"))
    return {int(number) for text in texts for number in NAMED.findall(text)}


def test_every_row_of_the_table_has_a_test_that_makes_it_happen():
    assert sorted(table()) == list(range(1, len(table()) + 1))
    assert [number for number in table() if number not in shown()] == []


def test_no_test_names_a_row_that_the_table_does_not_have():
    assert shown() <= set(table())


def test_a_row_that_is_not_read_would_be_noticed():
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"\| *\d", line)]
    assert len(lines) == len(table())
