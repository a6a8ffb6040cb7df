"""What a model says it learned, read with care: whatever it sends, what can be used comes out and nothing raises."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from butlers.modules.memory.domain.model import (
    GLOBAL,
    LONGEST_SCOPE,
    MOST_IMPORTANT,
    MOST_TAGS,
    Permanence,
    tidy,
)

T = TypeVar("T")
NO_JSON = "No JSON block found in consolidation output"
LONGEST_OUTPUT = 1_000_000
MOST_ACTIONS = 200
"""Of one kind in one answer; a batch that brings more is a model that has lost its way."""
MOST_ERRORS = 50
LEAST_IMPORTANT, ORDINARY = 1.0, 5.0
_KEYS = ("new_facts", "updated_facts", "new_rules", "confirmations")
_READ_AT_MOST = 20 * LONGEST_OUTPUT
_DECODER = json.JSONDecoder(strict=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactFound:
    """A fact the model found in the episodes."""

    subject: str
    predicate: str
    content: str
    permanence: Permanence = Permanence.STANDARD
    importance: float = ORDINARY
    is_global: bool = False
    tags: tuple[str, ...] = ()
    evidence: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FactUpdate:
    """What a known fact says from now on; what is None stays as it was."""

    target_id: UUID
    content: str
    permanence: Permanence | None = None
    importance: float | None = None
    tags: tuple[str, ...] | None = None
    evidence: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFound:
    """A way of working the model found in the episodes."""

    content: str
    permanence: Permanence | None = None
    is_global: bool = False
    tags: tuple[str, ...] = ()
    evidence: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """A known memory that the episodes bear out."""

    target_id: UUID
    evidence: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolidationResult:
    """Everything in an answer that can be used, and what was dropped and why."""

    new_facts: tuple[FactFound, ...] = ()
    updated_facts: tuple[FactUpdate, ...] = ()
    new_rules: tuple[RuleFound, ...] = ()
    confirmations: tuple[Confirmation, ...] = ()
    parse_errors: tuple[str, ...] = field(default=())

    @property
    def actions(self) -> int:
        """How much there is to be applied."""
        return len(self.new_facts) + len(self.updated_facts) + len(self.new_rules) + len(self.confirmations)

    @property
    def explicitly_empty(self) -> bool:
        """Whether the model said, in so many words, that there was nothing to learn."""
        return self.actions == 0 and not self.parse_errors


def parse(output: str) -> ConsolidationResult:
    """The last JSON object of a model's answer that has the shape asked for, each action judged by itself."""
    if len(output) > LONGEST_OUTPUT:
        long = f"the output has {len(output)} characters, and {LONGEST_OUTPUT} are read at the most"
        return ConsolidationResult(parse_errors=(long,))
    answer = _last_that_fits(output)
    if answer is None:
        return ConsolidationResult(parse_errors=(NO_JSON,))
    errors: list[str] = []
    return ConsolidationResult(
        new_facts=_each(answer, "new_facts", _new_fact, errors),
        updated_facts=_each(answer, "updated_facts", _updated_fact, errors),
        new_rules=_each(answer, "new_rules", _new_rule, errors),
        confirmations=_each(answer, "confirmations", _confirmation, errors),
        parse_errors=tuple(errors[:MOST_ERRORS]),
    )


def _last_that_fits(output: str) -> dict[str, Any] | None:
    """The last object with one of the keys asked for; an empty one counts where it is all that was said."""
    fitting = None
    for found in _objects(output):
        fitting = next((each for each in (found, *found.values()) if _fits(each)), fitting)
    return {} if fitting is None and _bare(output) == "{}" else fitting


def _fits(value: Any) -> bool:
    return isinstance(value, dict) and any(key in value for key in _KEYS)


def _bare(output: str) -> str:
    """The output without blanks and without a fence around it."""
    return "".join(output.split()).strip("`").removeprefix("json")


def _objects(output: str) -> Iterator[dict[str, Any]]:
    """The outermost JSON objects of a text in their order, in fences or not.

    Each `{` is tried: that way neither braces in strings, nor a fence in one, nor a stray brace before the answer can
    mislead. What is read is counted, because an answer of nothing but braces would be read over and over.
    """
    left, at = _READ_AT_MOST, output.find("{")
    while at >= 0 and left > 0:
        end = at + 1
        try:
            found, end = _DECODER.raw_decode(output, at)
            left -= end - at
            yield found
        except json.JSONDecodeError as error:
            left -= max(error.pos - at, 1)
        # Too deep for us, or a number with more digits than can be read.
        except (RecursionError, ValueError):
            left -= len(output) - at
        at = output.find("{", end)


class _DroppedError(Exception):
    """Why an action can't be used."""


def _each(answer: dict[str, Any], key: str, read: Callable[[Any], T], errors: list[str]) -> tuple[T, ...]:
    """The usable actions of one kind; the others leave a line each that says where they stood and what was wrong."""
    entries = _entries(answer.get(key), key, errors)
    if len(entries) > MOST_ACTIONS:
        errors.append(f"{key}: {len(entries)} entries are too many, the first {MOST_ACTIONS} were read")
    usable = []
    for place, entry in enumerate(entries[:MOST_ACTIONS]):
        try:
            usable.append(read(entry))
        except _DroppedError as dropped:
            errors.append(f"{key}[{place}]: {dropped}")
    return tuple(usable)


def _entries(value: Any, key: str, errors: list[str]) -> Sequence[Any]:
    if value is None:
        return []
    if isinstance(value, dict):
        return [value] if value else []
    if isinstance(value, list):
        return value
    errors.append(f"{key}: is not a list")
    return []


def _new_fact(entry: Any) -> FactFound:
    fields = _object(entry)
    return FactFound(
        subject=_words(fields, "subject"),
        predicate=_words(fields, "predicate"),
        content=_words(fields, "content"),
        permanence=_permanence(fields.get("permanence")) or Permanence.STANDARD,
        importance=_importance(fields.get("importance")) or ORDINARY,
        is_global=_is_global(fields.get("scope")),
        tags=_tags(fields.get("tags")) or (),
        evidence=_evidence(fields.get("evidence")),
    )


def _updated_fact(entry: Any) -> FactUpdate:
    fields = _object(entry)
    # Asked for, so that the model says what it means; the target's own key is what counts.
    for name in ("subject", "predicate"):
        _words(fields, name)
    return FactUpdate(
        target_id=_id(fields.get("target_id"), "target_id"),
        content=_words(fields, "content"),
        permanence=_permanence(fields.get("permanence")),
        importance=_importance(fields.get("importance")),
        tags=_tags(fields.get("tags")),
        evidence=_evidence(fields.get("evidence")),
    )


def _new_rule(entry: Any) -> RuleFound:
    fields = {"content": entry} if isinstance(entry, str) else _object(entry)
    return RuleFound(
        content=_words(fields, "content"),
        permanence=_permanence(fields.get("permanence")),
        is_global=_is_global(fields.get("scope")),
        tags=_tags(fields.get("tags")) or (),
        evidence=_evidence(fields.get("evidence")),
    )


def _confirmation(entry: Any) -> Confirmation:
    if not isinstance(entry, dict):
        return Confirmation(target_id=_id(entry, "it"))
    named = next((entry[name] for name in ("target_id", "id", "fact_id", "rule_id") if name in entry), None)
    return Confirmation(target_id=_id(named, "target_id"), evidence=_evidence(entry.get("evidence")))


def _object(entry: Any) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise _DroppedError("is not an object")
    return entry


def _words(fields: dict[str, Any], name: str) -> str:
    """A text that says something; a number is one too."""
    value = fields.get(name)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise _DroppedError(f"{name} is missing" if value is None else f"{name} is not a text")
    if not tidy(value):
        raise _DroppedError(f"{name} is empty")
    return value


def _id(value: Any, name: str) -> UUID:
    try:
        return UUID(value.strip())
    except (ValueError, AttributeError):
        raise _DroppedError(f"{name} is not a UUID") from None


def _permanence(value: Any) -> Permanence | None:
    try:
        return Permanence(value.strip().lower())
    except (ValueError, AttributeError):
        return None


def _importance(value: Any) -> float | None:
    """A number between 1 and 10; None for what is none, such as "high"."""
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return None if math.isnan(number) else min(max(number, LEAST_IMPORTANT), MOST_IMPORTANT)


def _is_global(value: Any) -> bool:
    return isinstance(value, str) and value.strip().lower() == GLOBAL


def _tags(value: Any) -> tuple[str, ...] | None:
    """Words to keep with a memory, as many and as long as it can have; None for what is no list."""
    if not isinstance(value, list):
        return None
    words = (tidy(each) for each in value if isinstance(each, str))
    return tuple(dict.fromkeys(word for word in words if word and len(word.encode()) <= LONGEST_SCOPE))[:MOST_TAGS]


def _evidence(value: Any) -> tuple[UUID, ...]:
    """The ids among what was named as evidence; whether they are of the batch is seen later."""
    named = [value] if isinstance(value, str) else value
    found: dict[UUID, None] = {}
    for each in named if isinstance(named, list) else ():
        try:
            found[_id(each, "evidence")] = None
        except _DroppedError:
            continue
    return tuple(found)
