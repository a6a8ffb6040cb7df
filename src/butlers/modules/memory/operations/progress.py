"""Progress callback of operations that work in batches."""

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with the number of items done and the total."""


def no_progress(_done: int, _total: int) -> None:
    """Default callback: report nothing."""
