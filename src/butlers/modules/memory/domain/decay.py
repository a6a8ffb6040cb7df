"""Exponential decay of confidence."""

import math
from datetime import datetime

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
