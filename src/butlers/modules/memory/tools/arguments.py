"""The kinds of arguments tools take: what is clearly meant is understood, the rest is refused with what to send."""

import json
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BeforeValidator, Field

from butlers.errors import InvalidInput
from butlers.modules.memory.domain.model import normalize_name


def _blank_is_none(value: Any) -> Any:
    """Agents send "" for an argument they leave out."""
    return None if isinstance(value, str) and not value.strip() else value


def _name(value: Any) -> Any:
    """A name as it was stored: what a caller sees as the same name is the same."""
    return normalize_name(value) or None if isinstance(value, str) else value


def as_list(value: Any) -> Any:
    """Agents send a list as JSON text, or a single word for a list of one."""
    value = _blank_is_none(value)
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return [value]


def as_object(value: Any) -> Any:
    """Agents send an object as JSON text."""
    value = _blank_is_none(value)
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def as_word(value: Any) -> Any:
    """One of a few words, whatever its case and what stands around it."""
    value = _blank_is_none(value)
    return value.strip().lower() if isinstance(value, str) else value


Blank = BeforeValidator(_blank_is_none)
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
    Blank,
    Field(
        description="How long it stays true unconfirmed: permanent (identity, health), stable (years), "
        "standard (months), volatile (weeks), ephemeral (days)."
    ),
]
MemoryTypeName = Annotated[Literal["episode", "fact", "rule"], Field(description="episode, fact or rule.")]
TypeNames = Annotated[
    list[Literal["episode", "fact", "rule"]] | None,
    BeforeValidator(as_list),
    Field(description="Any of episode, fact, rule; all three by default."),
]
Scope = Annotated[
    str | None,
    BeforeValidator(_name),
    Field(description="Looks in global and this scope (default: this butler's); * looks everywhere."),
]
Key = Annotated[
    OptionalText, Field(description="Send the same key when you repeat a request, and it is carried out once.")
]
Id = Annotated[str, Field(description="An id from memory_search or memory_recall.")]


def parse_memory_id(name: str, text: str) -> UUID:
    """The id, or what to send instead."""
    try:
        return UUID(text.strip())
    except ValueError:
        raise InvalidInput(
            f"{name} is not an id", hint="Send the id of a memory as memory_search or memory_recall gave it."
        ) from None


def parse_session_id(text: str | None) -> UUID | None:
    """A session's id, where one was sent."""
    if text is None:
        return None
    try:
        return UUID(text.strip())
    except ValueError:
        raise InvalidInput("session_id is not a UUID", hint="Send the session's UUID, or leave it out.") from None


def parse_optional_entity_id(text: str | None) -> UUID | None:
    """An entity's id, where one was sent."""
    if text is None:
        return None
    try:
        return UUID(text.strip())
    except ValueError:
        raise InvalidInput(
            "entity_id is not an id", hint="Send the entity_id that entity_resolve gave, or leave it out."
        ) from None


def parse_entity_id(name: str, text: str) -> UUID:
    """The id of an entity, or what to send instead."""
    try:
        return UUID(text.strip())
    except ValueError:
        raise InvalidInput(
            f"{name} is not an id", hint="Send an entity_id as entity_resolve or entity_create gave it."
        ) from None
