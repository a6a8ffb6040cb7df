"""Entity types, and validation of entity names, aliases and metadata."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from butlers.errors import InvalidInput
from butlers.modules.memory.domain.errors import UnknownEntityType
from butlers.modules.memory.domain.model import MAX_KEY_CHARACTERS, sanitize_text, validate_short_text

MAX_ALIASES = 1_000
MAX_ALIASES_BYTES = 65_536
MAX_METADATA_BYTES = 65_536
MAX_METADATA_DEPTH = 32
MERGED_INTO = "merged_into"
FORMER_NAME = "former_name"
RESERVED_METADATA_KEYS = frozenset({MERGED_INTO, FORMER_NAME})
"""Only a merge writes these: a caller that set them would hide an entity."""


class EntityType(StrEnum):
    """The types of entities."""

    PERSON = "person"
    ORGANIZATION = "organization"
    PLACE = "place"
    OTHER = "other"

    @classmethod
    def named(cls, name: str) -> "EntityType":
        """The type of that name; raises UnknownEntityType."""
        try:
            return cls(name)
        except ValueError:
            raise UnknownEntityType(name, cls) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEntity:
    """A validated entity to store."""

    canonical_name: str
    entity_type: EntityType
    aliases: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "canonical_name", validate_name("canonical_name", self.canonical_name))
        object.__setattr__(self, "aliases", validate_aliases(self.aliases, self.canonical_name))
        object.__setattr__(self, "metadata", validate_metadata(self.metadata))


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityChange:
    """A validated change of an entity; a field that is None stays unchanged."""

    canonical_name: str | None = None
    aliases: tuple[str, ...] | None = None
    metadata: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not self.fields:
            raise InvalidInput("the change is empty", hint="Send a canonical_name, aliases or metadata.")
        if self.canonical_name is not None:
            object.__setattr__(self, "canonical_name", validate_name("canonical_name", self.canonical_name))
        if self.aliases is not None:
            object.__setattr__(self, "aliases", validate_aliases(self.aliases, self.canonical_name))
        if self.metadata is not None:
            object.__setattr__(self, "metadata", validate_metadata(self.metadata))

    @property
    def fields(self) -> list[str]:
        """The names of the fields that change."""
        return [name for name in ("canonical_name", "aliases", "metadata") if getattr(self, name) is not None]


def validate_name(field_name: str, name: str) -> str:
    """The name as it is stored; raises InvalidInput if it is blank or too long."""
    return validate_short_text(field_name, name, MAX_KEY_CHARACTERS)


def validate_aliases(aliases: Iterable[str], canonical_name: str | None) -> tuple[str, ...]:
    """The aliases in order, without duplicates or the canonical name; raises InvalidInput if there are too many."""
    distinct = distinct_names((validate_name("alias", alias) for alias in aliases), excluding=canonical_name)
    if len(distinct) > MAX_ALIASES:
        raise InvalidInput(f"{len(distinct)} aliases are too many", hint=f"Send {MAX_ALIASES} at most.")
    if (size := sum(len(alias.encode()) for alias in distinct)) > MAX_ALIASES_BYTES:
        raise InvalidInput(f"the aliases take {size} bytes", hint=f"Send {MAX_ALIASES_BYTES} bytes at most in all.")
    return distinct


def distinct_names(names: Iterable[str], *, excluding: str | None = None) -> tuple[str, ...]:
    """The names that differ by more than case, in the spelling that came first, without `excluding`."""
    by_key: dict[str, str] = {}
    for name in names:
        by_key.setdefault(name.lower(), name)
    if excluding is not None:
        by_key.pop(excluding.lower(), None)
    return tuple(by_key.values())


def validate_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata as PostgreSQL can store it; raises InvalidInput if it is too large or has a reserved key."""
    if forbidden := RESERVED_METADATA_KEYS.intersection(metadata):
        raise InvalidInput(
            f"metadata can't have the key {', '.join(sorted(forbidden))}",
            hint="entity_merge writes it; leave it out.",
        )
    storable: dict[str, Any] = _sanitize(metadata, MAX_METADATA_DEPTH)
    if len(json.dumps(storable).encode()) > MAX_METADATA_BYTES:
        raise InvalidInput(
            "metadata is too large", hint=f"Send {MAX_METADATA_BYTES} bytes at most; store facts for the rest."
        )
    return storable


def _sanitize(value: Any, depth: int) -> Any:
    if depth == 0:
        raise InvalidInput("metadata is nested too deeply", hint=f"Nest {MAX_METADATA_DEPTH} levels at most.")
    if isinstance(value, Mapping):
        return {sanitize_text(str(name)): _sanitize(each, depth - 1) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_sanitize(each, depth - 1) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput("metadata contains NaN or infinity", hint="Send finite numbers.")
    return sanitize_text(value) if isinstance(value, str) else value
