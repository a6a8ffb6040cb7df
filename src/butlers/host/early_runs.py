"""Runs of a job before its scheduled time: the interval of the check, and the pause after each run."""

import time
from collections.abc import Awaitable, Callable

from butlers.caller import Caller

CHECK_SECONDS = 15.0
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 600.0, 6 * 3600.0
"""The pause after an early run, failed or not; it doubles while the job stays due."""


class EarlyRuns:
    """The early runs of one job in one process."""

    def __init__(
        self,
        check: Callable[[Caller], Awaitable[bool]],
        caller: Caller,
        check_seconds: float = CHECK_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._check = check
        self._caller = caller
        self._check_seconds = check_seconds
        self._clock = clock
        self._pause = FIRST_PAUSE_SECONDS
        self._next_check = clock()

    def seconds_to_check(self) -> float:
        """Return the seconds until the next check, at most those between two checks."""
        return min(max(self._next_check - self._clock(), 0.0), self._check_seconds)

    async def is_due(self) -> bool:
        """Return whether to run the job now; the caller then runs it, and the next check follows after the pause."""
        if self.seconds_to_check() > 0:
            return False
        self._next_check = self._clock() + self._check_seconds
        if not await self._check(self._caller):
            self._pause = FIRST_PAUSE_SECONDS
            return False
        self._next_check = self._clock() + self._pause
        self._pause = min(2 * self._pause, MAX_PAUSE_SECONDS)
        return True

    def expect_other_process(self) -> None:
        """Check again soon: another process runs the job, so this one made no attempt."""
        self._next_check, self._pause = self._clock() + self._check_seconds, FIRST_PAUSE_SECONDS
