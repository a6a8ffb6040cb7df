"""How confidence fades. Pure arithmetic: no clock, no database."""

import math
from datetime import datetime

_SECONDS_A_DAY = 86_400
_NOTHING_LEFT = 100.0
_NOTHING = 1e-200


def effective_confidence(confidence: float, rate: float, confirmed_at: datetime | None, now: datetime) -> float:
    """What is left of a confidence since it was last confirmed.

    The database has the same formula as a function of the same name; a test holds the two equal.
    """
    if rate < _NOTHING:
        return confidence
    if confirmed_at is None:
        return 0.0
    if confidence < _NOTHING:
        return confidence
    # A confirmation from the future (a clock that was set back) is one from now.
    faded_by = rate * max((now - confirmed_at).total_seconds() / _SECONDS_A_DAY, 0.0)
    return confidence * math.exp(-min(faded_by, _NOTHING_LEFT))
