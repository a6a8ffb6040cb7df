"""Pytest plugin for `--fault-table`: the fault table of reliability.md with the test outcome of each row."""

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "reliability.md"
_TABLE_ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.+?) \|$", re.MULTILINE)
_ROW_NUMBER = re.compile(r"::test_row_0*(\d+)_")
_WIDTH = 66


def table() -> dict[int, tuple[str, str]]:
    """The fault and its documented outcome by row number."""
    return {
        int(number): (fault, outcome)
        for number, fault, outcome in _TABLE_ROW.findall(PAGE.read_text(encoding="utf-8"))
    }


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fault-table",
        action="store_true",
        help="Run the tests of the fault table and the slow tests; print the outcome of each row.",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--fault-table"):
        config.pluginmanager.register(FaultTableReport(), "fault table report")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--fault-table`, keep only the tests of its rows and the slow tests."""
    if config.getoption("--fault-table"):
        selected = [item for item in items if _ROW_NUMBER.search(item.nodeid) or item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=[item for item in items if item not in selected])
        items[:] = selected


class FaultTableReport:
    """Counts the passed and failed tests of each row and prints the table."""

    def __init__(self) -> None:
        self._passed: dict[int, set[str]] = defaultdict(set)
        self._failed: dict[int, set[str]] = defaultdict(set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        number = _ROW_NUMBER.search(report.nodeid)
        if number is None:
            return
        if report.failed:
            self._failed[int(number[1])].add(report.nodeid)
        elif report.when == "call" and report.passed:
            self._passed[int(number[1])].add(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("fault table")
        for number, (fault, _) in table().items():
            passed, failed = len(self._passed[number]), len(self._failed[number])
            outcome = f"{failed} FAILED" if failed else (f"ok, {passed} tests" if passed else "NO TEST")
            short = fault if len(fault) <= _WIDTH else fault[: _WIDTH - 1] + "…"
            terminalreporter.write_line(f"{number:>3}  {short:<{_WIDTH}}  {outcome}")
