"""Loader for the statements in sql/."""

from functools import cache
from importlib import resources
from typing import Any

import aiosql


@cache
def statements(name: str) -> Any:
    """The statements of sql/<name>.sql, each an attribute that takes a transaction and named values."""
    return aiosql.from_path(str(resources.files(__package__) / "sql" / f"{name}.sql"), "asyncpg")
