"""When a cron expression fires, on the clock of the place the butler runs in: the one people mean by it."""

from datetime import UTC, datetime, timedelta, timezone, tzinfo

from cronsim import CronSim, CronSimError

HELP = "five fields are allowed: minute, hour, day of month, month, day of week, as in '0 8 * * *'"
_A_MONDAY = datetime(2024, 1, 1, tzinfo=UTC)


def validate_cron(expression: str) -> str:
    """The expression itself, when there is a moment it names."""
    try:
        fires = next(CronSim(expression, _A_MONDAY), None)
    except (CronSimError, ValueError, AssertionError) as error:
        raise ValueError(f"is not a cron expression ({error}); {HELP}") from None
    if fires is None:
        raise ValueError(f"names no day that ever comes; {HELP}")
    return expression


class _LocalTimezone(tzinfo):
    """The clock of the place the butler runs in, before and after it is put forward or back."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        """How far it is from UTC at that time of its own."""
        return None if moment is None else moment.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, _: datetime | None) -> timedelta | None:
        """Nobody asks."""
        return None

    def tzname(self, moment: datetime | None) -> str | None:
        """What people there call it."""
        return None if moment is None else moment.replace(tzinfo=None).astimezone().tzname()

    def fromutc(self, moment: datetime) -> datetime:
        """What it shows; of an hour it shows twice, which one."""
        shown = moment.replace(tzinfo=UTC).astimezone()
        first = shown.replace(tzinfo=self, fold=0)
        return first if first.utcoffset() == shown.utcoffset() else first.replace(fold=1)


LOCAL_TIMEZONE = _LocalTimezone()


def local_now() -> datetime:
    """Now, where the butler runs."""
    return datetime.now(LOCAL_TIMEZONE)


def last_due(expression: str, now: datetime) -> datetime:
    """The latest moment at or before `now` that the expression names."""
    # Whole seconds: with a fraction left in, the moment could be one that is still to come.
    after = now.astimezone(UTC).replace(microsecond=0) + timedelta(seconds=1)
    return _with_fixed_offset(next(CronSim(expression, after.astimezone(now.tzinfo), reverse=True)))


def next_due(expression: str, now: datetime) -> datetime:
    """The next moment after `now` that the expression names."""
    # Of an hour that the clock shows twice, the first is meant: in the second it is over.
    return next(moment for moment in map(_with_fixed_offset, CronSim(expression, now)) if moment > now)


def _with_fixed_offset(moment: datetime) -> datetime:
    """The same with its distance from UTC: two times of one place are compared by what its clock shows."""
    return moment.astimezone(timezone(moment.utcoffset() or timedelta()))
