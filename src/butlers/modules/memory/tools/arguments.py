"""Argument types of the tools, tolerant of the forms agents are known to send."""

import json
from contextlib import suppress
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BeforeValidator, Field

from butlers.errors import InvalidInput
from butlers.modules.memory.domain.model import normalize_name


def _blank_is_none(value: Any) -> Any:
    """None for a blank text: agents send "" for an argument they leave out."""
    return None if isinstance(value, str) and not value.strip() else value


def _normalized_name(value: Any) -> Any:
    """A name as it is stored, or None if it is blank."""
    return normalize_name(value) or None if isinstance(value, str) else value


def as_list(value: Any) -> Any:
    """A list: agents send it as JSON text, or as words separated by commas."""
    value = _parse_json(value, "[")
    if isinstance(value, str) and not value.lstrip().startswith("["):
        return [word.strip() for word in value.split(",") if word.strip()] or None
    return value


def as_object(value: Any) -> Any:
    """An object: agents send it as JSON text."""
    return _parse_json(value, "{")


def _parse_json(value: Any, start: str) -> Any:
    """The value of a JSON text that starts so, None for a blank text, or else the value itself."""
    if isinstance(value, str) and value.lstrip().startswith(start):
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    return _blank_is_none(value)


def as_word(value: Any) -> Any:
    """A text trimmed and in lower case, None if it is blank."""
    value = _blank_is_none(value)
    return value.strip().lower() if isinstance(value, str) else value


def _as_words(value: Any) -> Any:
    """A list of texts trimmed and in lower case."""
    value = as_list(value)
    return [as_word(each) for each in value] if isinstance(value, list) else value


Blank = BeforeValidator(_blank_is_none)
Word = BeforeValidator(as_word)
"""For every enumeration: agents write its words in any case."""
Text = Annotated[str, Field(min_length=1)]
OptionalText = Annotated[str | None, Blank]
OptionalList = Annotated[list[str] | None, BeforeValidator(as_list)]
OptionalObject = Annotated[dict[str, Any] | None, BeforeValidator(as_object)]
Importance = Annotated[
    Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] | None,
    Blank,
    Field(description="0 trivial, 5 ordinary, 10 vital."),
]
PermanenceName = Annotated[
    Literal["permanent", "stable", "standard", "volatile", "ephemeral"] | None,
    Word,
    Field(
        description="How long it stays true unconfirmed: permanent (identity, health), stable (years), "
        "standard (months), volatile (weeks), ephemeral (days)."
    ),
]
MemoryTypeName = Annotated[Literal["episode", "fact", "rule"], Word, Field(description="episode, fact or rule.")]
TypeNames = Annotated[
    list[Literal["episode", "fact", "rule"]] | None,
    BeforeValidator(_as_words),
    Field(description="Any of episode, fact, rule; all by default."),
]
Scope = Annotated[
    str | None,
    BeforeValidator(_normalized_name),
    Field(description="Searches global and this scope (default: this butler's); * searches all."),
]
Key = Annotated[OptionalText, Field(description="Send the same key when you repeat a request; it runs once.")]
Id = Annotated[str, Field(description="An id from memory_search or memory_recall.")]


def parse_id(
    name: str, text: str, hint: str = "Send the id of a memory from memory_search or memory_recall."
) -> UUID:
    """The id; raises InvalidInput with the hint if the text is not a UUID."""
    try:
        return UUID(text.strip())
    except ValueError:
        raise InvalidInput(f"{name} is not an id", hint=hint) from None


def parse_entity_id(name: str, text: str) -> UUID:
    """The id of an entity; raises InvalidInput if the text is not a UUID."""
    return parse_id(name, text, "Send an entity_id from entity_resolve or entity_create.")


def parse_session_id(text: str | None) -> UUID | None:
    """The id of a session, or None if there is none; raises InvalidInput if the text is not a UUID."""
    return parse_id("session_id", text, "Send the session's UUID, or leave it out.") if text else None
