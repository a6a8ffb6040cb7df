"""What a model learned becomes knowledge: one transaction for a batch, a savepoint for each thing learned."""

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
_BY = {"by": "consolidation"}
_DISTILLED: dict[str, object] = {"provenance": Provenance.DISTILLED.value}
# Not about what was learned, and likely to be over soon: the whole batch is tried again.
_TRANSIENT = (Unavailable, Overloaded, TimedOut)


class LeaseLost(Conflict):
    """Another worker has the batch by now; what this one found out has no effect."""

    def __init__(self) -> None:
        super().__init__("another worker has taken the episodes over", hint="Nothing is lost: it finishes them.")


class RejectedAction(Conflict):
    """Something learned that was understood, and is not wanted: it does no harm to an answer that it was in it."""


class NothingApplied(Conflict):
    """Not one thing of what was learned could be used."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__(f"nothing of the answer could be used: {'; '.join(reasons[:3])}")
        self.reasons = list(reasons)


@dataclass(frozen=True, slots=True)
class PreparedActions:
    """What is to be applied, with everything that takes long already done."""

    facts: Sequence[tuple[ExtractedFact, NewFact | Fault]]
    updates: Sequence[tuple[FactUpdate, NewFact | Fault]]
    rules: Sequence[tuple[ExtractedRule, NewRule | Fault]]
    confirmations: Sequence[Confirmation]
    vectors: Mapping[str, EmbeddedText]


@dataclass(slots=True)
class BatchExecutor:
    """One batch being applied: where, for whom, with what evidence, and what came of it so far."""

    tx: Connection
    caller: Caller
    batch: EpisodeBatch
    held: Mapping[UUID, LeasedEpisode]
    vectors: Mapping[str, EmbeddedText]
    record: RunRecord
    trust: float
    learned: list[dict[str, Any]] = field(default_factory=list)
    declined: int = 0

    @property
    def butler(self) -> str:
        """Whose episodes these are."""
        return self.batch.butler

    @property
    def scopes(self) -> list[str]:
        """Where this butler's knowledge is."""
        return [GLOBAL, self.butler]

    @property
    def alive(self) -> list[UUID]:
        """The episodes of the batch that are still there and still wanted, oldest first."""
        return [each for each in self.batch.ids if each in self.held and not self.held[each].is_forgotten]

    def evidence(self, named: Sequence[UUID]) -> list[UUID]:
        """The episodes that something was learned from: those named that were in the batch, else all of them.

        Of what was forgotten while the model thought nothing may be learned, nor of what may have come from there.
        """
        in_batch = [each for each in named if each in self.batch.ids]
        alive = self.alive
        if in_batch and not (living := [each for each in in_batch if each in alive]):
            raise RejectedAction("the episodes that say it are gone")
        if not in_batch and any(each.is_forgotten for each in self.held.values()):
            raise RejectedAction("it may come from an episode that was forgotten meanwhile")
        return living if in_batch else alive

    def latest(self, evidence: Sequence[UUID]) -> datetime:
        """When the last of these episodes happened."""
        return max(each.happened_at for each in self.batch.episodes if each.id in evidence)


async def prepare_actions(
    memory: Memory, caller: Caller, butler: str, result: ConsolidationResult
) -> PreparedActions:
    """Everything that was learned, in the words of this house and with its vectors, before a transaction is held."""
    scopes = [GLOBAL, butler]
    async with memory.transaction(caller) as tx:
        targets = await facts.update_targets(
            tx, caller, [update.target_id for update in result.updated_facts], scopes
        )
    found = [(each, _make_or_fault(_new_fact, each, butler)) for each in result.new_facts]
    updates = [(each, _make_or_fault(_updated, each, targets.get(each.target_id))) for each in result.updated_facts]
    wanted = [(each, _make_or_fault(_new_rule, each, butler)) for each in result.new_rules]
    texts = [made.searchable for _, made in (*found, *updates, *wanted) if not isinstance(made, Fault)]
    version = memory.embedder.version.id
    vectors = {
        text: EmbeddedText(vector, version)
        for text, vector in zip(texts, await memory.embedder.embed_batch(texts), strict=True)
    }
    return PreparedActions(found, updates, wanted, result.confirmations, vectors)


def _make_or_fault(make: Callable[..., Any], *said: Any) -> Any:
    """What was said as a memory, or why it can't be one."""
    try:
        return make(*said)
    except Fault as fault:
        return fault


def _new_fact(found: ExtractedFact, butler: str) -> NewFact:
    return NewFact(
        subject=found.subject,
        predicate=found.predicate,
        content=found.content,
        importance=found.importance,
        permanence=found.permanence,
        scope=GLOBAL if found.is_global else butler,
        tags=found.tags,
        metadata=dict(_DISTILLED),
    )


def _updated(update: FactUpdate, target: UpdateTarget | None) -> NewFact:
    """The target with its new content: its key stays, whatever words the model found for it."""
    if target is None:
        raise NotFound(f"no live fact {update.target_id} is in reach")
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


def _new_rule(found: ExtractedRule, butler: str) -> NewRule:
    return NewRule(
        content=found.content,
        scope=GLOBAL if found.is_global else butler,
        tags=found.tags,
        permanence=found.permanence,
        metadata=dict(_DISTILLED),
    )


async def apply_batch(
    memory: Memory, caller: Caller, batch: EpisodeBatch, lessons: PreparedActions, record: RunRecord
) -> list[dict[str, Any]]:
    """Make knowledge of a batch and mark its episodes, all of it or nothing; gives what was learned.

    Raises `LeaseLost` when the batch is no longer this worker's, `NothingApplied` when nothing could be used.
    """
    record.reset_counts()
    async with memory.writing(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        held = {each.id: each for each in await consolidation.lock_batch(tx, caller, batch)}
        if not held or not all(each.is_leased for each in held.values()):
            raise LeaseLost
        trust = memory.config.consolidation.trust
        applying = BatchExecutor(tx, caller, batch, held, lessons.vectors, record, trust)
        await facts.lock_keys(tx, caller, _lock_keys(lessons, batch.butler))
        await consolidation.lock_targets(tx, caller, _target_ids(lessons))
        for name, step in _steps(applying, lessons) if applying.alive else ():
            await _run_in_savepoint(applying, name, step)
        if record.errors and not (applying.learned or record.confirmed or applying.declined):
            raise NothingApplied(record.errors)
        marked = await consolidation.mark_consolidated(tx, caller, batch.token, applying.alive)
        # What was forgotten meanwhile waits, in case somebody brings it back.
        await consolidation.release_lease(tx, caller, batch.token)
        told = (Event("episode_consolidated", MemoryType.EPISODE, each) for each in marked)
        await events.append(tx, caller, *told)
        record.episodes = len(marked)
        await consolidation.finish_run(tx, caller, batch.run_id, record)
    return applying.learned


def _lock_keys(lessons: PreparedActions, butler: str) -> list[str]:
    """Every key a batch may write, so that two batches at once can't each hold what the other needs."""
    written = [fact.key for _, fact in (*lessons.facts, *lessons.updates) if not isinstance(fact, Fault)]
    return [*written, *(f"rules of {scope}" for scope in (GLOBAL, butler) if lessons.rules)]


def _target_ids(lessons: PreparedActions) -> list[UUID]:
    """Everything known that a batch may change or confirm."""
    return [each.target_id for each in lessons.confirmations] + [update.target_id for update, _ in lessons.updates]


Step = tuple[str, Callable[[], Awaitable[None]]]


def _steps(applying: BatchExecutor, lessons: PreparedActions) -> list[Step]:
    """Everything to be done, by the name of the place it has in the answer."""
    return [
        *((f"new_facts[{n}]", partial(_apply_new_fact, applying, *each)) for n, each in enumerate(lessons.facts)),
        *((f"updated_facts[{n}]", partial(_apply_update, applying, *each)) for n, each in enumerate(lessons.updates)),
        *((f"new_rules[{n}]", partial(_apply_new_rule, applying, *each)) for n, each in enumerate(lessons.rules)),
        *(
            (f"confirmations[{n}]", partial(_apply_confirmation, applying, each))
            for n, each in enumerate(lessons.confirmations)
        ),
    ]


async def _run_in_savepoint(applying: BatchExecutor, name: str, step: Callable[[], Awaitable[None]]) -> None:
    """One thing learned: if it can't be applied, the others still are, and why is written down."""
    try:
        async with applying.tx.transaction():
            await step()
    except Exception as error:
        fault = as_fault(error)
        if isinstance(fault, _TRANSIENT):
            raise fault from error
        if fault is None:
            log.exception("an action of consolidation failed", extra={"action": name})
        else:
            log.warning("an action of consolidation was not applied", extra={"action": name, "code": fault.code})
        applying.declined += isinstance(fault, RejectedAction)
        applying.record.errors.append(f"{name}: {fault.message if fault else type(error).__name__}")


def _raise_if_fault(made: Any) -> Any:
    if isinstance(made, Fault):
        raise made
    return made


async def _apply_new_fact(applying: BatchExecutor, found: ExtractedFact, made: NewFact | Fault) -> None:
    fact: NewFact = _raise_if_fault(made)
    evidence = applying.evidence(found.evidence)
    known = await facts.find_same_content(applying.tx, applying.caller, fact, applying.scopes)
    if known is not None:
        await _confirm_existing(applying, MemoryType.FACT, known, evidence)
        return
    since = applying.latest(evidence)
    if await facts.was_retracted_since(applying.tx, applying.caller, fact, applying.scopes, since):
        raise RejectedAction("somebody wanted it forgotten after it was said")
    await _store_fact(applying, fact, evidence)


async def _apply_update(applying: BatchExecutor, update: FactUpdate, made: NewFact | Fault) -> None:
    fact: NewFact = _raise_if_fault(made)
    held = await facts.lock_live_by_key(applying.tx, applying.caller, fact)
    if held is None or held.id != update.target_id:
        raise Conflict(f"the fact {update.target_id} was replaced meanwhile")
    await _store_fact(applying, fact, applying.evidence(update.evidence))


async def _store_fact(applying: BatchExecutor, fact: NewFact, evidence: Sequence[UUID]) -> None:
    stored = await store_fact_in(
        applying.tx,
        applying.caller,
        fact,
        applying.vectors[fact.searchable],
        source_butler=applying.butler,
        source_episode_id=evidence[0],
        confidence=FACT_CONFIDENCE * applying.trust,
    )
    fact_id = UUID(stored["id"])
    if stored.get("confirmed_existing"):
        await _link_support(applying, MemoryType.FACT, fact_id, evidence)
        applying.record.confirmed += 1
        return
    replaced = stored.get("superseded_id")
    await _link_derivation(applying, MemoryType.FACT, fact_id, evidence)
    if replaced:
        applying.record.facts_updated += 1
    else:
        applying.record.facts_created += 1
    applying.learned.append(
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


async def _apply_new_rule(applying: BatchExecutor, found: ExtractedRule, made: NewRule | Fault) -> None:
    rule: NewRule = _raise_if_fault(made)
    tx, caller = applying.tx, applying.caller
    evidence = applying.evidence(found.evidence)
    vector = applying.vectors[rule.searchable]
    said = fingerprint(rule.content)
    for warning in await rules.anti_patterns(tx, caller, applying.scopes):
        if fingerprint(warning.original or "") == said:
            raise RejectedAction(f"the rule {warning.id} said this until it did harm")
    unwanted = await rules.forgotten_since(tx, caller, applying.scopes, applying.latest(evidence))
    if any(fingerprint(each.content) == said for each in unwanted):
        raise RejectedAction("somebody wanted it forgotten after it was said")
    for near in await rules.nearest(tx, caller, vector, applying.scopes, _NEIGHBOURS):
        if fingerprint(near.content) == said:
            if near.awaits_inversion:
                raise RejectedAction("the rule that says this does harm")
            await _confirm_existing(applying, MemoryType.RULE, near.id, evidence)
            return
    rule_id = await rules.insert(
        tx,
        caller,
        rule,
        vector,
        source_butler=applying.butler,
        source_episode_id=evidence[0],
        confidence=RULE_CONFIDENCE * applying.trust,
    )
    await events.append(tx, caller, Event("rule_created", MemoryType.RULE, rule_id, {"scope": rule.scope, **_BY}))
    await _link_derivation(applying, MemoryType.RULE, rule_id, evidence)
    applying.record.rules_created += 1
    applying.learned.append(
        {
            "memory_type": "rule",
            "id": str(rule_id),
            "content": rule.content,
            "scope": rule.scope,
            "evidence": [str(each) for each in evidence],
        }
    )


async def _apply_confirmation(applying: BatchExecutor, confirmation: Confirmation) -> None:
    tx, caller, wanted = applying.tx, applying.caller, [confirmation.target_id]
    named = [each for each in confirmation.evidence if each in applying.alive]
    if await facts.update_targets(tx, caller, wanted, applying.scopes):
        await _confirm_existing(applying, MemoryType.FACT, confirmation.target_id, named)
    elif await rules.live_among(tx, caller, wanted, applying.scopes):
        await _confirm_existing(applying, MemoryType.RULE, confirmation.target_id, named)
    else:
        raise NotFound(f"no live fact or rule {confirmation.target_id} is in reach")


async def _confirm_existing(
    applying: BatchExecutor, memory_type: MemoryType, memory_id: UUID, evidence: Sequence[UUID]
) -> None:
    renew = facts.confirm if memory_type is MemoryType.FACT else rules.confirm
    supported = await links.is_independent(applying.tx, applying.caller, memory_type, memory_id, evidence)
    if await renew(applying.tx, applying.caller, memory_id, supported=supported) is None:
        raise NotFound(f"the {memory_type} {memory_id} is not live any more")
    confirmed = Event(f"{memory_type}_confirmed", memory_type, memory_id, _BY)
    await events.append(applying.tx, applying.caller, confirmed)
    await _link_support(applying, memory_type, memory_id, evidence)
    applying.record.confirmed += 1


async def _link_derivation(
    applying: BatchExecutor, memory_type: MemoryType, memory_id: UUID, evidence: Sequence[UUID]
) -> None:
    """Tie a new memory to the episodes it came from."""
    made = [Link(memory_type, memory_id, MemoryType.EPISODE, each, Relation.DERIVED_FROM) for each in evidence]
    await links.create_links(applying.tx, applying.caller, made)


async def _link_support(
    applying: BatchExecutor, memory_type: MemoryType, memory_id: UUID, evidence: Sequence[UUID]
) -> None:
    """Tie episodes to a memory they bear out."""
    made = [Link(MemoryType.EPISODE, each, memory_type, memory_id, Relation.SUPPORTS) for each in evidence]
    await links.create_links(applying.tx, applying.caller, made)
