"""What a model says it learned, read with care: whatever it sends, what can be used comes out and nothing raises."""

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from butlers.errors import InvalidInput
from butlers.modules.memory.domain.model import (
    GLOBAL,
    MAX_IMPORTANCE,
    MAX_SCOPE_CHARACTERS,
    MAX_TAGS,
    Permanence,
    validate_short_text,
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
_LONGEST_NUMBER = 400
_BEGINS = re.compile(r'\{\s*["}]')
_ANSWER = re.compile(r'\{\s*"(?:' + "|".join(_KEYS) + r')"\s*:')
_EMPTY = re.compile(r"[ \t]*(?:```+\w*[ \t]*)?\{\s*\}[ \t]*(?:```+)?[ \t]*$", re.MULTILINE)
_INVISIBLE = frozenset({"Cc", "Cf"})
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def _number(digits: str) -> float:
    """A whole number; one with more digits than Python reads is simply large."""
    if len(digits) <= _LONGEST_NUMBER:
        return int(digits)
    return -math.inf if digits.startswith("-") else math.inf


_DECODER = json.JSONDecoder(strict=False, parse_int=_number)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedFact:
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
class ExtractedRule:
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

    new_facts: tuple[ExtractedFact, ...] = ()
    updated_facts: tuple[FactUpdate, ...] = ()
    new_rules: tuple[ExtractedRule, ...] = ()
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


def parse_output(output: str) -> ConsolidationResult:
    """The last JSON object of a model's answer that has the shape asked for, each action judged by itself."""
    if len(output) > LONGEST_OUTPUT:
        long = f"the output has {len(output)} characters, and {LONGEST_OUTPUT} are read at the most"
        return ConsolidationResult(parse_errors=(long,))
    answer = _last_matching_object(output)
    if answer is None:
        return ConsolidationResult(parse_errors=(NO_JSON,))
    errors: list[str] = []
    return ConsolidationResult(
        new_facts=_parse_actions(answer, "new_facts", _new_fact, errors),
        updated_facts=_parse_actions(answer, "updated_facts", _updated_fact, errors),
        new_rules=_parse_actions(answer, "new_rules", _new_rule, errors),
        confirmations=_parse_actions(answer, "confirmations", _confirmation, errors),
        parse_errors=_capped_errors(errors),
    )


def _last_matching_object(output: str) -> dict[str, Any] | None:
    """The last object with one of the keys asked for.

    One that begins its line is preferred: what stands inside a sentence may be a quotation. After one that begins as
    asked for and breaks off nothing else counts, neither a draft before it nor a quotation inside it.
    """
    alone = within = None
    broken = False
    for before, found in _json_objects(output):
        if found is None:
            alone = within = None
            broken = True
        elif (fitting := _matching_object(found)) is not None:
            if not before.strip(" \t`").removeprefix("json").strip():
                alone = fitting
            elif not broken:
                within = fitting
    return within if alone is None else alone


def _matching_object(found: dict[str, Any]) -> dict[str, Any] | None:
    """The object itself, or the last that it wraps; an empty one says that there is nothing."""
    if not found or _has_expected_keys(found):
        return found
    return next((each for each in reversed(found.values()) if _has_expected_keys(each)), None)


def _has_expected_keys(value: Any) -> bool:
    return isinstance(value, dict) and any(key in value for key in _KEYS)


def _json_objects(output: str) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """The outermost JSON objects of a text in their order, in fences or not; None for an answer that is broken.

    With each comes what stands before it on its line, behind the one before it.

    Each `{` is tried: that way neither braces in strings, nor a fence in one, nor a stray brace before the answer can
    mislead. What is read is counted, because an answer of nothing but braces would be read over and over.
    """
    left, at, behind = _READ_AT_MOST, output.find("{"), 0
    while at >= 0 and left > 0:
        end = at + 1
        if _BEGINS.match(output, at):
            line = output.rfind("\n", behind, at) + 1
            before = output[max(line, behind) : at]
            try:
                found, end = _DECODER.raw_decode(output, at)
                left -= end - at
                # An empty one counts where it is all that its line says.
                if found or (line >= behind and _EMPTY.match(output, line)):
                    yield before, found
                behind = end
            # No JSON, or too deep for us.
            except (ValueError, RecursionError) as error:
                # The decoder counts the lines up to where it failed.
                read = getattr(error, "pos", len(output))
                left -= max(read - at, 1) + read // 8
                if _ANSWER.match(output, at):
                    yield before, None
        at = output.find("{", end)


def _capped_errors(errors: list[str]) -> tuple[str, ...]:
    """So many lines, and how many more there were."""
    if len(errors) <= MOST_ERRORS:
        return tuple(errors)
    return (*errors[: MOST_ERRORS - 1], f"and {len(errors) - MOST_ERRORS + 1} more")


class _DroppedError(Exception):
    """Why an action can't be used."""


def _parse_actions(answer: dict[str, Any], key: str, read: Callable[[Any], T], errors: list[str]) -> tuple[T, ...]:
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


def _new_fact(entry: Any) -> ExtractedFact:
    fields = _object(entry)
    return ExtractedFact(
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


def _new_rule(entry: Any) -> ExtractedRule:
    fields = {"content": entry} if isinstance(entry, str) else _object(entry)
    return ExtractedRule(
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
    if _is_number(value):
        value = str(value)
    if not isinstance(value, str):
        raise _DroppedError(f"{name} is missing" if value is None else f"{name} is not a text")
    if all(each.isspace() or unicodedata.category(each) in _INVISIBLE for each in value):
        raise _DroppedError(f"{name} is empty")
    return value


def _is_number(value: Any) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, float) and math.isfinite(value)
    )


def _id(value: Any, name: str) -> UUID:
    if not isinstance(value, str) or not _UUID.fullmatch(value.strip()):
        raise _DroppedError(f"{name} is not a UUID")
    return UUID(value.strip())


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
    except (TypeError, ValueError):
        return None
    except OverflowError:
        number = math.inf if value > 0 else -math.inf
    return None if math.isnan(number) else min(max(number, LEAST_IMPORTANT), MAX_IMPORTANCE)


def _is_global(value: Any) -> bool:
    return isinstance(value, str) and value.strip().lower() == GLOBAL


def _tags(value: Any) -> tuple[str, ...] | None:
    """Words to keep with a memory, as many and as long as it can have; None for what is no list."""
    if not isinstance(value, list):
        return None
    words = (_tag(each) for each in value if isinstance(each, str))
    return tuple(dict.fromkeys(word for word in words if word))[:MAX_TAGS]


def _tag(text: str) -> str | None:
    try:
        return validate_short_text("tag", text, MAX_SCOPE_CHARACTERS)
    except InvalidInput:
        return None


def _evidence(value: Any) -> tuple[UUID, ...]:
    """The ids among what was named as evidence; whether they are of the batch is seen later."""
    named = value if isinstance(value, list) else [value]
    found = (UUID(each) for text in named if isinstance(text, str) for each in _UUID.findall(text))
    return tuple(dict.fromkeys(found))
