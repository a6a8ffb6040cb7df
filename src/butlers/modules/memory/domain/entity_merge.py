"""Two entities that are one: which fact stays, which names and what metadata the one has."""

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
        """Whether another entity stands for it already."""
        return MERGED_INTO in self.metadata


@dataclass(frozen=True, slots=True)
class ConflictingFact:
    """A live fact of one of the two."""

    id: UUID
    entity_id: UUID
    scope: str
    predicate: str
    confidence: float
    content: str = ""


@dataclass(frozen=True, slots=True)
class ConflictResolution:
    """Two live facts under one key: the one that stays, and the one it supersedes."""

    kept: ConflictingFact
    superseded: ConflictingFact


def resolve_conflicts(
    beliefs: Iterable[ConflictingFact], source_id: UUID, target_id: UUID
) -> list[ConflictResolution]:
    """Each conflict between the two entities' live facts, settled for the higher confidence, else for the target."""
    known = {(each.entity_id, each.scope, each.predicate): each for each in beliefs}
    pairs = (
        (theirs, known[target_id, theirs.scope, theirs.predicate])
        for theirs in known.values()
        if theirs.entity_id == source_id and (target_id, theirs.scope, theirs.predicate) in known
    )
    return [
        ConflictResolution(theirs, ours) if theirs.confidence > ours.confidence else ConflictResolution(ours, theirs)
        for theirs, ours in pairs
    ]


def merged_aliases(source: MergeSide, target: MergeSide) -> tuple[str, ...]:
    """The target's aliases, then the source's name and aliases, none of them twice whatever its case."""
    names = (*target.aliases, source.canonical_name, *source.aliases)
    return distinct_names(names, besides=target.canonical_name)


def merged_metadata(source: MergeSide, target: MergeSide) -> dict[str, Any]:
    """What either had; where both had something, the target's."""
    passed_on = {name: value for name, value in source.metadata.items() if name not in RESERVED_METADATA_KEYS}
    return {**passed_on, **target.metadata}


def merged_away_metadata(source: MergeSide, target: MergeSide) -> dict[str, Any]:
    """The source's metadata once it is gone: who stands for it, and what it was called."""
    return {**source.metadata, MERGED_INTO: str(target.id), FORMER_NAME: source.canonical_name}
