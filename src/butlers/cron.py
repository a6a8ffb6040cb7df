"""When a cron expression fires, on the clock of the place the butler runs in: the one people mean by it."""

from datetime import UTC, datetime, timedelta

from cronsim import CronSim, CronSimError

HELP = "five fields are allowed: minute, hour, day of month, month, day of week, as in '0 8 * * *'"
_A_MONDAY = datetime(2024, 1, 1, tzinfo=UTC)


def valid(expression: str) -> str:
    """The expression itself, when there is a moment it names."""
    try:
        fires = next(CronSim(expression, _A_MONDAY), None)
    except (CronSimError, ValueError, AssertionError) as error:
        raise ValueError(f"is not a cron expression ({error}); {HELP}") from None
    if fires is None:
        raise ValueError(f"names no day that ever comes; {HELP}")
    return expression


def local_time() -> datetime:
    """Now, where the butler runs."""
    return datetime.now(UTC).astimezone()


def due(expression: str, now: datetime) -> datetime:
    """The latest moment at or before `now` that the expression names."""
    # Whole seconds: with a fraction left in, the moment could be one that is still to come.
    after = now.replace(microsecond=0) + timedelta(seconds=1)
    moment: datetime = next(CronSim(expression, after, reverse=True))
    return moment


def upcoming(expression: str, now: datetime) -> datetime:
    """The next moment after `now` that the expression names."""
    moment: datetime = next(CronSim(expression, now))
    return moment
