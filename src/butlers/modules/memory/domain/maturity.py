"""Maturity of rules: promotion, demotion and inversion into anti-patterns."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from butlers.modules.memory.domain.model import Maturity

HARMFUL_WEIGHT = 4
ESTABLISHED_SUCCESSES, ESTABLISHED_EFFECTIVENESS = 5, 0.6
PROVEN_SUCCESSES, PROVEN_EFFECTIVENESS, PROVEN_AGE = 15, 0.8, timedelta(days=30)
INVERSION_HARM, INVERSION_EFFECTIVENESS = 3, 0.3


@dataclass(frozen=True, slots=True)
class TrackRecord:
    """The maturity of a rule and the counts of its use."""

    maturity: Maturity
    applied: int
    successes: int
    harms: int
    effectiveness: float
    age: timedelta
    awaits_inversion: bool = False


def after_helpful_mark(record: TrackRecord) -> TrackRecord:
    """The record after one more success."""
    applied, successes = record.applied + 1, record.successes + 1
    return replace(record, applied=applied, successes=successes, effectiveness=successes / applied)


def after_harmful_mark(record: TrackRecord) -> TrackRecord:
    """The record after one more harm, which weighs four times a success."""
    harms = record.harms + 1
    effectiveness = record.successes / (record.successes + HARMFUL_WEIGHT * harms + 0.01)
    return replace(record, applied=record.applied + 1, harms=harms, effectiveness=effectiveness)


def maturity_after_help(record: TrackRecord) -> Maturity:
    """The maturity after a success: one step up if the record reaches the next level."""
    if record.awaits_inversion:
        return record.maturity
    if (
        record.maturity is Maturity.CANDIDATE
        and record.successes >= ESTABLISHED_SUCCESSES
        and record.effectiveness >= ESTABLISHED_EFFECTIVENESS
    ):
        return Maturity.ESTABLISHED
    if (
        record.maturity is Maturity.ESTABLISHED
        and record.successes >= PROVEN_SUCCESSES
        and record.effectiveness >= PROVEN_EFFECTIVENESS
        and record.age >= PROVEN_AGE
    ):
        return Maturity.PROVEN
    return record.maturity


def maturity_after_harm(record: TrackRecord) -> Maturity:
    """The maturity after a harm: one step down if the record is below its level."""
    if record.maturity is Maturity.PROVEN and record.effectiveness < PROVEN_EFFECTIVENESS:
        return Maturity.ESTABLISHED
    if record.maturity is Maturity.ESTABLISHED and record.effectiveness < ESTABLISHED_EFFECTIVENESS:
        return Maturity.CANDIDATE
    return record.maturity


def needs_inversion(record: TrackRecord) -> bool:
    """Whether a rule did enough harm to become an anti-pattern."""
    return (
        record.maturity is not Maturity.ANTI_PATTERN
        and record.harms >= INVERSION_HARM
        and record.effectiveness < INVERSION_EFFECTIVENESS
    )


def anti_pattern_content(content: str, reasons: Sequence[str]) -> str:
    """The text of the anti-pattern a rule becomes."""
    reason = "; ".join(reasons) or "no reason was given"
    return f"ANTI-PATTERN: Do NOT {content}. This caused problems because: {reason}"
