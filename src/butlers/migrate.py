"""Alembic to head from code, under an advisory lock."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Branch:
    """A line of migrations, and what the application's role may do with what they make."""

    label: str
    location: Path
    head: str
    rights: Mapping[str, str] = field(default_factory=dict)
