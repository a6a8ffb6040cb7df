"""The merge of two entities: conflicting facts, aliases and metadata."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from butlers.modules.memory.domain.entities import FORMER_NAME, MERGED_INTO, RESERVED_METADATA_KEYS, distinct_names


@dataclass(frozen=True, slots=True)
class MergeSide:
    """One of the two entities of a merge."""

    id: UUID
    canonical_name: str
    aliases: tuple[str, ...]
    metadata: Mapping[str, Any]

    @property
    def merged_away(self) -> bool:
        """Whether it was merged into another entity."""
        return MERGED_INTO in self.metadata


@dataclass(frozen=True, slots=True)
class ConflictingFact:
    """A live fact of one of the two entities."""

    id: UUID
    entity_id: UUID
    scope: str
    predicate: str
    confidence: float
    content: str = ""


@dataclass(frozen=True, slots=True)
class ConflictResolution:
    """Two live facts with the same key: the one that stays and the one it supersedes."""

    kept: ConflictingFact
    superseded: ConflictingFact


def resolve_conflicts(facts: Iterable[ConflictingFact], source_id: UUID, target_id: UUID) -> list[ConflictResolution]:
    """One resolution for each key that both entities have; the higher confidence stays, or else the target's fact."""
    by_key = {(fact.entity_id, fact.scope, fact.predicate): fact for fact in facts}
    pairs = (
        (fact, by_key[target_id, fact.scope, fact.predicate])
        for fact in by_key.values()
        if fact.entity_id == source_id and (target_id, fact.scope, fact.predicate) in by_key
    )
    return [
        ConflictResolution(source, target)
        if source.confidence > target.confidence
        else ConflictResolution(target, source)
        for source, target in pairs
    ]


def merged_aliases(source: MergeSide, target: MergeSide) -> tuple[str, ...]:
    """The target's aliases, then the source's name and aliases, without duplicates (ignoring case)."""
    names = (*target.aliases, source.canonical_name, *source.aliases)
    return distinct_names(names, excluding=target.canonical_name)


def merged_metadata(source: MergeSide, target: MergeSide) -> dict[str, Any]:
    """The metadata of both; the target's value where both have a key."""
    inherited = {name: value for name, value in source.metadata.items() if name not in RESERVED_METADATA_KEYS}
    return {**inherited, **target.metadata}


def merged_away_metadata(source: MergeSide, target: MergeSide) -> dict[str, Any]:
    """The source's metadata after the merge, with the target's id and the source's former name."""
    return {**source.metadata, MERGED_INTO: str(target.id), FORMER_NAME: source.canonical_name}
