"""The table of faults on the reliability page: every row has a test, and every such test has a row."""

import re
from pathlib import Path

from fault_table import PAGE, table

TESTS = Path(__file__).parents[1]
ROW_TEST = re.compile(r"def test_row_0*(\d+)_")


def covered_rows() -> set[int]:
    """The row numbers in the names of tests."""
    texts = (path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py"))
    return {int(number) for text in texts for number in ROW_TEST.findall(text)}


def test_every_row_of_the_table_has_a_test_that_makes_it_happen():
    assert sorted(table()) == list(range(1, len(table()) + 1))
    assert [number for number in table() if number not in covered_rows()] == []


def test_no_test_names_a_row_that_the_table_does_not_have():
    assert covered_rows() <= set(table())


def test_a_row_that_is_not_read_would_be_noticed():
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"\| *\d", line)]
    assert len(lines) == len(table())
