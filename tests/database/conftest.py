"""Fixtures of the database tests: temporary homes and processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from butlers import app
from database.butler_processes import Processes, configured, new_home
from probe import MODULES


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


@pytest.fixture(scope="module")
async def butler(environment, tmp_path_factory):
    """A butler with three connections at most."""
    config = configured(tmp_path_factory.mktemp("butler"), "[butler.database]\npool_size = 3")
    async with app.open_butler(config, environment, MODULES) as opened:
        yield opened


@pytest.fixture(scope="module")
def database(butler):
    return butler.database


@pytest.fixture(scope="module")
def caller(butler):
    return butler.caller("anna")
