"""Cron expressions in the local time zone of the machine."""

from datetime import UTC, datetime, timedelta, timezone, tzinfo

from cronsim import CronSim, CronSimError

_HELP = "five fields are allowed: minute, hour, day of month, month, day of week, as in '0 8 * * *'"
_A_MONDAY = datetime(2024, 1, 1, tzinfo=UTC)


def validate_cron(expression: str) -> str:
    """Return `expression`; raise `ValueError` if it is malformed or never due."""
    try:
        due = next(CronSim(expression, _A_MONDAY), None)
    except (CronSimError, ValueError, AssertionError) as error:
        raise ValueError(f"is not a cron expression ({error}); {_HELP}") from None
    if due is None:
        raise ValueError(f"never comes due; {_HELP}")
    return expression


class _LocalTimezone(tzinfo):
    """The local time zone of the machine, including its changes for daylight saving time."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        """Return the offset from UTC at a local time."""
        return None if moment is None else moment.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, _: datetime | None) -> timedelta | None:
        """Return None: nothing here uses it."""
        return None

    def tzname(self, moment: datetime | None) -> str | None:
        """Return the name of the time zone at a local time."""
        return None if moment is None else moment.replace(tzinfo=None).astimezone().tzname()

    def fromutc(self, moment: datetime) -> datetime:
        """Return the local time; `fold` tells the two passes of a repeated hour apart."""
        local = moment.replace(tzinfo=UTC).astimezone()
        first = local.replace(tzinfo=self, fold=0)
        return first if first.utcoffset() == local.utcoffset() else first.replace(fold=1)


LOCAL_TIMEZONE = _LocalTimezone()


def local_now() -> datetime:
    """Return the current local time."""
    return datetime.now(LOCAL_TIMEZONE)


def last_due(expression: str, now: datetime) -> datetime:
    """Return the latest due time at or before `now`."""
    # Drop the fraction of the second: with it the result could be later than `now`.
    after = now.astimezone(UTC).replace(microsecond=0) + timedelta(seconds=1)
    return _with_fixed_offset(next(CronSim(expression, after.astimezone(now.tzinfo), reverse=True)))


def next_due(expression: str, now: datetime) -> datetime:
    """Return the first due time after `now`."""
    # In an hour that occurs twice a job is due in the first pass, so the second pass may yield a time before `now`.
    return next(moment for moment in map(_with_fixed_offset, CronSim(expression, now)) if moment > now)


def _with_fixed_offset(moment: datetime) -> datetime:
    """Return the same time with a fixed offset: Python compares times of one zone without their offsets."""
    return moment.astimezone(timezone(moment.utcoffset() or timedelta()))
