"""A time limit for the process of a hook."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def end_process_in_time(seconds: float, report: Callable[[str], None]) -> Iterator[None]:
    """End the process, with a report, if the block takes longer.

    A thread that waits for a file lock or a program can't be cancelled, and Python waits for its threads.
    """

    def give_up() -> None:
        report(f"the hook took longer than {seconds:g} s")
        os._exit(0)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
