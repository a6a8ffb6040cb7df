"""A progress bar on stderr for long commands."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(activity: str, *, in_bytes: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that takes the done and the total count; it draws only when stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _, __: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    counts = (DownloadColumn(),) if in_bytes else (MofNCompleteColumn(), TextColumn("{task.fields[rate]}"))
    columns = (TextColumn(activity), BarColumn(), *counts)
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(activity, total=None, rate="")

        def update(done: int, total: int) -> None:
            speed = bar.tasks[0].speed
            bar.update(task, completed=done, total=total, rate=f"{speed:,.0f}/s" if speed else "")

        yield update
