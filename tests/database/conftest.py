"""Fixtures of the database tests: temporary homes and processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from database.butler_processes import Processes, new_home


@pytest.fixture
def own_home() -> Iterator[Path]:
    """A new, empty BUTLERS_HOME for this test only."""
    with new_home() as home:
        yield home


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Programs in their own processes; the test ends those that still run."""
    started = Processes(tmp_path)
    yield started
    started.end()
