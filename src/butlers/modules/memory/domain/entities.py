"""Who and what facts are about: names, kinds, and what an entity may carry."""

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
MAX_METADATA_BYTES = 65_536
MAX_METADATA_DEPTH = 32
MERGED_INTO = "merged_into"
FORMER_NAME = "former_name"
RESERVED_METADATA_KEYS = frozenset({MERGED_INTO, FORMER_NAME})
"""What only a merge writes: a caller that could would bury an entity."""


class EntityType(StrEnum):
    """The kinds of entities."""

    PERSON = "person"
    ORGANIZATION = "organization"
    PLACE = "place"
    OTHER = "other"

    @classmethod
    def named(cls, name: str) -> "EntityType":
        """The kind of that name."""
        try:
            return cls(name)
        except ValueError:
            raise UnknownEntityType(name, [each.value for each in cls]) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEntity:
    """Somebody or something to be known."""

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
    """What is to be different; None leaves a thing as it is."""

    canonical_name: str | None = None
    aliases: tuple[str, ...] | None = None
    metadata: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not self.fields:
            raise InvalidInput("nothing is to be changed", hint="Send a canonical_name, aliases or metadata.")
        if self.canonical_name is not None:
            object.__setattr__(self, "canonical_name", validate_name("canonical_name", self.canonical_name))
        if self.aliases is not None:
            object.__setattr__(self, "aliases", validate_aliases(self.aliases, self.canonical_name))
        if self.metadata is not None:
            object.__setattr__(self, "metadata", validate_metadata(self.metadata))

    @property
    def fields(self) -> list[str]:
        """The names of what is to be different."""
        return [name for name in ("canonical_name", "aliases", "metadata") if getattr(self, name) is not None]


def validate_name(what: str, name: str) -> str:
    """A name in any script, as it is kept."""
    return validate_short_text(what, name, MAX_KEY_CHARACTERS)


def validate_aliases(aliases: Iterable[str], canonical_name: str | None) -> tuple[str, ...]:
    """Aliases in the order they came, none of them twice or the canonical name again, whatever their case."""
    kept = distinct_names((validate_name("alias", alias) for alias in aliases), besides=canonical_name)
    if len(kept) > MAX_ALIASES:
        raise InvalidInput(f"{len(kept)} aliases are too many", hint=f"Send {MAX_ALIASES} at most.")
    return kept


def distinct_names(names: Iterable[str], *, besides: str | None = None) -> tuple[str, ...]:
    """The names that differ by more than case, each as it came first."""
    known = {} if besides is None else {besides.lower(): besides}
    for name in names:
        known.setdefault(name.lower(), name)
    if besides is not None:
        del known[besides.lower()]
    return tuple(known.values())


def validate_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """An object as PostgreSQL can keep it, of a size that can be read, and without what a merge writes."""
    if forbidden := RESERVED_METADATA_KEYS.intersection(metadata):
        raise InvalidInput(
            f"metadata can't have the key {', '.join(sorted(forbidden))}",
            hint="entity_merge writes it; leave it out.",
        )
    kept: dict[str, Any] = _kept(metadata, MAX_METADATA_DEPTH)
    if len(json.dumps(kept).encode()) > MAX_METADATA_BYTES:
        raise InvalidInput(
            "metadata is too large", hint=f"Send {MAX_METADATA_BYTES} bytes at most; store facts for the rest."
        )
    return kept


def _kept(value: Any, depth: int) -> Any:
    if depth == 0:
        raise InvalidInput("metadata is nested too deeply", hint=f"Nest {MAX_METADATA_DEPTH} levels at most.")
    if isinstance(value, Mapping):
        return {sanitize_text(str(name)): _kept(each, depth - 1) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_kept(each, depth - 1) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput("metadata has a number that is none", hint="NaN and infinity can't be kept.")
    return sanitize_text(value) if isinstance(value, str) else value
