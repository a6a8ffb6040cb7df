"""Hygiene of a memory: pairs that say the same or contradict each other, findings with remedies, and a score."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from butlers.modules.memory.domain.fact_comparison import Comparison, Statement, compare
from butlers.modules.memory.domain.model import MemoryType, Provenance
from butlers.modules.memory.domain.similar_pairs import Comparable, nearest_pairs

MIN_TWIN_SIMILARITY, MIN_CONTRADICTION_SIMILARITY = 0.72, 0.8
MAX_PAIRS_OF_GROUP = 20_000
MAX_EXAMPLES = 5
NEGLECTED_WEIGHT = 0.25
"""A memory that nobody used or judged yet may still be good: it counts a quarter."""


class FindingKind(StrEnum):
    """The kinds of findings."""

    DUPLICATES = "duplicates"
    TWINS = "twins"
    CONTRADICTIONS = "contradictions"
    ECHOES = "echoes"
    SECRETS = "secrets"
    UNUSED_FACTS = "unused_facts"
    UNJUDGED_RULES = "unjudged_rules"
    ENTITIES = "entities_with_one_name"


REMEDIES = {
    FindingKind.DUPLICATES: "forget the later copy",
    FindingKind.TWINS: "forget the later one of two that say the same",
    FindingKind.CONTRADICTIONS: "decide in the review of the dashboard, or store the right one with supersedes_id",
    FindingKind.ECHOES: "forget what was learned from a session that had been told it",
    FindingKind.SECRETS: "forget it; erase it with `butlers memory erase` to remove it for good",
    FindingKind.UNUSED_FACTS: "forget those that nobody needs",
    FindingKind.UNJUDGED_RULES: "mark them helpful or harmful, or forget them",
    FindingKind.ENTITIES: "merge them in the dashboard, or with entity_merge",
}
FIXABLE = tuple(kind for kind in FindingKind if kind not in {FindingKind.CONTRADICTIONS, FindingKind.ENTITIES})
"""The kinds that a fix can remedy by forgetting; the others need a decision."""
DEFAULT_FIXES = (FindingKind.DUPLICATES, FindingKind.TWINS, FindingKind.ECHOES)
_NEGLECTED = {FindingKind.UNUSED_FACTS, FindingKind.UNJUDGED_RULES}


@dataclass(frozen=True, slots=True)
class HygieneRecord:
    """A live fact or rule as far as it is compared."""

    id: UUID
    memory_type: MemoryType
    content: str
    vector: Sequence[float] | None
    created_at: datetime
    subject: str = ""
    predicate: str = ""
    scope: str = ""
    entity_id: UUID | None = None
    provenance: str | None = None

    @property
    def statement(self) -> Statement:
        """What it says."""
        return Statement(self.content, self.subject, self.predicate)

    @property
    def keep_order(self) -> tuple[bool, datetime, UUID]:
        """Which of two is kept: one that was stored directly, then the older one."""
        return (self.provenance == Provenance.DISTILLED, self.created_at, self.id)


@dataclass(frozen=True, slots=True)
class RecordPair:
    """Two records of which the second could go."""

    kind: FindingKind
    kept: HygieneRecord
    other: HygieneRecord
    similarity: float


@dataclass(slots=True)
class Finding:
    """Memories of one kind of finding: their number, some examples and, of those that can be fixed, the ids."""

    kind: FindingKind
    count: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)
    ids: dict[MemoryType, list[UUID]] = field(default_factory=dict)

    def add(self, memory_type: MemoryType, memory_id: UUID, example: Mapping[str, Any]) -> None:
        """Add one memory, once."""
        ids = self.ids.setdefault(memory_type, [])
        ids.append(memory_id)
        self.count += 1
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append({"memory_type": memory_type.value, "id": str(memory_id), **example})


def find_pairs(records: Sequence[HygieneRecord]) -> list[RecordPair]:
    """The pairs of a group, the most similar first, that are duplicates, twins or contradictions."""
    found = {**_near_pairs(records), **_equal_pairs(records)}
    return sorted(found.values(), key=lambda pair: (-pair.similarity, pair.kept.id, pair.other.id))


def _near_pairs(records: Sequence[HygieneRecord]) -> dict[frozenset[UUID], RecordPair]:
    embedded = [each for each in records if each.vector is not None]
    items = [Comparable(each.vector, ("group",), each.entity_id) for each in embedded if each.vector is not None]
    found = {}
    for first, second, similarity in nearest_pairs(items, MIN_TWIN_SIMILARITY, MAX_PAIRS_OF_GROUP):
        pair = _judge(embedded[first], embedded[second], similarity)
        if pair is not None:
            found[frozenset((pair.kept.id, pair.other.id))] = pair
    return found


def _judge(first: HygieneRecord, second: HygieneRecord, similarity: float) -> RecordPair | None:
    kept, other = sorted((first, second), key=lambda each: each.keep_order)
    comparison = compare(other.statement, kept.statement)
    if comparison is Comparison.SAME:
        return RecordPair(FindingKind.TWINS, kept, other, similarity)
    is_about_the_same = comparison is Comparison.OTHERWISE and first.memory_type is MemoryType.FACT
    if is_about_the_same and first.predicate != second.predicate and similarity >= MIN_CONTRADICTION_SIMILARITY:
        return RecordPair(FindingKind.CONTRADICTIONS, kept, other, similarity)
    return None


def _equal_pairs(records: Sequence[HygieneRecord]) -> dict[frozenset[UUID], RecordPair]:
    """Pairs with the same words, each with the one that is kept of all that have them."""
    kept: dict[tuple[str, str, UUID | None], HygieneRecord] = {}
    found = {}
    for each in sorted(records, key=lambda each: each.keep_order):
        key = (each.subject.casefold(), " ".join(each.content.casefold().split()), each.entity_id)
        first = kept.setdefault(key, each)
        if first is not each:
            found[frozenset((first.id, each.id))] = RecordPair(FindingKind.DUPLICATES, first, each, 1.0)
    return found


def choose_superfluous(pairs: Iterable[RecordPair]) -> list[RecordPair]:
    """The pairs whose second record can go: never one that another pair keeps, and none twice."""
    gone: set[UUID] = set()
    kept: set[UUID] = set()
    chosen = []
    for pair in pairs:
        if pair.kept.id in gone or pair.other.id in gone or pair.other.id in kept:
            continue
        gone.add(pair.other.id)
        kept.add(pair.kept.id)
        chosen.append(pair)
    return chosen


def hygiene_score(live: int, findings: Iterable[Finding]) -> int:
    """The score between 0 and 100: the share of live memories that are good; each counts once, at its worst."""
    bad: set[UUID] = set()
    neglected: set[UUID] = set()
    for finding in findings:
        ids = (each for group in finding.ids.values() for each in group)
        (neglected if finding.kind in _NEGLECTED else bad).update(ids)
    share = (len(bad) + NEGLECTED_WEIGHT * len(neglected - bad)) / max(live, 1)
    return round(100 * max(0.0, 1 - share))
