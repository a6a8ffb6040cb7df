"""New facts that say otherwise about something known: a second, short turn of the model decides what they are."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

from butlers.caller import Caller
from butlers.modules.memory.domain.consolidation_output import Confirmation, ExtractedFact, FactUpdate
from butlers.modules.memory.domain.model import GLOBAL, NewFact, Relation
from butlers.modules.memory.domain.update_decisions import (
    MAX_QUESTIONS,
    UpdateDecision,
    UpdateQuestion,
    assemble_questions,
    parse_decisions,
)
from butlers.modules.memory.operations.consolidation_apply import (
    PreparedAction,
    Vectors,
    embed_actions,
    update_target,
)
from butlers.modules.memory.operations.consolidation_guards import ConsolidationGuards, statement_of
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import facts
from butlers.modules.memory.store.consolidation_guards import NearMemory
from butlers.modules.memory.store.embedding_versions import EmbeddedText

Ask = Callable[[str], Awaitable[str]]
"""Sends a prompt to the model; returns its output, or an empty text if there is none."""


@dataclass(frozen=True, slots=True)
class _Conflict:
    """The place of an action whose new fact says otherwise than a known one."""

    place: int
    fact: NewFact
    known: NearMemory


@cache
def _instructions() -> str:
    return (resources.files("butlers.modules.memory") / "prompts" / "updates.md").read_text(encoding="utf-8")


async def settle_conflicts(
    memory: Memory, caller: Caller, butler: str, actions: Sequence[PreparedAction], vectors: Vectors, ask: Ask
) -> tuple[list[PreparedAction], dict[str, EmbeddedText]]:
    """Return the actions after the second turn: updates and confirmations where the model decided so.

    A fact about which it did not decide is stored with a `contradicts` link. Without a conflict nobody is asked.
    """
    conflicts = (await _find_conflicts(memory, caller, butler, actions, vectors))[:MAX_QUESTIONS]
    if not conflicts:
        return list(actions), dict(vectors)
    decisions = {}
    if memory.config.consolidation.ask_about_updates:
        questions = [UpdateQuestion(statement_of(each.fact), each.known.statement) for each in conflicts]
        decisions = parse_decisions(await ask(assemble_questions(_instructions(), questions)), len(questions))
    settled = list(actions)
    for number, each in enumerate(conflicts, 1):
        settled[each.place] = await _settle(memory, caller, butler, actions[each.place], each, decisions.get(number))
    return settled, {**vectors, **await embed_actions(memory, caller, settled, known=vectors)}


async def _find_conflicts(
    memory: Memory, caller: Caller, butler: str, actions: Sequence[PreparedAction], vectors: Vectors
) -> list[_Conflict]:
    found = []
    async with memory.transaction(caller) as tx:
        guards = ConsolidationGuards(tx, caller, [GLOBAL, butler], memory.config.consolidation)
        for place, action in enumerate(actions):
            if isinstance(action.extracted, ExtractedFact) and isinstance(action.new, NewFact):
                known = await guards.find_contradicted(action.new, vectors[action.new.searchable])
                if known is not None:
                    found.append(_Conflict(place, action.new, known))
    return found


async def _settle(
    memory: Memory,
    caller: Caller,
    butler: str,
    action: PreparedAction,
    conflict: _Conflict,
    decision: UpdateDecision | None,
) -> PreparedAction:
    """Return the action that a decision makes of a new fact."""
    evidence = action.extracted.evidence
    if decision is UpdateDecision.SAME:
        return replace(action, extracted=Confirmation(target_id=conflict.known.id, evidence=evidence), new=None)
    if decision is UpdateDecision.UPDATE:
        update = FactUpdate(target_id=conflict.known.id, content=conflict.fact.content, evidence=evidence)
        async with memory.transaction(caller) as tx:
            targets = await facts.update_targets(tx, caller, [conflict.known.id], [GLOBAL, butler])
        if target := targets.get(conflict.known.id):
            return replace(action, extracted=update, new=update_target(target, update))
    relation = Relation.RELATED_TO if decision is UpdateDecision.BOTH else Relation.CONTRADICTS
    return replace(action, beside=(conflict.known.id, relation))
