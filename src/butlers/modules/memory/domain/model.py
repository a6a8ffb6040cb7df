"""Types, states and validated inputs of the memory module."""

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from uuid import UUID

from butlers.errors import InvalidInput
from butlers.modules.memory.domain.errors import UnknownPermanence

GLOBAL = "global"
EVERY_SCOPE = "*"
MAX_KEY_CHARACTERS = 512
MAX_SCOPE_CHARACTERS = 128
BYTES_PER_CHARACTER = 2
"""The largest average: the key of a fact has to fit into one index entry of 2,704 bytes."""
MAX_CONTENT_BYTES = 1_000_000
MAX_TAGS = 50
MAX_LISTED_CHARACTERS = 1_000
"""Characters of a content that a list of memories shows."""
MAX_IMPORTANCE = 10.0


class MemoryType(StrEnum):
    """The three kinds of memory."""

    EPISODE = "episode"
    FACT = "fact"
    RULE = "rule"


class Permanence(StrEnum):
    """The levels of decay of an unconfirmed memory."""

    PERMANENT = "permanent"
    STABLE = "stable"
    STANDARD = "standard"
    VOLATILE = "volatile"
    EPHEMERAL = "ephemeral"

    @property
    def decay_rate(self) -> float:
        """The daily decay of confidence, as the exponent of e."""
        return _DECAY_RATES[self]

    @classmethod
    def named(cls, name: str) -> "Permanence":
        """The permanence of that name; raises UnknownPermanence."""
        try:
            return cls(name)
        except ValueError:
            raise UnknownPermanence(name, cls) from None


_DECAY_RATES = {
    Permanence.PERMANENT: 0.0,
    Permanence.STABLE: 0.002,
    Permanence.STANDARD: 0.008,
    Permanence.VOLATILE: 0.03,
    Permanence.EPHEMERAL: 0.1,
}
CANDIDATE_DECAY_RATE = 0.01
"""The rate of a rule that is stored without a permanence."""
FACT_CONFIDENCE, RULE_CONFIDENCE = 1.0, 0.5
"""The confidence of a new fact and of a new rule."""


class Provenance(StrEnum):
    """The origin of a memory that was not stored directly; stored in its metadata."""

    DISTILLED = "distilled"
    SUPPORTED = "supported"


class Maturity(StrEnum):
    """The trust levels of a rule."""

    CANDIDATE = "candidate"
    ESTABLISHED = "established"
    PROVEN = "proven"
    ANTI_PATTERN = "anti_pattern"


class Relation(StrEnum):
    """The kinds of links between memories."""

    DERIVED_FROM = "derived_from"
    SUPPORTS = "supports"
    CONTRADICTS = "contradicts"
    SUPERSEDES = "supersedes"
    RELATED_TO = "related_to"


class SearchMode(StrEnum):
    """The ways a search ranks."""

    SEMANTIC = "semantic"
    KEYWORD = "keyword"
    HYBRID = "hybrid"
    BLENDED = "blended"


@dataclass(frozen=True, slots=True, kw_only=True)
class _NewMemory:
    content: str
    metadata: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, validate in _VALIDATORS.items():
            if hasattr(self, name):
                object.__setattr__(self, name, validate(getattr(self, name)))

    @property
    def searchable(self) -> str:
        """The text to embed and index."""
        return self.content


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEpisode(_NewMemory):
    """A validated episode to store: something that happened in a session."""

    butler: str
    session_id: UUID | None = None
    importance: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFact(_NewMemory):
    """A validated fact to store: something that is known."""

    subject: str
    predicate: str
    importance: float = 5.0
    permanence: Permanence = Permanence.STANDARD
    scope: str = GLOBAL
    tags: tuple[str, ...] = ()
    entity_id: UUID | None = None

    @property
    def searchable(self) -> str:
        """The text to embed and index; content alone does not say what a fact is about."""
        return fact_text(self.subject, self.predicate, self.content)

    @property
    def key(self) -> str:
        """The key that at most one live fact of a tenant may have."""
        return fact_key(self.scope, self.subject, self.predicate, self.entity_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRule(_NewMemory):
    """A validated rule to store: a way of working."""

    scope: str = GLOBAL
    tags: tuple[str, ...] = ()
    permanence: Permanence | None = None

    @property
    def decay_rate(self) -> float:
        """The rate of its permanence, or that of a candidate."""
        return self.permanence.decay_rate if self.permanence else CANDIDATE_DECAY_RATE


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEdit:
    """A validated change of a fact or rule in place; a field that is None stays unchanged."""

    importance: float | None = None
    permanence: Permanence | None = None
    tags: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not self.fields:
            raise InvalidInput("the change is empty", hint="Send an importance, a permanence or tags.")
        if self.importance is not None:
            object.__setattr__(self, "importance", validate_importance(self.importance))
        if self.tags is not None:
            object.__setattr__(self, "tags", validate_tags(self.tags))

    @property
    def fields(self) -> list[str]:
        """The names of the fields that are sent."""
        return [name for name in ("importance", "permanence", "tags") if getattr(self, name) is not None]

    @property
    def columns(self) -> dict[str, Any]:
        """The columns that facts and rules share."""
        return {
            "permanence": self.permanence,
            "decay_rate": self.permanence.decay_rate if self.permanence else None,
            "tags": self.tags,
        }


def fact_key(scope: str, subject: str, predicate: str, entity_id: UUID | None) -> str:
    """The key of a fact: scope, entity (or subject if it has none) and predicate."""
    topic = f"entity {entity_id}" if entity_id else f"subject {subject}"
    return "\x1f".join((scope, topic, predicate))


def fact_text(subject: str, predicate: str, content: str) -> str:
    """A fact as one text to embed, the same for storing and re-embedding."""
    return f"{subject} {predicate} {content}"


def sanitize_text(text: str) -> str:
    """The text as PostgreSQL can store it: no NUL, no lone surrogate, composed characters."""
    storable = text.replace("\x00", "").encode("utf-8", "replace").decode("utf-8")
    return unicodedata.normalize("NFC", storable)


def normalize_name(text: str) -> str:
    """The name as it is stored and compared: one line, single spaces."""
    return " ".join(sanitize_text(text).split())


def validate_short_text(name: str, text: str, max_characters: int) -> str:
    """The text as one trimmed line; raises InvalidInput if it is blank or too long for an index entry."""
    short = normalize_name(text)
    if not short:
        raise InvalidInput(f"{name} is blank", hint=f"Send a {name} with at least one visible character.")
    size, max_bytes = len(short.encode()), BYTES_PER_CHARACTER * max_characters
    if len(short) > max_characters or size > max_bytes:
        raise InvalidInput(
            f"{name} has {len(short)} characters in {size} bytes",
            hint=f"Send {max_characters} characters and {max_bytes} bytes at most.",
        )
    return short


def validate_content(name: str, text: str) -> str:
    """The trimmed text; raises InvalidInput if it is blank or over a megabyte."""
    content = sanitize_text(text).strip()
    if not content:
        raise InvalidInput(f"{name} is blank", hint=f"Send a {name} with at least one visible character.")
    if len(content.encode()) > MAX_CONTENT_BYTES:
        raise InvalidInput(f"{name} is longer than a megabyte", hint="Store a summary, or several memories.")
    return content


def validate_scope(scope: str) -> str:
    """The scope; raises InvalidInput if it is blank, too long or '*'."""
    name = validate_short_text("scope", scope, MAX_SCOPE_CHARACTERS)
    if name == EVERY_SCOPE:
        raise InvalidInput("'*' can't be a scope of its own", hint=f"Store under '{GLOBAL}' or a butler's name.")
    return name


def validate_tags(tags: tuple[str, ...]) -> tuple[str, ...]:
    """The tags in order without duplicates; raises InvalidInput if there are too many."""
    if len(tags) > MAX_TAGS:
        raise InvalidInput(f"{len(tags)} tags are too many", hint=f"Send {MAX_TAGS} at most.")
    return tuple(dict.fromkeys(validate_short_text("tag", tag, MAX_SCOPE_CHARACTERS) for tag in tags))


def validate_importance(importance: float) -> float:
    """The importance; raises InvalidInput unless it is between 0 and 10."""
    if not 0 <= importance <= MAX_IMPORTANCE:
        raise InvalidInput("importance must be between 0 and 10", hint="0 is trivial, 5 ordinary, 10 vital.")
    return importance


_VALIDATORS: dict[str, Callable[[Any], object]] = {
    "subject": lambda text: validate_short_text("subject", text, MAX_KEY_CHARACTERS),
    "predicate": lambda text: validate_short_text("predicate", text, MAX_KEY_CHARACTERS),
    "content": lambda text: validate_content("content", text),
    "butler": lambda text: validate_short_text("butler", text, MAX_SCOPE_CHARACTERS),
    "scope": validate_scope,
    "tags": validate_tags,
    "importance": validate_importance,
}
