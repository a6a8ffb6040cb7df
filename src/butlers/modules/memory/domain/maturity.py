"""Maturity of rules: promotion, demotion and inversion into anti-patterns."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from math import ceil

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


_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_MAX_MARKS = 1_000


def describe_next_steps(record: TrackRecord) -> list[str]:
    """Sentences that say which marks promote a rule, and which turn it into an anti-pattern."""
    if record.maturity is Maturity.ANTI_PATTERN:
        return ["It is a warning. Marks are counted and do not change that."]
    if record.awaits_inversion:
        return ["The next sweep turns it into a warning."]
    return [*_describe_promotion(record), *_describe_harm(record)]


def successes_to_promotion(record: TrackRecord) -> int | None:
    """The successes in a row that promote a rule once it is old enough; None if no number of them does."""
    after = replace(record, age=max(record.age, PROVEN_AGE))
    for number in range(1, _MAX_MARKS):
        after = after_helpful_mark(after)
        if maturity_after_help(after) is not record.maturity:
            return number
    return None


def harms_to_inversion(record: TrackRecord) -> int | None:
    """The harms in a row after which a rule is flagged for inversion; None if no number of them does."""
    after = record
    for number in range(1, _MAX_MARKS):
        after = after_harmful_mark(after)
        if needs_inversion(after):
            return number
    return None


def _describe_promotion(record: TrackRecord) -> list[str]:
    if record.maturity is Maturity.PROVEN:
        return ["It is proven: there is no higher level."]
    level = Maturity.ESTABLISHED if record.maturity is Maturity.CANDIDATE else Maturity.PROVEN
    number = successes_to_promotion(record)
    if number is None:
        return []
    days = max(ceil((PROVEN_AGE - record.age) / timedelta(days=1)), 0) if level is Maturity.PROVEN else 0
    wait = f" and {_amount(days, 'day')}" if days else ""
    makes = "makes" if number == 1 and not days else "make"
    more = "more " if record.applied else ""
    successes = _amount(number, f"{more}success", f"{more}successes")
    return [f"{successes}{wait} {makes} it {level}.".capitalize()]


def _describe_harm(record: TrackRecord) -> list[str]:
    demoted = maturity_after_harm(after_harmful_mark(record))
    sentences = [f"One more harm makes it {demoted} again."] if demoted is not record.maturity else []
    number = harms_to_inversion(record)
    if number is not None:
        harms = _amount(number, "more harm" if record.harms else "harm")
        sentences.append(f"{harms} {'turns' if number == 1 else 'turn'} it into a warning.".capitalize())
    return sentences


def _amount(number: int, singular: str, plural: str = "") -> str:
    word = _NUMBERS[number] if number < len(_NUMBERS) else f"{number:,}"
    return f"{word} {singular if number == 1 else plural or singular + 's'}"
