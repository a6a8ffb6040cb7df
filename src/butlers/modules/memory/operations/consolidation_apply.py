"""Application of a model's consolidation output: one transaction for a batch, a savepoint for each action."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from butlers.caller import Caller
from butlers.db import WRITE_TIMEOUT_SECONDS, Connection, as_fault
from butlers.errors import Conflict, Fault, NotFound, Overloaded, TimedOut, Unavailable
from butlers.modules.memory.config import ConsolidationConfig
from butlers.modules.memory.domain.consolidation_output import (
    Confirmation,
    ConsolidationResult,
    ExtractedFact,
    ExtractedRule,
    FactUpdate,
)
from butlers.modules.memory.domain.model import (
    FACT_CONFIDENCE,
    GLOBAL,
    RULE_CONFIDENCE,
    MemoryType,
    NewFact,
    NewRule,
    Provenance,
    Relation,
)
from butlers.modules.memory.domain.rule_fingerprint import fingerprint
from butlers.modules.memory.operations.change_events import append_changes
from butlers.modules.memory.operations.consolidation_guards import ConsolidationGuards
from butlers.modules.memory.operations.secrets import redact_secrets
from butlers.modules.memory.operations.writing import store_fact_in
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import consolidation, events, facts, links, memories, proposals, rules, states
from butlers.modules.memory.store.consolidation import EpisodeBatch, LeasedEpisode, RunRecord
from butlers.modules.memory.store.embedding_versions import EmbeddedText
from butlers.modules.memory.store.events import Event
from butlers.modules.memory.store.facts import UpdateTarget
from butlers.modules.memory.store.links import Link
from butlers.modules.memory.store.proposals import NewProposal

log = logging.getLogger("butlers.memory")
_NEIGHBOURS = 20
_BY_CONSOLIDATION = {"by": "consolidation"}
_DISTILLED: dict[str, object] = {"provenance": Provenance.DISTILLED.value}
New = TypeVar("New", NewFact, NewRule)
Vectors = Mapping[str, EmbeddedText]
"""The embeddings of memories to store, by text."""
# Not caused by the action and likely to pass: the whole batch is retried.
_TRANSIENT = (Unavailable, Overloaded, TimedOut)


class LeaseLost(Conflict):
    """The lease of the batch has passed to another worker."""

    def __init__(self) -> None:
        super().__init__("another worker has taken over the episodes", hint="That worker finishes them.")


class RejectedAction(Conflict):
    """A valid action that is refused; it does not make the batch fail."""


class NothingApplied(Conflict):
    """No action of the model's output could be applied."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__(f"no part of the model's output could be used: {'; '.join(reasons[:3])}")


@dataclass(frozen=True, slots=True)
class PreparedAction:
    """An action with its path in the model's output, and the memory it stores or the fault that prevents it."""

    path: str
    extracted: ExtractedFact | FactUpdate | ExtractedRule | Confirmation
    new: NewFact | NewRule | Fault | None
    beside: tuple[UUID, Relation] | None = None
    """The known fact that a new one is linked to, and how."""


@dataclass(slots=True)
class BatchExecutor:
    """State of one batch while its actions are applied."""

    tx: Connection
    caller: Caller
    batch: EpisodeBatch
    locked: Mapping[UUID, LeasedEpisode]
    vectors: Mapping[str, EmbeddedText]
    record: RunRecord
    settings: ConsolidationConfig
    learned: list[dict[str, Any]] = field(default_factory=list)
    proposed: list[NewProposal] = field(default_factory=list)
    rejected: int = 0

    @property
    def scopes(self) -> list[str]:
        """The scopes this butler reads."""
        return [GLOBAL, self.batch.butler]

    @property
    def live_episodes(self) -> list[UUID]:
        """The episodes of the batch that still exist and are not forgotten, oldest first."""
        return [each for each in self.batch.ids if each in self.locked and not self.locked[each].is_forgotten]

    def evidence(self, named: Sequence[UUID]) -> list[UUID]:
        """Return the live episodes a memory was learned from: those named, or all of the batch without a valid name.

        Raises `RejectedAction` when the memory may come from an episode that was forgotten during the run.
        """
        in_batch = [each for each in named if each in self.batch.ids]
        if not in_batch:
            if any(each.is_forgotten for each in self.locked.values()):
                raise RejectedAction("it may come from an episode that was forgotten during the run")
            return self.live_episodes
        live = [each for each in in_batch if each in self.live_episodes]
        if not live:
            raise RejectedAction("the episodes it comes from are deleted or forgotten")
        return live

    @property
    def guards(self) -> ConsolidationGuards:
        """What new memories are compared with."""
        return ConsolidationGuards(self.tx, self.caller, self.scopes, self.settings)

    def source_of(self, evidence: Sequence[UUID]) -> UUID | None:
        """Return the first of these episodes that is not deleted."""
        return next((each for each in evidence if not self.locked[each].is_deleted), None)

    def latest(self, evidence: Sequence[UUID]) -> datetime:
        """Return the time of the latest of these episodes."""
        return max(each.happened_at for each in self.batch.episodes if each.id in evidence)

    async def lock_targets(self, actions: Sequence[PreparedAction]) -> None:
        """Lock every key and memory the actions may write; in advance, so that batches don't deadlock."""
        keys = [each.new.key for each in actions if isinstance(each.new, NewFact)]
        if any(isinstance(each.extracted, ExtractedRule) for each in actions):
            keys += [f"rules of {scope}" for scope in self.scopes]
        changes = [each.extracted for each in actions if isinstance(each.extracted, (FactUpdate, Confirmation))]
        await facts.lock_keys(self.tx, self.caller, keys)
        await consolidation.lock_targets(self.tx, self.caller, [each.target_id for each in changes])

    async def run(self, action: PreparedAction) -> None:
        """Run one action in a savepoint; a failure is recorded as an error and does not stop the others."""
        try:
            async with self.tx.transaction():
                await (self._propose(action) if self.settings.review == "before" else self.apply(action))
        except Exception as error:
            fault = as_fault(error)
            if isinstance(fault, _TRANSIENT):
                raise fault from error
            if fault is None:
                log.exception("a consolidation action failed", extra={"action": action.path})
            else:
                log.warning(
                    "a consolidation action was not applied", extra={"action": action.path, "code": fault.code}
                )
            self.rejected += isinstance(fault, RejectedAction)
            self.record.errors.append(f"{action.path}: {fault.message if fault else type(error).__name__}")

    async def _propose(self, action: PreparedAction) -> None:
        if isinstance(action.new, Fault):
            raise action.new
        named, is_confirmation = action.extracted.evidence, isinstance(action.extracted, Confirmation)
        evidence = [each for each in named if each in self.live_episodes] if is_confirmation else self.evidence(named)
        if isinstance(action.new, (NewFact, NewRule)):
            vector = self.vectors[action.new.searchable]
            if await self._drop_echo(action, action.new, vector, evidence):
                return
        happened_at = self.latest(evidence or self.live_episodes)
        self.proposed.append(to_proposal(action, evidence, happened_at))

    async def apply(self, action: PreparedAction) -> None:
        """Apply one action. Raises a fault if it can't be applied."""
        match action.extracted, action.new:
            case _, Fault() as fault:
                raise fault
            case ExtractedFact() as extracted, NewFact() as fact:
                await self._apply_new_fact(action, fact, self.evidence(extracted.evidence))
            case FactUpdate() as update, NewFact() as fact:
                await self._apply_update(update, fact)
            case ExtractedRule() as extracted, NewRule() as rule:
                await self._apply_new_rule(action, rule, self.evidence(extracted.evidence))
            case Confirmation() as confirmation, _:
                await self._apply_confirmation(confirmation)

    async def _apply_new_fact(self, action: PreparedAction, fact: NewFact, evidence: Sequence[UUID]) -> None:
        vector = self.vectors[fact.searchable]
        if await self._drop_echo(action, fact, vector, evidence):
            return
        existing = await facts.find_same_content(self.tx, self.caller, fact, self.scopes)
        if existing is None and (twin := await self.guards.find_twin(fact, vector)):
            existing = twin.id
        if existing is not None:
            await self._confirm_existing(MemoryType.FACT, existing, evidence)
            return
        if await facts.was_retracted_since(self.tx, self.caller, fact, self.scopes, self.latest(evidence)):
            raise RejectedAction("it was forgotten after the episode it comes from")
        fact_id = await self._store_fact(fact, evidence)
        if action.beside is not None:
            await self._link_beside(fact_id, *action.beside)

    async def _drop_echo(
        self, action: PreparedAction, new: NewFact | NewRule, vector: EmbeddedText, evidence: Sequence[UUID]
    ) -> bool:
        """Return whether a new memory is an echo of what the sessions of its episodes were told, and record that."""
        episodes = [each for each in self.batch.episodes if each.id in evidence]
        echoed = await self.guards.find_echoed(new, vector, episodes)
        if echoed is None:
            return False
        kind = MemoryType.FACT if isinstance(new, NewFact) else MemoryType.RULE
        payload = {"episodes": [str(each) for each in evidence], "similarity": round(echoed.similarity, 3)}
        event = Event(f"{kind}_echoed", kind, echoed.id, {**payload, **_BY_CONSOLIDATION})
        await events.append(self.tx, self.caller, event)
        self.rejected += 1
        self.record.errors.append(
            f"{action.path}: it is an echo of the {kind} {echoed.id}, which its session was told"
        )
        return True

    async def _link_beside(self, fact_id: UUID, known_id: UUID, relation: Relation) -> None:
        """Link a new fact to the known one that it contradicts, or holds beside, if that is still live."""
        if not await facts.update_targets(self.tx, self.caller, [known_id], self.scopes):
            return
        await links.create_link(
            self.tx, self.caller, Link(MemoryType.FACT, fact_id, MemoryType.FACT, known_id, relation)
        )
        if relation is Relation.CONTRADICTS:
            payload = {"contradicts": str(known_id), **_BY_CONSOLIDATION}
            await events.append(self.tx, self.caller, Event("fact_contradicts", MemoryType.FACT, fact_id, payload))

    async def _apply_update(self, update: FactUpdate, fact: NewFact) -> None:
        current = await facts.lock_live_by_key(self.tx, self.caller, fact)
        if current is None or current.id != update.target_id:
            raise Conflict(f"the fact {update.target_id} was replaced during the run")
        await self._store_fact(fact, self.evidence(update.evidence))

    async def _store_fact(self, fact: NewFact, evidence: Sequence[UUID]) -> UUID:
        stored = await store_fact_in(
            self.tx,
            self.caller,
            fact,
            self.vectors[fact.searchable],
            source_butler=self.batch.butler,
            source_episode_id=self.source_of(evidence),
            confidence=FACT_CONFIDENCE * self.settings.distilled_confidence,
        )
        fact_id = UUID(stored["id"])
        if stored.get("confirmed_existing"):
            await self._add_support(MemoryType.FACT, fact_id, evidence)
            return fact_id
        replaced = {"superseded_id": stored["superseded_id"]} if "superseded_id" in stored else {}
        await self._add_learned(fact, fact_id, evidence, **replaced)
        self.record.facts_updated += bool(replaced)
        self.record.facts_created += not replaced
        return fact_id

    async def _apply_new_rule(self, action: PreparedAction, rule: NewRule, evidence: Sequence[UUID]) -> None:
        vector = self.vectors[rule.searchable]
        if await self._drop_echo(action, rule, vector, evidence):
            return
        if (existing := await self._find_same_rule(rule, vector, self.latest(evidence))) is not None:
            await self._confirm_existing(MemoryType.RULE, existing, evidence)
            return
        rule_id, _ = await rules.insert(
            self.tx,
            self.caller,
            rule,
            vector,
            source_butler=self.batch.butler,
            source_episode_id=self.source_of(evidence),
            confidence=RULE_CONFIDENCE * self.settings.distilled_confidence,
            payload=_BY_CONSOLIDATION,
        )
        await self._add_learned(rule, rule_id, evidence)
        self.record.rules_created += 1

    async def _find_same_rule(self, rule: NewRule, vector: EmbeddedText, since: datetime) -> UUID | None:
        """Return the live rule with the same wording; raises `RejectedAction` when it did harm or was forgotten."""
        wording = fingerprint(rule.content)
        for warning in await rules.anti_patterns(self.tx, self.caller, self.scopes):
            if fingerprint(warning.original or "") == wording:
                raise RejectedAction(f"it is the original of the anti-pattern {warning.id}")
        forgotten = await rules.forgotten_since(self.tx, self.caller, self.scopes, since)
        if any(fingerprint(each.content) == wording for each in forgotten):
            raise RejectedAction("it was forgotten after the episode it comes from")
        for near in await rules.nearest(self.tx, self.caller, vector, self.scopes, _NEIGHBOURS):
            if fingerprint(near.content) == wording:
                if near.awaits_inversion:
                    raise RejectedAction("the rule with this content did harm")
                return near.id
        return None

    async def _apply_confirmation(self, confirmation: Confirmation) -> None:
        target_id = confirmation.target_id
        evidence = [each for each in confirmation.evidence if each in self.live_episodes]
        if await facts.update_targets(self.tx, self.caller, [target_id], self.scopes):
            await self._confirm_existing(MemoryType.FACT, target_id, evidence)
        elif await rules.live_among(self.tx, self.caller, [target_id], self.scopes):
            await self._confirm_existing(MemoryType.RULE, target_id, evidence)
        else:
            raise NotFound(f"there is no live fact or rule {target_id} in scope")

    async def _confirm_existing(self, memory_type: MemoryType, memory_id: UUID, evidence: Sequence[UUID]) -> None:
        supported = await links.is_independent(self.tx, self.caller, memory_type, memory_id, evidence)
        before = await states.lock(self.tx, self.caller, memory_type, [memory_id])
        if await memories.confirm(self.tx, self.caller, memory_type, memory_id, supported=supported) is None:
            raise NotFound(f"the {memory_type} {memory_id} is no longer live")
        event_type = f"{memory_type}_confirmed"
        await append_changes(self.tx, self.caller, event_type, memory_type, before, _BY_CONSOLIDATION, always=True)
        await self._add_support(memory_type, memory_id, evidence)

    async def _add_support(self, memory_type: MemoryType, memory_id: UUID, evidence: Sequence[UUID]) -> None:
        """Link episodes to the memory they support, and count its confirmation."""
        support = [Link(MemoryType.EPISODE, each, memory_type, memory_id, Relation.SUPPORTS) for each in evidence]
        await links.create_links(self.tx, self.caller, support)
        self.record.confirmed += 1

    async def _add_learned(
        self, new: NewFact | NewRule, memory_id: UUID, evidence: Sequence[UUID], **more: str
    ) -> None:
        """Link a new memory to the episodes it comes from, and add it to the report."""
        is_fact = isinstance(new, NewFact)
        kind = MemoryType.FACT if is_fact else MemoryType.RULE
        sources = [Link(kind, memory_id, MemoryType.EPISODE, each, Relation.DERIVED_FROM) for each in evidence]
        await links.create_links(self.tx, self.caller, sources)
        names = ("subject", "predicate", "content", "scope") if is_fact else ("content", "scope")
        shown = {name: getattr(new, name) for name in names}
        learned = {
            "memory_type": kind.value,
            "id": str(memory_id),
            **shown,
            "evidence": [str(each) for each in evidence],
        }
        self.learned.append({**learned, **more})


def to_proposal(action: PreparedAction, evidence: Sequence[UUID], happened_at: datetime) -> NewProposal:
    """Return an action as a proposal, in the form of the model's output, so that it is parsed and checked again."""
    extracted, new = action.extracted, action.new
    entry: dict[str, Any] = {"evidence": [str(each) for each in evidence]}
    target = extracted.target_id if isinstance(extracted, (FactUpdate, Confirmation)) else None
    if target is not None:
        entry["target_id"] = str(target)
    if isinstance(new, NewFact):
        entry |= {"subject": new.subject, "predicate": new.predicate, "importance": new.importance}
    if isinstance(new, (NewFact, NewRule)):
        entry |= {
            "content": new.content,
            "tags": list(new.tags),
            "permanence": new.permanence and new.permanence.value,
        }
        entry |= {"scope": GLOBAL} if new.scope == GLOBAL else {}
    return NewProposal(action.path.partition("[")[0], entry, target, evidence, happened_at)


async def prepare_actions(
    memory: Memory, caller: Caller, butler: str, result: ConsolidationResult
) -> tuple[list[PreparedAction], dict[str, EmbeddedText]]:
    """Return the actions with the memories they store, and the embeddings of those by text."""
    target_ids = [update.target_id for update in result.updated_facts]
    async with memory.transaction(caller) as tx:
        targets = await facts.update_targets(tx, caller, target_ids, [GLOBAL, butler])
    converters: dict[str, Callable[[Any], NewFact | NewRule | None]] = {
        "new_facts": partial(_new_memory, NewFact, butler),
        "updated_facts": partial(_updated_fact, targets),
        "new_rules": partial(_new_memory, NewRule, butler),
        "confirmations": lambda _: None,
    }
    actions = [
        PreparedAction(f"{section}[{number}]", extracted, _value_or_fault(convert, extracted))
        for section, convert in converters.items()
        for number, extracted in enumerate(getattr(result, section))
    ]
    actions = [await _without_secrets(memory, caller, each) for each in actions]
    return actions, await embed_actions(memory, caller, actions)


async def embed_actions(
    memory: Memory, caller: Caller, actions: Sequence[PreparedAction], known: Vectors | None = None
) -> dict[str, EmbeddedText]:
    """Return the embeddings of the memories that actions store, by text, without those that are known."""
    texts = [each.new.searchable for each in actions if isinstance(each.new, (NewFact, NewRule))]
    texts = [text for text in texts if text not in (known or {})]
    vectors = await memory.embedder.embed_batch(texts, tenant=caller.tenant)
    version = memory.embedder.version.id
    return {text: EmbeddedText(vector, version) for text, vector in zip(texts, vectors, strict=True)}


async def _without_secrets(memory: Memory, caller: Caller, action: PreparedAction) -> PreparedAction:
    """Return the action with a memory that has no secrets; an episode may be older than their redaction."""
    if not isinstance(action.new, (NewFact, NewRule)):
        return action
    try:
        new, _ = await redact_secrets(memory, caller.tenant, action.new)
    except Fault as fault:
        return replace(action, new=fault)
    return replace(action, new=new)


def _value_or_fault(make: Callable[[Any], Any], extracted: Any) -> Any:
    try:
        return make(extracted)
    except Fault as fault:
        return fault


def _new_memory(new_type: type[New], butler: str, extracted: ExtractedFact | ExtractedRule) -> New:
    values = asdict(extracted)
    del values["evidence"]
    scope = GLOBAL if values.pop("is_global") else butler
    return new_type(**values, scope=scope, metadata=dict(_DISTILLED))


def _updated_fact(targets: Mapping[UUID, UpdateTarget], update: FactUpdate) -> NewFact:
    """Return the target with its new content; it keeps its key, so the model can't change it."""
    target = targets.get(update.target_id)
    if target is None:
        raise NotFound(f"there is no live fact {update.target_id} in scope")
    return update_target(target, update)


def update_target(target: UpdateTarget, update: FactUpdate) -> NewFact:
    """Return a fact with the key of the target and the values of the update."""
    values = asdict(target) | {name: value for name, value in asdict(update).items() if value is not None}
    for name in ("id", "target_id", "evidence"):
        del values[name]
    return NewFact(**values, metadata=dict(_DISTILLED))


async def apply_batch(
    memory: Memory,
    caller: Caller,
    batch: EpisodeBatch,
    actions: Sequence[PreparedAction],
    vectors: Mapping[str, EmbeddedText],
    record: RunRecord,
) -> list[dict[str, Any]]:
    """Apply the actions of a batch, mark its episodes consolidated and return the learned memories.

    Raises `LeaseLost` when another worker has the batch, `NothingApplied` when no action could be applied.
    """
    record.reset_counts()
    async with memory.write_transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        locked = {each.id: each for each in await consolidation.lock_batch(tx, caller, batch)}
        if not locked or not all(each.is_leased for each in locked.values()):
            raise LeaseLost
        executor = BatchExecutor(tx, caller, batch, locked, vectors, record, memory.config.consolidation)
        await executor.lock_targets(actions)
        for action in actions if executor.live_episodes else ():
            await executor.run(action)
        if record.errors and not (executor.learned or record.confirmed or executor.rejected or executor.proposed):
            raise NothingApplied(record.errors)
        days, record.proposed = memory.config.consolidation.proposal_days, len(executor.proposed)
        await proposals.insert(tx, caller, batch.run_id, batch.butler, executor.proposed, days)
        marked = await consolidation.mark_consolidated(tx, caller, batch.token, executor.live_episodes)
        # Episodes forgotten during the run stay pending, in case they are restored.
        await consolidation.release_lease(tx, caller, batch.token)
        await events.append(tx, caller, *(Event("episode_consolidated", MemoryType.EPISODE, each) for each in marked))
        record.episodes = len(marked)
        await consolidation.finish_run(tx, caller, batch.run_id, record)
    return executor.learned
