"""Butlers in processes of their own, to be killed, cut off and stopped."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from database.stage import Processes, new_home
from host.conftest import wire
from memory.conftest import archive, butler, caller, engine, loop, memory, place, stranger, tools

__all__ = ["archive", "butler", "caller", "engine", "loop", "memory", "place", "stranger", "tools", "wire"]


@pytest.fixture
def own_home() -> Iterator[Path]:
    """A BUTLERS_HOME nobody else uses, with nothing in it yet."""
    with new_home() as home:
        yield home


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Programs in processes of their own; whatever is left of them ends with the test."""
    started = Processes(tmp_path)
    yield started
    started.end()
