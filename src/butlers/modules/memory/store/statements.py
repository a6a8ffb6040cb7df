"""Loads the statements of one file."""

from functools import cache
from importlib import resources
from typing import Any

import aiosql


@cache
def statements(name: str) -> Any:
    """The statements of sql/<name>.sql, each a coroutine function of a transaction and named values."""
    return aiosql.from_path(str(resources.files(__package__) / "sql" / f"{name}.sql"), "asyncpg")
