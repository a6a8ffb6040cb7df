"""Application of a model's consolidation output: one transaction for a batch, a savepoint for each action."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import WRITE_TIMEOUT_SECONDS, Connection, as_fault
from butlers.errors import Conflict, Fault, NotFound, Overloaded, TimedOut, Unavailable
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
from butlers.modules.memory.operations.writing import store_fact_in
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import consolidation, events, facts, links, rules
from butlers.modules.memory.store.consolidation import EpisodeBatch, LeasedEpisode, RunRecord
from butlers.modules.memory.store.embedding_versions import EmbeddedText
from butlers.modules.memory.store.events import Event
from butlers.modules.memory.store.facts import UpdateTarget
from butlers.modules.memory.store.links import Link

log = logging.getLogger("butlers.memory")
_NEIGHBOURS = 20
_BY_CONSOLIDATION = {"by": "consolidation"}
_DISTILLED: dict[str, object] = {"provenance": Provenance.DISTILLED.value}
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
        self.reasons = list(reasons)


@dataclass(frozen=True, slots=True)
class PreparedActions:
    """The actions of a batch with their embeddings, ready to be applied."""

    facts: Sequence[tuple[ExtractedFact, NewFact | Fault]]
    updates: Sequence[tuple[FactUpdate, NewFact | Fault]]
    rules: Sequence[tuple[ExtractedRule, NewRule | Fault]]
    confirmations: Sequence[Confirmation]
    vectors: Mapping[str, EmbeddedText]


@dataclass(slots=True)
class BatchExecutor:
    """State of one batch while its actions are applied."""

    tx: Connection
    caller: Caller
    batch: EpisodeBatch
    locked: Mapping[UUID, LeasedEpisode]
    vectors: Mapping[str, EmbeddedText]
    record: RunRecord
    distilled_confidence: float
    learned: list[dict[str, Any]] = field(default_factory=list)
    rejected: int = 0

    @property
    def butler(self) -> str:
        """The butler the episodes belong to."""
        return self.batch.butler

    @property
    def scopes(self) -> list[str]:
        """The scopes this butler reads."""
        return [GLOBAL, self.butler]

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

    def latest(self, evidence: Sequence[UUID]) -> datetime:
        """Return the time of the latest of these episodes."""
        return max(each.happened_at for each in self.batch.episodes if each.id in evidence)


async def prepare_actions(
    memory: Memory, caller: Caller, butler: str, result: ConsolidationResult
) -> PreparedActions:
    """Convert the actions to new memories and embed them, before the transaction that applies them begins."""
    scopes = [GLOBAL, butler]
    async with memory.transaction(caller) as tx:
        targets = await facts.update_targets(
            tx, caller, [update.target_id for update in result.updated_facts], scopes
        )
    new_facts = [(each, _value_or_fault(_new_fact, each, butler)) for each in result.new_facts]
    updates = [
        (each, _value_or_fault(_updated_fact, each, targets.get(each.target_id))) for each in result.updated_facts
    ]
    new_rules = [(each, _value_or_fault(_new_rule, each, butler)) for each in result.new_rules]
    texts = [new.searchable for _, new in (*new_facts, *updates, *new_rules) if not isinstance(new, Fault)]
    version = memory.embedder.version.id
    vectors = {
        text: EmbeddedText(vector, version)
        for text, vector in zip(texts, await memory.embedder.embed_batch(texts), strict=True)
    }
    return PreparedActions(new_facts, updates, new_rules, result.confirmations, vectors)


def _value_or_fault(make: Callable[..., Any], *args: Any) -> Any:
    """Return `make(*args)`, or the fault it raises."""
    try:
        return make(*args)
    except Fault as fault:
        return fault


def _new_fact(extracted: ExtractedFact, butler: str) -> NewFact:
    return NewFact(
        subject=extracted.subject,
        predicate=extracted.predicate,
        content=extracted.content,
        importance=extracted.importance,
        permanence=extracted.permanence,
        scope=GLOBAL if extracted.is_global else butler,
        tags=extracted.tags,
        metadata=dict(_DISTILLED),
    )


def _updated_fact(update: FactUpdate, target: UpdateTarget | None) -> NewFact:
    """Return the target with its new content; it keeps its key, so the model can't change it."""
    if target is None:
        raise NotFound(f"there is no live fact {update.target_id} in scope")
    return NewFact(
        subject=target.subject,
        predicate=target.predicate,
        content=update.content,
        importance=target.importance if update.importance is None else update.importance,
        permanence=update.permanence or target.permanence,
        scope=target.scope,
        tags=target.tags if update.tags is None else update.tags,
        entity_id=target.entity_id,
        metadata=dict(_DISTILLED),
    )


def _new_rule(extracted: ExtractedRule, butler: str) -> NewRule:
    return NewRule(
        content=extracted.content,
        scope=GLOBAL if extracted.is_global else butler,
        tags=extracted.tags,
        permanence=extracted.permanence,
        metadata=dict(_DISTILLED),
    )


async def apply_batch(
    memory: Memory, caller: Caller, batch: EpisodeBatch, actions: PreparedActions, record: RunRecord
) -> list[dict[str, Any]]:
    """Apply the actions of a batch, mark its episodes consolidated and return the learned memories.

    Raises `LeaseLost` when another worker has the batch, `NothingApplied` when no action could be applied.
    """
    record.reset_counts()
    async with memory.writing(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        locked = {each.id: each for each in await consolidation.lock_batch(tx, caller, batch)}
        if not locked or not all(each.is_leased for each in locked.values()):
            raise LeaseLost
        distilled = memory.config.consolidation.distilled_confidence
        executor = BatchExecutor(tx, caller, batch, locked, actions.vectors, record, distilled)
        await facts.lock_keys(tx, caller, _lock_keys(actions, batch.butler))
        await consolidation.lock_targets(tx, caller, _target_ids(actions))
        for name, step in _steps(executor, actions) if executor.live_episodes else ():
            await _run_in_savepoint(executor, name, step)
        if record.errors and not (executor.learned or record.confirmed or executor.rejected):
            raise NothingApplied(record.errors)
        marked = await consolidation.mark_consolidated(tx, caller, batch.token, executor.live_episodes)
        # Episodes forgotten during the run stay pending, in case they are restored.
        await consolidation.release_lease(tx, caller, batch.token)
        await events.append(tx, caller, *(Event("episode_consolidated", MemoryType.EPISODE, each) for each in marked))
        record.episodes = len(marked)
        await consolidation.finish_run(tx, caller, batch.run_id, record)
    return executor.learned


def _lock_keys(actions: PreparedActions, butler: str) -> list[str]:
    """Return every key a batch may write; locking them in advance prevents deadlocks between batches."""
    written = [fact.key for _, fact in (*actions.facts, *actions.updates) if not isinstance(fact, Fault)]
    return [*written, *(f"rules of {scope}" for scope in (GLOBAL, butler) if actions.rules)]


def _target_ids(actions: PreparedActions) -> list[UUID]:
    """Return the ids of the existing memories a batch may change or confirm."""
    return [each.target_id for each in actions.confirmations] + [update.target_id for update, _ in actions.updates]


Step = tuple[str, Callable[[], Awaitable[None]]]


def _steps(executor: BatchExecutor, actions: PreparedActions) -> list[Step]:
    """Return every action to run, with its path in the model's output."""
    return [
        *((f"new_facts[{n}]", partial(_apply_new_fact, executor, *each)) for n, each in enumerate(actions.facts)),
        *((f"updated_facts[{n}]", partial(_apply_update, executor, *each)) for n, each in enumerate(actions.updates)),
        *((f"new_rules[{n}]", partial(_apply_new_rule, executor, *each)) for n, each in enumerate(actions.rules)),
        *(
            (f"confirmations[{n}]", partial(_apply_confirmation, executor, each))
            for n, each in enumerate(actions.confirmations)
        ),
    ]


async def _run_in_savepoint(executor: BatchExecutor, name: str, step: Callable[[], Awaitable[None]]) -> None:
    """Run one action; an action that fails is recorded as an error and does not stop the others."""
    try:
        async with executor.tx.transaction():
            await step()
    except Exception as error:
        fault = as_fault(error)
        if isinstance(fault, _TRANSIENT):
            raise fault from error
        if fault is None:
            log.exception("a consolidation action failed", extra={"action": name})
        else:
            log.warning("a consolidation action was not applied", extra={"action": name, "code": fault.code})
        executor.rejected += isinstance(fault, RejectedAction)
        executor.record.errors.append(f"{name}: {fault.message if fault else type(error).__name__}")


def _raise_if_fault(new: Any) -> Any:
    if isinstance(new, Fault):
        raise new
    return new


async def _apply_new_fact(executor: BatchExecutor, extracted: ExtractedFact, new: NewFact | Fault) -> None:
    fact: NewFact = _raise_if_fault(new)
    evidence = executor.evidence(extracted.evidence)
    existing = await facts.find_same_content(executor.tx, executor.caller, fact, executor.scopes)
    if existing is not None:
        await _confirm_existing(executor, MemoryType.FACT, existing, evidence)
        return
    since = executor.latest(evidence)
    if await facts.was_retracted_since(executor.tx, executor.caller, fact, executor.scopes, since):
        raise RejectedAction("it was forgotten after the episode it comes from")
    await _store_fact(executor, fact, evidence)


async def _apply_update(executor: BatchExecutor, update: FactUpdate, new: NewFact | Fault) -> None:
    fact: NewFact = _raise_if_fault(new)
    current = await facts.lock_live_by_key(executor.tx, executor.caller, fact)
    if current is None or current.id != update.target_id:
        raise Conflict(f"the fact {update.target_id} was replaced during the run")
    await _store_fact(executor, fact, executor.evidence(update.evidence))


async def _store_fact(executor: BatchExecutor, fact: NewFact, evidence: Sequence[UUID]) -> None:
    stored = await store_fact_in(
        executor.tx,
        executor.caller,
        fact,
        executor.vectors[fact.searchable],
        source_butler=executor.butler,
        source_episode_id=evidence[0],
        confidence=FACT_CONFIDENCE * executor.distilled_confidence,
    )
    fact_id = UUID(stored["id"])
    if stored.get("confirmed_existing"):
        await _link_support(executor, MemoryType.FACT, fact_id, evidence)
        executor.record.confirmed += 1
        return
    replaced = stored.get("superseded_id")
    await _link_derivation(executor, MemoryType.FACT, fact_id, evidence)
    if replaced:
        executor.record.facts_updated += 1
    else:
        executor.record.facts_created += 1
    executor.learned.append(
        {
            "memory_type": "fact",
            "id": str(fact_id),
            "subject": fact.subject,
            "predicate": fact.predicate,
            "content": fact.content,
            "scope": fact.scope,
            "evidence": [str(each) for each in evidence],
            **({"superseded_id": replaced} if replaced else {}),
        }
    )


async def _apply_new_rule(executor: BatchExecutor, extracted: ExtractedRule, new: NewRule | Fault) -> None:
    rule: NewRule = _raise_if_fault(new)
    tx, caller = executor.tx, executor.caller
    evidence = executor.evidence(extracted.evidence)
    vector = executor.vectors[rule.searchable]
    rule_fingerprint = fingerprint(rule.content)
    for warning in await rules.anti_patterns(tx, caller, executor.scopes):
        if fingerprint(warning.original or "") == rule_fingerprint:
            raise RejectedAction(f"it is the original of the anti-pattern {warning.id}")
    forgotten = await rules.forgotten_since(tx, caller, executor.scopes, executor.latest(evidence))
    if any(fingerprint(each.content) == rule_fingerprint for each in forgotten):
        raise RejectedAction("it was forgotten after the episode it comes from")
    for near in await rules.nearest(tx, caller, vector, executor.scopes, _NEIGHBOURS):
        if fingerprint(near.content) == rule_fingerprint:
            if near.awaits_inversion:
                raise RejectedAction("the rule with this content did harm")
            await _confirm_existing(executor, MemoryType.RULE, near.id, evidence)
            return
    rule_id = await rules.insert(
        tx,
        caller,
        rule,
        vector,
        source_butler=executor.butler,
        source_episode_id=evidence[0],
        confidence=RULE_CONFIDENCE * executor.distilled_confidence,
    )
    await events.append(
        tx, caller, Event("rule_created", MemoryType.RULE, rule_id, {"scope": rule.scope, **_BY_CONSOLIDATION})
    )
    await _link_derivation(executor, MemoryType.RULE, rule_id, evidence)
    executor.record.rules_created += 1
    executor.learned.append(
        {
            "memory_type": "rule",
            "id": str(rule_id),
            "content": rule.content,
            "scope": rule.scope,
            "evidence": [str(each) for each in evidence],
        }
    )


async def _apply_confirmation(executor: BatchExecutor, confirmation: Confirmation) -> None:
    tx, caller, target_id = executor.tx, executor.caller, confirmation.target_id
    evidence = [each for each in confirmation.evidence if each in executor.live_episodes]
    if await facts.update_targets(tx, caller, [target_id], executor.scopes):
        await _confirm_existing(executor, MemoryType.FACT, target_id, evidence)
    elif await rules.live_among(tx, caller, [target_id], executor.scopes):
        await _confirm_existing(executor, MemoryType.RULE, target_id, evidence)
    else:
        raise NotFound(f"there is no live fact or rule {target_id} in scope")


async def _confirm_existing(
    executor: BatchExecutor, memory_type: MemoryType, memory_id: UUID, evidence: Sequence[UUID]
) -> None:
    confirm = facts.confirm if memory_type is MemoryType.FACT else rules.confirm
    supported = await links.is_independent(executor.tx, executor.caller, memory_type, memory_id, evidence)
    if await confirm(executor.tx, executor.caller, memory_id, supported=supported) is None:
        raise NotFound(f"the {memory_type} {memory_id} is no longer live")
    event = Event(f"{memory_type}_confirmed", memory_type, memory_id, _BY_CONSOLIDATION)
    await events.append(executor.tx, executor.caller, event)
    await _link_support(executor, memory_type, memory_id, evidence)
    executor.record.confirmed += 1


async def _link_derivation(
    executor: BatchExecutor, memory_type: MemoryType, memory_id: UUID, evidence: Sequence[UUID]
) -> None:
    """Link a new memory to the episodes it comes from."""
    derivations = [Link(memory_type, memory_id, MemoryType.EPISODE, each, Relation.DERIVED_FROM) for each in evidence]
    await links.create_links(executor.tx, executor.caller, derivations)


async def _link_support(
    executor: BatchExecutor, memory_type: MemoryType, memory_id: UUID, evidence: Sequence[UUID]
) -> None:
    """Link episodes to the memory they support."""
    support = [Link(MemoryType.EPISODE, each, memory_type, memory_id, Relation.SUPPORTS) for each in evidence]
    await links.create_links(executor.tx, executor.caller, support)
