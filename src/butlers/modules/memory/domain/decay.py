"""Exponential decay of confidence."""

import math
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

_SECONDS_PER_DAY = 86_400
_MAX_EXPONENT = 100.0
_ALMOST_ZERO = 1e-200


def effective_confidence(confidence: float, rate: float, confirmed_at: datetime | None, now: datetime) -> float:
    """The confidence after the decay since the last confirmation.

    The database has the same formula as a function of the same name; a test compares the two.
    """
    if rate < _ALMOST_ZERO:
        return confidence
    if confirmed_at is None:
        return 0.0
    if confidence < _ALMOST_ZERO:
        return confidence
    # A confirmation in the future (a clock that was set back) counts as one made now.
    exponent = rate * max((now - confirmed_at).total_seconds() / _SECONDS_PER_DAY, 0.0)
    return confidence * math.exp(-min(exponent, _MAX_EXPONENT))


def fades_at(confidence: float, rate: float, confirmed_at: datetime | None, threshold: float) -> datetime | None:
    """The time at which the effective confidence falls below a threshold; None if it never does.

    A memory that was below the threshold when it was confirmed faded at that time.
    """
    if confirmed_at is None or threshold <= 0 or rate < _ALMOST_ZERO:
        return None
    days = math.log(confidence / threshold) / rate if confidence > threshold else 0.0
    try:
        return confirmed_at + timedelta(days=days)
    except OverflowError:
        return None


class ConfidenceChange(NamedTuple):
    """An event that set the confidence: the value if it is known, and the decay rate before if it changed."""

    at: datetime
    confidence: float | None
    rate_before: float | None
    reason: str


class ConfidenceStep(NamedTuple):
    """The confidence that a memory got at a time, and the rate at which it decays from then on."""

    at: datetime
    confidence: float
    rate: float
    reason: str


def confidence_steps(
    created_at: datetime,
    changes: Iterable[ConfidenceChange],
    confidence: float,
    rate: float,
    confirmed_at: datetime | None,
) -> list[ConfidenceStep]:
    """The steps of a memory's confidence, oldest first, from what is stored now and the events before.

    A change whose value is unknown counts with the stored confidence. One after the last confirmation was undone.
    """
    last = confirmed_at or created_at
    start = min(created_at, last)
    steps = {last: ConfidenceStep(last, confidence, rate, "confirmed" if last > start else "stored")}
    for change in sorted(changes, reverse=True):
        at = start if change.reason == "stored" else change.at
        if start <= at <= last:
            value = confidence if at == last or change.confidence is None else change.confidence
            steps[at] = ConfidenceStep(at, value, rate, change.reason)
        rate = rate if change.rate_before is None else change.rate_before
    steps.setdefault(start, ConfidenceStep(start, confidence, rate, "stored"))
    return [steps[at] for at in sorted(steps)]
