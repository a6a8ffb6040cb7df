"""The confidence of a fact or rule as a page shows it: the curve, its dates and the arithmetic in words."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from markupsafe import Markup

from butlers.dashboard import svg
from butlers.modules.memory.config import ConfidenceConfig
from butlers.modules.memory.domain.decay import ConfidenceChange, confidence_steps, fades_at
from butlers.modules.memory.domain.model import Permanence

_SECONDS_PER_DAY = 86_400
_TIMES, _MINUS = "\u00d7", "\u2212"


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another permanence, and when the memory would fade with it: it decays from today's confidence on."""

    permanence: str
    fades: datetime | None


@dataclass(frozen=True, slots=True)
class ConfidenceView:
    """The confidence over time of one memory."""

    picture: Markup
    rows: Sequence[tuple[str, str, str]]
    """The numbers of the picture: day, reason, confidence."""
    fades: datetime | None
    expires: datetime | None
    arithmetic: str
    alternatives: Sequence[Alternative]


def view_confidence(
    memory: Mapping[str, Any],
    changes: Iterable[ConfidenceChange],
    config: ConfidenceConfig,
    now: datetime,
) -> ConfidenceView:
    """Return the confidence of a fact or rule over time."""
    stored, rate, confirmed_at = memory["stored_confidence"], memory["decay_rate"], memory["last_confirmed_at"]
    steps = confidence_steps(memory["created_at"], changes, stored, rate, confirmed_at)
    fades = fades_at(stored, rate, confirmed_at, config.fading_below)
    expires = fades_at(stored, rate, confirmed_at, config.expired_below)
    points = [(each.at, each.reason, each.confidence) for each in steps]
    points += [(now, "today", memory["confidence"])]
    points += [(fades, "fades", config.fading_below)] if fades else []
    points += [(expires, "expires", config.expired_below)] if expires else []
    return ConfidenceView(
        svg.curve(steps, now, config.fading_below, config.expired_below),
        [
            (svg.format_date(at), reason, f"{value:.2f}")
            for at, reason, value in sorted(points, key=lambda each: each[0])
        ],
        fades,
        expires,
        arithmetic(memory, now),
        [
            Alternative(each.value, fades_at(memory["confidence"], each.decay_rate, now, config.fading_below))
            for each in Permanence
            if each.decay_rate != rate
        ],
    )


def arithmetic(memory: Mapping[str, Any], now: datetime) -> str:
    """Return how today's confidence comes about, in words and numbers."""
    stored, rate, confirmed_at = memory["stored_confidence"], memory["decay_rate"], memory["last_confirmed_at"]
    if rate == 0:
        return f"{stored:.2f} when last confirmed, and permanent: it does not decay."
    if confirmed_at is None:
        return "It was never confirmed, so its confidence is 0."
    days = max((now - confirmed_at).total_seconds() / _SECONDS_PER_DAY, 0.0)
    named = f" ({memory['permanence']})" if Permanence(memory["permanence"]).decay_rate == rate else ""
    shown = f"{days:.0f}" if days >= 1 else f"{days:.1f}"
    return (
        f"{stored:.2f} when last confirmed, {shown} days ago; it decays by {rate:g} a day{named}: "
        f"{stored:.2f} {_TIMES} e^({_MINUS}{rate:g} {_TIMES} {shown}) = {memory['confidence']:.2f}."
    )
