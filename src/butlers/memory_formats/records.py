"""Records of other memory systems, as every format's reader yields them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

Relation = Literal["derived_from", "supports", "contradicts", "related_to"]
EntityType = Literal["person", "organization", "place", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ForeignMemory:
    id: str
    """Its id in the other system, or a text that identifies it there; it is the same in every copy of the file."""
    content: str
    tags: tuple[str, ...] = ()
    created_at: datetime | None = None
    updated_at: datetime | None = None
    importance: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Values that no field of ours holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignFact(_ForeignMemory):
    """A statement about a subject. Several may have one subject and predicate."""

    subject: str
    predicate: str
    entity: str = ""
    """The name of the entity it is about, if it is about one."""
    is_volatile: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRule(_ForeignMemory):
    """An instruction about how to work."""

    is_persona: bool = False
    """Whether it says who the other system's agent is; such a rule is imported only if it is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignEpisode(_ForeignMemory):
    """A conversation, or something else that happened."""

    session: str = ""
    """The id of its session, if an agent's session it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignEntity:
    """A person, organization, place or thing. Names that differ in case only are one entity."""

    name: str
    entity_type: EntityType = "other"
    aliases: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ForeignLink:
    """A relation between two memories of the file, each by its id."""

    source: str
    target: str
    relation: Relation = "related_to"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A part of a file that is valid and has no place in a memory."""

    reason: str


@dataclass(frozen=True, slots=True)
class Problem:
    """A part of a file that can't be read: the place and the reason."""

    place: str
    reason: str


ForeignMemory = ForeignFact | ForeignRule | ForeignEpisode
ForeignRecord = ForeignMemory | ForeignEntity | ForeignLink | LeftOut | Problem
