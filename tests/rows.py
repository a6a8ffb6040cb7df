"""The table of faults with the outcome of each row: which tests made it happen, and whether all was well."""

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "reliability.md"
_LINE = re.compile(r"^\| (\d+) \| (.+?) \| (.+?) \|$", re.MULTILINE)
_NUMBER = re.compile(r"::test_row_0*(\d+)_")
_WIDTH = 66


def table() -> dict[int, tuple[str, str]]:
    """What goes wrong and what happens, by the number of the row."""
    return {
        int(number): (fault, outcome) for number, fault, outcome in _LINE.findall(PAGE.read_text(encoding="utf-8"))
    }


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rows", action="store_true", help="Print the table of faults with the outcome of each row.")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--rows"):
        config.pluginmanager.register(Rows(), "rows of the table of faults")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With the table asked for, the tests of its rows, and whatever else takes its time."""
    if config.getoption("--rows"):
        kept = [item for item in items if _NUMBER.search(item.nodeid) or item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


class Rows:
    """Counts, row by row, the tests that passed and those that did not."""

    def __init__(self) -> None:
        self._passed: dict[int, set[str]] = defaultdict(set)
        self._failed: dict[int, set[str]] = defaultdict(set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        number = _NUMBER.search(report.nodeid)
        if number is None:
            return
        if report.failed:
            self._failed[int(number[1])].add(report.nodeid)
        elif report.when == "call" and report.passed:
            self._passed[int(number[1])].add(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("the table of faults")
        for number, (fault, _) in table().items():
            passed, failed = len(self._passed[number]), len(self._failed[number])
            outcome = f"{failed} FAILED" if failed else (f"ok, {passed} tests" if passed else "NOT SHOWN")
            short = fault if len(fault) <= _WIDTH else fault[: _WIDTH - 1] + "…"
            terminalreporter.write_line(f"{number:>3}  {short:<{_WIDTH}}  {outcome}")
