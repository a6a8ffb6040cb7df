"""Proposals of consolidation: actions that wait for a person, are checked again when accepted, and expire."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

from butlers.caller import Caller
from butlers.db import Connection
from butlers.errors import Conflict, Fault, NotFound
from butlers.modules.memory.domain import consolidation_output
from butlers.modules.memory.domain.consolidation_prompt import PromptEpisode
from butlers.modules.memory.domain.model import NewFact, NewRule, Provenance
from butlers.modules.memory.operations.consolidation_apply import BatchExecutor, PreparedAction, prepare_actions
from butlers.modules.memory.operations.idempotency import Answer, Request, find_answer, run_once
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import events, proposals
from butlers.modules.memory.store.consolidation import EpisodeBatch, RunRecord
from butlers.modules.memory.store.embedding_versions import EmbeddedText
from butlers.modules.memory.store.events import Event
from butlers.modules.memory.store.proposals import Proposal

MAX_LISTED = 100
_IMPORTANCE = 5.0
CHANGES = {"new_facts": "new fact", "updated_facts": "changed fact", "new_rules": "new rule",
           "confirmations": "confirmation"}  # fmt: skip


class ProposalNoLongerApplies(Conflict):
    """The memory has changed since the proposal was made."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the proposal no longer applies: {reason}", hint="Decline it.")


async def list_waiting(memory: Memory, caller: Caller, run_id: UUID | None = None) -> list[Answer]:
    """Return the proposals that wait for a person, the oldest first; nothing changes."""
    async with memory.transaction(caller) as tx:
        return [describe(each) for each in await proposals.waiting(tx, caller, MAX_LISTED, run_id)]


def describe(row: Mapping[str, Any]) -> Answer:
    """Return a proposal as answers and pages have it: what would be stored, and what is there now."""
    action = row["action"]
    content = action.get("content") or row["current"]
    shown = {
        "id": row["id"],
        "run_id": row["run_id"],
        "change": CHANGES[row["change"]],
        "subject": row["subject"] or action.get("subject"),
        "predicate": row["predicate"] or action.get("predicate"),
        "content": content or "",
        "scope": action.get("scope") or row["butler"],
        "current": row["current"] if row["change"] == "updated_facts" else None,
        "target_id": row["target_id"],
        "created_at": row["created_at"],
        "expires_at": row["expires_at"],
    }
    return {**{name: value for name, value in shown.items() if value is not None}, "evidence": list(row["evidence"])}


async def accept(memory: Memory, caller: Caller, proposal_id: UUID, request: Request) -> Answer:
    """Store what a proposal says, as if a person had said it, after checking it again.

    Raises `NotFound`, `Conflict` if it was decided or expired, and `ProposalNoLongerApplies`.
    """
    if (stored := await find_answer(memory, caller, request)) is not None:
        return stored
    async with memory.transaction(caller) as tx:
        proposal = await _find_waiting(tx, caller, proposal_id)
    action, vectors = await _prepare(memory, caller, proposal)

    async def work(tx: Connection) -> Answer:
        await proposals.lock(tx, caller, proposal_id)
        await _find_waiting(tx, caller, proposal_id)
        executor = await _executor(memory, tx, caller, proposal, vectors)
        await executor.lock_targets([action])
        try:
            await executor.apply(action)
        except Fault as fault:
            raise ProposalNoLongerApplies(fault.message) from None
        memory_id = UUID(executor.learned[0]["id"]) if executor.learned else proposal.target_id
        await proposals.decide(tx, caller, proposal_id, "accepted", memory_id)
        return {"id": str(proposal_id), "accepted": True, **({"memory_id": str(memory_id)} if memory_id else {})}

    return await run_once(memory.write_transaction(caller), caller, request, work)


async def _find_waiting(tx: Connection, caller: Caller, proposal_id: UUID) -> Proposal:
    proposal = await proposals.get(tx, caller, proposal_id)
    if proposal is None:
        raise NotFound(f"there is no proposal {proposal_id}", hint="`butlers memory proposals DIR` lists them.")
    if proposal.status != "waiting":
        raise Conflict(f"the proposal {proposal_id} is {proposal.status} already", hint="Nothing is left to decide.")
    return proposal


async def _prepare(
    memory: Memory, caller: Caller, proposal: Proposal
) -> tuple[PreparedAction, Mapping[str, EmbeddedText]]:
    """Return the action of a proposal, parsed and validated again, with its vectors."""
    result = consolidation_output.parse_output(json.dumps({proposal.change: [proposal.action]}))
    if not result.actions:
        raise ProposalNoLongerApplies("; ".join(result.parse_errors))
    (action,), vectors = await prepare_actions(memory, caller, proposal.butler, result)
    if isinstance(action.new, (NewFact, NewRule)):
        # A person accepts it: that is the support that distilled knowledge lacks.
        supported = {**action.new.metadata, "provenance": Provenance.SUPPORTED.value}
        action = replace(action, new=replace(action.new, metadata=supported))
    return action, vectors


async def _executor(
    memory: Memory, tx: Connection, caller: Caller, proposal: Proposal, vectors: Mapping[str, EmbeddedText]
) -> BatchExecutor:
    locked = await proposals.evidence_states(tx, caller, proposal.evidence)
    episodes = [PromptEpisode(each, "", proposal.happened_at, _IMPORTANCE) for each in proposal.evidence]
    batch = EpisodeBatch(proposal.run_id, uuid4(), proposal.butler, episodes)
    # A person vouches for it: full confidence, and no echo of what a session was told.
    settings = memory.config.consolidation.model_copy(update={"distilled_confidence": 1.0, "drop_echoes": False})
    return BatchExecutor(tx, caller, batch, locked, vectors, RunRecord(), settings)


async def decline(memory: Memory, caller: Caller, proposal_id: UUID, request: Request) -> Answer:
    """Decline a proposal: nothing is stored. Raises `NotFound`, and `Conflict` if it was decided or expired."""

    async def work(tx: Connection) -> Answer:
        await proposals.lock(tx, caller, proposal_id)
        await _find_waiting(tx, caller, proposal_id)
        await proposals.decide(tx, caller, proposal_id, "declined", None)
        await events.append(tx, caller, Event("proposal_declined", "proposal", proposal_id))
        return {"id": str(proposal_id), "declined": True}

    return await run_once(memory.transaction(caller), caller, request, work)
