"""The words memory is spoken of in: kinds, states, and what goes in."""

import math
import unicodedata
from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID

from butlers.errors import InvalidInput
from butlers.modules.memory.domain.errors import UnknownPermanence

GLOBAL = "global"
EVERY_SCOPE = "*"
MAX_KEY_CHARACTERS = 512
MAX_SCOPE_CHARACTERS = 128
BYTES_PER_CHARACTER = 2
"""On average at the most: the keys of a fact have to fit into one index entry of 2,704 bytes."""
MAX_CONTENT_BYTES = 1_000_000
MAX_TAGS = 50
MAX_IMPORTANCE = 10.0


class MemoryType(StrEnum):
    """The three kinds of memory."""

    EPISODE = "episode"
    FACT = "fact"
    RULE = "rule"


class Permanence(StrEnum):
    """How long something stays believed without being confirmed."""

    PERMANENT = "permanent"
    STABLE = "stable"
    STANDARD = "standard"
    VOLATILE = "volatile"
    EPHEMERAL = "ephemeral"

    @property
    def decay_rate(self) -> float:
        """How much of the belief is lost a day, as the exponent of e."""
        return _DECAY_RATES[self]

    @classmethod
    def named(cls, name: str) -> "Permanence":
        """The permanence of that name."""
        try:
            return cls(name)
        except ValueError:
            raise UnknownPermanence(name, [each.value for each in cls]) from None


_DECAY_RATES = {
    Permanence.PERMANENT: 0.0,
    Permanence.STABLE: 0.002,
    Permanence.STANDARD: 0.008,
    Permanence.VOLATILE: 0.03,
    Permanence.EPHEMERAL: 0.1,
}
CANDIDATE_DECAY_RATE = 0.01
"""A rule stored without a permanence has to earn its stay."""


FACT_CONFIDENCE, RULE_CONFIDENCE = 1.0, 0.5
"""How far a new fact is believed, and a new rule."""


class Provenance(StrEnum):
    """How a memory came about, where somebody did not simply store it; kept in its metadata."""

    DISTILLED = "distilled"
    SUPPORTED = "supported"


class Maturity(StrEnum):
    """How far a rule is trusted."""

    CANDIDATE = "candidate"
    ESTABLISHED = "established"
    PROVEN = "proven"
    ANTI_PATTERN = "anti_pattern"


class Relation(StrEnum):
    """How one memory stands to another."""

    DERIVED_FROM = "derived_from"
    SUPPORTS = "supports"
    CONTRADICTS = "contradicts"
    SUPERSEDES = "supersedes"
    RELATED_TO = "related_to"


class SearchMode(StrEnum):
    """How a search looks."""

    SEMANTIC = "semantic"
    KEYWORD = "keyword"
    HYBRID = "hybrid"
    BLENDED = "blended"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEpisode:
    """Something that happened in a session."""

    content: str
    butler: str
    session_id: UUID | None = None
    importance: float = 5.0
    metadata: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "content", validate_content("content", self.content))
        object.__setattr__(self, "butler", validate_short_text("butler", self.butler, MAX_SCOPE_CHARACTERS))
        validate_importance(self.importance)

    @property
    def searchable(self) -> str:
        """What is embedded and indexed."""
        return self.content


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFact:
    """Something that is known."""

    subject: str
    predicate: str
    content: str
    importance: float = 5.0
    permanence: Permanence = Permanence.STANDARD
    scope: str = GLOBAL
    tags: tuple[str, ...] = ()
    entity_id: UUID | None = None
    metadata: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("subject", "predicate"):
            object.__setattr__(self, name, validate_short_text(name, getattr(self, name), MAX_KEY_CHARACTERS))
        object.__setattr__(self, "content", validate_content("content", self.content))
        object.__setattr__(self, "scope", validate_scope(self.scope))
        object.__setattr__(self, "tags", validate_tags(self.tags))
        validate_importance(self.importance)

    @property
    def searchable(self) -> str:
        """What is embedded and indexed: a fact without its subject and predicate answers nothing."""
        return fact_text(self.subject, self.predicate, self.content)

    @property
    def key(self) -> str:
        """What at most one live fact of a tenant may have, as one text."""
        return fact_key(self.scope, self.subject, self.predicate, self.entity_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRule:
    """Something that works."""

    content: str
    scope: str = GLOBAL
    tags: tuple[str, ...] = ()
    permanence: Permanence | None = None
    metadata: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "content", validate_content("content", self.content))
        object.__setattr__(self, "scope", validate_scope(self.scope))
        object.__setattr__(self, "tags", validate_tags(self.tags))

    @property
    def searchable(self) -> str:
        """What is embedded and indexed."""
        return self.content

    @property
    def decay_rate(self) -> float:
        """Its permanence's rate, or a candidate's."""
        return self.permanence.decay_rate if self.permanence else CANDIDATE_DECAY_RATE


def fact_key(scope: str, subject: str, predicate: str, entity_id: UUID | None) -> str:
    """The key of a fact: its entity, or without one its subject, under a scope and a predicate."""
    about = f"entity {entity_id}" if entity_id else f"subject {subject}"
    return "\x1f".join((scope, about, predicate))


def fact_text(subject: str, predicate: str, content: str) -> str:
    """A fact as one text, the same when it is written and when it is embedded anew."""
    return f"{subject} {predicate} {content}"


def sanitize_text(text: str) -> str:
    """The text as PostgreSQL can keep it: no NUL, no lone surrogate, composed characters."""
    whole = text.replace("\x00", "").encode("utf-8", "replace").decode("utf-8")
    return unicodedata.normalize("NFC", whole)


def normalize_name(text: str) -> str:
    """A name as it is kept and compared: one line, single spaces."""
    return " ".join(sanitize_text(text).split())


def validate_short_text(name: str, text: str, longest: int) -> str:
    """A name or key: one line, trimmed, not blank, not too long for an index in any script."""
    short = normalize_name(text)
    if not short:
        raise InvalidInput(f"{name} is blank", hint=f"Send a {name} with at least one visible character.")
    size = len(short.encode())
    if len(short) > longest or size > BYTES_PER_CHARACTER * longest:
        raise InvalidInput(
            f"{name} has {len(short)} characters in {size} bytes",
            hint=f"Send {longest} characters and {BYTES_PER_CHARACTER * longest} bytes at most.",
        )
    return short


def validate_content(name: str, text: str) -> str:
    """A content: anything but blank, up to a megabyte."""
    whole = sanitize_text(text).strip()
    if not whole:
        raise InvalidInput(f"{name} is blank", hint=f"Send a {name} with at least one visible character.")
    if len(whole.encode()) > MAX_CONTENT_BYTES:
        raise InvalidInput(f"{name} is longer than a megabyte", hint="Store a summary, or several memories.")
    return whole


def validate_scope(scope: str) -> str:
    """A scope's name."""
    name = validate_short_text("scope", scope, MAX_SCOPE_CHARACTERS)
    if name == EVERY_SCOPE:
        raise InvalidInput("'*' can't be a scope of its own", hint=f"Store under '{GLOBAL}' or a butler's name.")
    return name


def validate_tags(tags: tuple[str, ...]) -> tuple[str, ...]:
    """Tags without copies, in the order they came."""
    if len(tags) > MAX_TAGS:
        raise InvalidInput(f"{len(tags)} tags are too many", hint=f"Send {MAX_TAGS} at most.")
    return tuple(dict.fromkeys(validate_short_text("tag", tag, MAX_SCOPE_CHARACTERS) for tag in tags))


def validate_importance(importance: float) -> float:
    """An importance between 0 and 10; NaN is none."""
    if math.isnan(importance) or not 0 <= importance <= MAX_IMPORTANCE:
        raise InvalidInput("importance lies between 0 and 10", hint="0 is trivial, 5 ordinary, 10 vital.")
    return importance
