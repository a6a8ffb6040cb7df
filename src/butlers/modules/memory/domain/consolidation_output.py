"""Parser for a model's consolidation output. It keeps the usable actions, lists the errors and never raises."""

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
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
MAX_OUTPUT_CHARACTERS = 1_000_000
MAX_ACTIONS = 200
"""Actions of one kind that are read from one output."""
MAX_ERRORS = 50
MIN_IMPORTANCE, DEFAULT_IMPORTANCE = 1.0, 5.0
_EXPECTED_KEYS = ("new_facts", "updated_facts", "new_rules", "confirmations")
_MAX_DECODED_CHARACTERS = 20 * MAX_OUTPUT_CHARACTERS
_MAX_DIGITS = 400
_OBJECT_START = re.compile(r'\{\s*["}]')
_ANSWER_START = re.compile(r'\{\s*"(?:' + "|".join(_EXPECTED_KEYS) + r')"\s*:')
_EMPTY_OBJECT_LINE = re.compile(r"[ \t]*(?:```+\w*[ \t]*)?\{\s*\}[ \t]*(?:```+)?[ \t]*$", re.MULTILINE)
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf"})
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def _parse_int(digits: str) -> float:
    """The number, or an infinity where it has more digits than Python converts."""
    if len(digits) <= _MAX_DIGITS:
        return int(digits)
    return -math.inf if digits.startswith("-") else math.inf


_DECODER = json.JSONDecoder(strict=False, parse_int=_parse_int)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedFact:
    """A fact the model found in the episodes."""

    subject: str
    predicate: str
    content: str
    permanence: Permanence = Permanence.STANDARD
    importance: float = DEFAULT_IMPORTANCE
    is_global: bool = False
    tags: tuple[str, ...] = ()
    evidence: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FactUpdate:
    """A change to a known fact; a field that is None stays unchanged."""

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
    """A known memory that the episodes confirm."""

    target_id: UUID
    evidence: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolidationResult:
    """The usable actions of an output, and one error line for each that was dropped."""

    new_facts: tuple[ExtractedFact, ...] = ()
    updated_facts: tuple[FactUpdate, ...] = ()
    new_rules: tuple[ExtractedRule, ...] = ()
    confirmations: tuple[Confirmation, ...] = ()
    parse_errors: tuple[str, ...] = ()

    @property
    def actions(self) -> int:
        """The number of actions of all kinds."""
        return len(self.new_facts) + len(self.updated_facts) + len(self.new_rules) + len(self.confirmations)

    @property
    def explicitly_empty(self) -> bool:
        """Whether the model answered, without errors, that there is nothing to learn."""
        return self.actions == 0 and not self.parse_errors


def parse_output(output: str) -> ConsolidationResult:
    """The actions in the last JSON object that has an expected key; each action is validated by itself."""
    if len(output) > MAX_OUTPUT_CHARACTERS:
        error = f"the output has {len(output)} characters; at most {MAX_OUTPUT_CHARACTERS} are read"
        return ConsolidationResult(parse_errors=(error,))
    answer = _last_matching_object(output)
    if answer is None:
        return ConsolidationResult(parse_errors=(NO_JSON,))
    errors: list[str] = []
    actions: dict[str, Any] = {key: _parse_actions(answer, key, parse, errors) for key, parse in _PARSERS.items()}
    return ConsolidationResult(**actions, parse_errors=_capped_errors(errors))


def _last_matching_object(output: str) -> dict[str, Any] | None:
    """The last object with an expected key, or None.

    An object that starts its line is preferred: one inside a sentence may be a quotation. A truncated answer discards
    every object before it, and every later one inside a sentence, because that may be a quotation in the answer.
    """
    own_line = inline = None
    is_truncated = False
    for before, found in _json_objects(output):
        if found is None:
            own_line = inline = None
            is_truncated = True
        elif (matching := _matching_object(found)) is not None:
            if not before.strip(" \t`").removeprefix("json").strip():
                own_line = matching
            elif not is_truncated:
                inline = matching
    return inline if own_line is None else own_line


def _matching_object(found: dict[str, Any]) -> dict[str, Any] | None:
    """The object itself if it is empty or has an expected key, else the last of its values that has one."""
    if not found or _has_expected_keys(found):
        return found
    return next((each for each in reversed(found.values()) if _has_expected_keys(each)), None)


def _has_expected_keys(value: Any) -> bool:
    return isinstance(value, dict) and any(key in value for key in _EXPECTED_KEYS)


def _json_objects(output: str) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """The outermost JSON objects in order, each with the text before it on its line; None for a truncated answer.

    Decoding is tried at every `{`, so braces and fences in strings and stray braces do no harm. A budget bounds the
    characters decoded: an output of nothing but braces would otherwise take quadratic time.
    """
    budget, start, previous_end = _MAX_DECODED_CHARACTERS, output.find("{"), 0
    while start >= 0 and budget > 0:
        end = start + 1
        if _OBJECT_START.match(output, start):
            line = output.rfind("\n", previous_end, start) + 1
            before = output[max(line, previous_end) : start]
            try:
                found, end = _DECODER.raw_decode(output, start)
                budget -= end - start
                # An empty object counts only alone on its line.
                if found or (line >= previous_end and _EMPTY_OBJECT_LINE.match(output, line)):
                    yield before, found
                previous_end = end
            # Not JSON, or nested too deeply.
            except (ValueError, RecursionError) as error:
                # To report its position, the decoder counts the lines before it.
                failed_at = getattr(error, "pos", len(output))
                budget -= max(failed_at - start, 1) + failed_at // 8
                if _ANSWER_START.match(output, start):
                    yield before, None
        start = output.find("{", end)


def _capped_errors(errors: list[str]) -> tuple[str, ...]:
    """The first errors, and a last line with the number of those left out."""
    if len(errors) <= MAX_ERRORS:
        return tuple(errors)
    return (*errors[: MAX_ERRORS - 1], f"and {len(errors) - MAX_ERRORS + 1} more")


class _InvalidActionError(Exception):
    """The reason an action can't be used."""


def _parse_actions(answer: dict[str, Any], key: str, parse: Callable[[Any], T], errors: list[str]) -> tuple[T, ...]:
    """The usable actions of one kind; each other one adds a line with its position and its error to `errors`."""
    entries = _entries(answer.get(key), key, errors)
    if len(entries) > MAX_ACTIONS:
        errors.append(f"{key}: {len(entries)} entries are too many, the first {MAX_ACTIONS} were read")
    usable = []
    for index, entry in enumerate(entries[:MAX_ACTIONS]):
        try:
            usable.append(parse(entry))
        except _InvalidActionError as error:
            errors.append(f"{key}[{index}]: {error}")
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


def _parse_action(action: type[T], entry: Any) -> T:
    """The action with the fields of an object; an optional field that can't be used keeps its default."""
    if not isinstance(entry, dict):
        raise _InvalidActionError("is not an object")
    values = {each.name: _FIELD_PARSERS[each.name](entry) for each in fields(action)}  # type: ignore[arg-type]
    return action(**{name: value for name, value in values.items() if value is not None})


def _updated_fact(entry: Any) -> FactUpdate:
    if isinstance(entry, dict):
        # Required, so that the model states what it means; the target keeps its own key.
        for name in ("subject", "predicate"):
            _text(entry, name)
    return _parse_action(FactUpdate, entry)


def _new_rule(entry: Any) -> ExtractedRule:
    return _parse_action(ExtractedRule, {"content": entry} if isinstance(entry, str) else entry)


def _confirmation(entry: Any) -> Confirmation:
    if not isinstance(entry, dict):
        return Confirmation(target_id=_id(entry, "it"))
    target = next((entry[name] for name in ("target_id", "id", "fact_id", "rule_id") if name in entry), None)
    return _parse_action(Confirmation, {**entry, "target_id": target})


def _text(fields: dict[str, Any], name: str) -> str:
    """A text or number as text; raises where it is missing or has no visible character."""
    value = fields.get(name)
    if _is_number(value):
        value = str(value)
    if not isinstance(value, str):
        raise _InvalidActionError(f"{name} is missing" if value is None else f"{name} is not a text")
    if all(char.isspace() or unicodedata.category(char) in _INVISIBLE_CATEGORIES for char in value):
        raise _InvalidActionError(f"{name} is empty")
    return value


def _is_number(value: Any) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, float) and math.isfinite(value)
    )


def _id(value: Any, name: str) -> UUID:
    if not isinstance(value, str) or not _UUID.fullmatch(value.strip()):
        raise _InvalidActionError(f"{name} is not a UUID")
    return UUID(value.strip())


def _permanence(value: Any) -> Permanence | None:
    try:
        return Permanence(value.strip().lower())
    except (ValueError, AttributeError):
        return None


def _importance(value: Any) -> float | None:
    """A number, clamped to 1..10; None for anything else, such as "high"."""
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    except OverflowError:
        number = math.inf if value > 0 else -math.inf
    return None if math.isnan(number) else min(max(number, MIN_IMPORTANCE), MAX_IMPORTANCE)


def _is_global(value: Any) -> bool:
    return isinstance(value, str) and value.strip().lower() == GLOBAL


def _tags(value: Any) -> tuple[str, ...] | None:
    """The valid tags of a list, without duplicates and up to the limit; None for anything but a list."""
    if not isinstance(value, list):
        return None
    tags = (_tag(text) for text in value if isinstance(text, str))
    return tuple(dict.fromkeys(tag for tag in tags if tag))[:MAX_TAGS]


def _tag(text: str) -> str | None:
    try:
        return validate_short_text("tag", text, MAX_SCOPE_CHARACTERS)
    except InvalidInput:
        return None


def _evidence(value: Any) -> tuple[UUID, ...]:
    """The distinct ids in the evidence; the operation checks later that they belong to the batch."""
    texts = value if isinstance(value, list) else [value]
    ids = (UUID(match) for text in texts if isinstance(text, str) for match in _UUID.findall(text))
    return tuple(dict.fromkeys(ids))


_FIELD_PARSERS: dict[str, Callable[[dict[str, Any]], object]] = {
    "subject": lambda entry: _text(entry, "subject"),
    "predicate": lambda entry: _text(entry, "predicate"),
    "content": lambda entry: _text(entry, "content"),
    "target_id": lambda entry: _id(entry.get("target_id"), "target_id"),
    "permanence": lambda entry: _permanence(entry.get("permanence")),
    "importance": lambda entry: _importance(entry.get("importance")),
    "is_global": lambda entry: _is_global(entry.get("scope")),
    "tags": lambda entry: _tags(entry.get("tags")),
    "evidence": lambda entry: _evidence(entry.get("evidence")),
}
_PARSERS: dict[str, Callable[[Any], object]] = {
    "new_facts": partial(_parse_action, ExtractedFact),
    "updated_facts": _updated_fact,
    "new_rules": _new_rule,
    "confirmations": _confirmation,
}
