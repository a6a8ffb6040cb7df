"""Guards of consolidation: echoes of what a session was told, and new facts that say what a live one says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.config import ConsolidationConfig
from butlers.modules.memory.domain.consolidation_prompt import PromptEpisode
from butlers.modules.memory.domain.fact_comparison import Comparison, Statement, compare, is_said_in
from butlers.modules.memory.domain.model import MemoryType, NewFact, NewRule
from butlers.modules.memory.store import consolidation_guards
from butlers.modules.memory.store.consolidation_guards import NearMemory
from butlers.modules.memory.store.embedding_versions import EmbeddedText

MIN_SIMILARITY = 0.72
"""Near enough to be about the same thing; the words decide whether it says the same."""
_MAX_NEAR = 5


@dataclass(frozen=True, slots=True)
class ConsolidationGuards:
    """What a new memory is compared with before it is stored."""

    tx: Connection
    caller: Caller
    scopes: Sequence[str]
    settings: ConsolidationConfig

    async def find_echoed(
        self, new: NewFact | NewRule, embedded: EmbeddedText, evidence: Sequence[PromptEpisode]
    ) -> NearMemory | None:
        """Return the told memory that a new one repeats, if it has no other source.

        It has another one if the session of an episode was not told it, or if the episode's prompt says it.
        """
        if not self.settings.drop_echoes or not evidence:
            return None
        told = await consolidation_guards.told_memories(self.tx, self.caller, [each.id for each in evidence])
        statement = statement_of(new)
        if any(each.id not in told or is_said_in(statement, each.content) for each in evidence):
            return None
        return await self._echoed_by_all(new, statement, embedded, told)

    async def _echoed_by_all(
        self,
        new: NewFact | NewRule,
        statement: Statement,
        embedded: EmbeddedText,
        told: Mapping[UUID, Sequence[UUID]],
    ) -> NearMemory | None:
        """Return the nearest told memory that says the same, if every session was told one that does."""
        kind = MemoryType.FACT if isinstance(new, NewFact) else MemoryType.RULE
        ids = sorted({each for memory_ids in told.values() for each in memory_ids})
        near = await consolidation_guards.near_memories(self.tx, self.caller, kind, ids, embedded, MIN_SIMILARITY)
        same = [each for each in near if compare(statement, each.statement) is Comparison.SAME]
        same_ids = {each.id for each in same}
        return same[0] if same and all(same_ids & set(memory_ids) for memory_ids in told.values()) else None

    async def find_near(self, fact: NewFact, embedded: EmbeddedText) -> list[NearMemory]:
        """Return the live facts about the subject of a new one that are about the same thing."""
        near = await consolidation_guards.near_facts(
            self.tx, self.caller, fact.subject, embedded, self.scopes, MIN_SIMILARITY, _MAX_NEAR
        )
        statement = statement_of(fact)
        return [each for each in near if compare(statement, each.statement) is not Comparison.DIFFERENT_THING]

    async def find_twin(self, fact: NewFact, embedded: EmbeddedText) -> NearMemory | None:
        """Return the live fact under another key that says what a new one says."""
        if not self.settings.confirm_twins:
            return None
        statement = statement_of(fact)
        near = await self.find_near(fact, embedded)
        return next((each for each in near if compare(statement, each.statement) is Comparison.SAME), None)

    async def find_contradicted(self, fact: NewFact, embedded: EmbeddedText) -> NearMemory | None:
        """Return the live fact under another key that says otherwise about the same thing."""
        statement = statement_of(fact)
        near = [each for each in await self.find_near(fact, embedded) if each.predicate != fact.predicate]
        if any(compare(statement, each.statement) is Comparison.SAME for each in near):
            return None
        return near[0] if near else None


def statement_of(new: NewFact | NewRule) -> Statement:
    """Return what a memory says."""
    if isinstance(new, NewRule):
        return Statement(new.content)
    return Statement(new.content, new.subject, new.predicate)
