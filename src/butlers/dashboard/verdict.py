"""The verdict of the overview: one sentence and the things that wait, chosen by rules with the worst first."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from butlers.modules.memory.operations.overview import MAX_WAITING

MAX_LINES = 5
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True, slots=True)
class Health:
    """The numbers that the verdict depends on."""

    failing_jobs: Sequence[tuple[str, str]] = ()
    """Names and errors."""
    dead_letters: int = 0
    backlog: int = 0
    backlog_hours: float = 0.0
    reading_hours: float = 6.0
    """Hours between two consolidations."""
    tokens: int = 0
    token_limit: int = 0
    """0 means no limit."""
    lossy_indexes: Sequence[tuple[str, float]] = ()
    """Tables, and the share of nearest memories that their index finds."""
    harmful_rules: Sequence[tuple[str, int]] = ()
    """Contents, and how often each did harm."""
    vital_fading: Sequence[str] = ()
    unseen_distilled: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that waits: its sentence, what it is about, and the link to its remedy."""

    level: Literal["problem", "waits"]
    text: str
    about: str
    remedy: str
    path: str
    query: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The sentence, at most five findings, and the number of those left out."""

    sentence: str
    findings: Sequence[Finding]
    more: int


def _failing_jobs(health: Health) -> Finding | None:
    if not health.failing_jobs:
        return None
    names = ", ".join(name for name, _ in health.failing_jobs)
    text = f"The job {names} fails" if len(health.failing_jobs) == 1 else f"The jobs {names} fail"
    return Finding("problem", text, health.failing_jobs[0][1], "Look", "/system")


def _dead_letters(health: Health) -> Finding | None:
    if not health.dead_letters:
        return None
    text = f"{_count(health.dead_letters, 'episode')} could not be consolidated"
    return Finding("problem", text, "every attempt failed", "Review", "/review", {"of": "dead-letters"})


def _backlog(health: Health) -> Finding | None:
    if not health.backlog or health.backlog_hours <= 2 * health.reading_hours:
        return None
    text = f"{_count(health.backlog, 'episode')} {_be(health.backlog, 'waits', 'wait')} for consolidation"
    return Finding("problem", text, f"the oldest for {health.backlog_hours:.0f} h", "Look", "/system")


def _token_limit(health: Health) -> Finding | None:
    if not health.token_limit or health.tokens < health.token_limit:
        return None
    text = "Consolidation has used its tokens of the day"
    return Finding("problem", text, f"{health.tokens:,} of {health.token_limit:,}", "Look", "/system")


def _lossy_indexes(health: Health) -> Finding | None:
    if not health.lossy_indexes:
        return None
    table, recall = min(health.lossy_indexes, key=lambda each: each[1])
    return Finding("problem", f"The index of {table} misses memories", f"it finds {recall:.0%}", "Look", "/system")


def _harmful_rules(health: Health) -> Finding | None:
    if not health.harmful_rules:
        return None
    content, harms = health.harmful_rules[0]
    text = f"{_waiting(len(health.harmful_rules), 'rule')} did harm"
    if len(health.harmful_rules) == 1:
        text += {1: " once", 2: " twice"}.get(harms, f" {_word(harms)} times")
    return Finding("waits", text, content, "Review", "/review", {"of": "harmful"})


def _vital_fading(health: Health) -> Finding | None:
    number = len(health.vital_fading)
    if not number:
        return None
    text = f"{_waiting(number, 'vital fact')} {_be(number, 'fades', 'fade')} this week"
    return Finding("waits", text, ", ".join(health.vital_fading[:3]), "Review", "/review", {"of": "fading"})


def _unseen_distilled(health: Health) -> Finding | None:
    number = health.unseen_distilled
    if not number:
        return None
    kind = _be(number, "learned memory", "learned memories")
    text = f"{_limited(number)} {kind} {_be(number, 'has', 'have')} not been looked at"
    return Finding(
        "waits", text, "consolidation learned them from episodes", "Review", "/review", {"of": "distilled"}
    )


# The worst first. Without a database there is no overview: the error page says so.
_RULES: tuple[Callable[[Health], Finding | None], ...] = (
    _failing_jobs,
    _dead_letters,
    _backlog,
    _token_limit,
    _lossy_indexes,
    _harmful_rules,
    _vital_fading,
    _unseen_distilled,
)


def judge(health: Health) -> Verdict:
    """Return the verdict on a memory."""
    findings = [finding for rule in _RULES if (finding := rule(health))]
    return Verdict(_sentence(findings), findings[:MAX_LINES], len(findings[MAX_LINES:]))


def _sentence(findings: Sequence[Finding]) -> str:
    if not findings:
        return "Everything runs. Nothing waits for you."
    worst = findings[0]
    if worst.level == "waits":
        return f"Everything runs. {_things(len(findings))} for you."
    others = len(findings) - 1
    return f"{worst.text}." + (f" {_things(others, ' more')}." if others else "")


def _things(number: int, more: str = "") -> str:
    return f"{_word(number).capitalize()}{more} {_be(number, 'thing waits', 'things wait')}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun if number == 1 else noun + 's'}"


def _waiting(number: int, noun: str) -> str:
    return f"{_limited(number)} {noun if number == 1 else noun + 's'}"


def _limited(number: int) -> str:
    """Return the number of memories that wait; one that reached its limit ends with +."""
    return f"{number:,}+" if number >= MAX_WAITING else f"{number:,}"


def _be(number: int, one: str, many: str) -> str:
    return one if number == 1 else many


def _word(number: int) -> str:
    return _NUMBERS[number] if number < len(_NUMBERS) else f"{number:,}"
