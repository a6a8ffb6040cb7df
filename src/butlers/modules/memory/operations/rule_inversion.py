"""Inversion of harmful rules into anti-patterns, and back into the rules they were."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import WRITE_TIMEOUT_SECONDS, Connection
from butlers.errors import Conflict, Fault
from butlers.modules.memory.domain.errors import MemoryNotLive
from butlers.modules.memory.domain.maturity import anti_pattern_content
from butlers.modules.memory.domain.model import CANDIDATE_DECAY_RATE, Maturity, MemoryType, Permanence
from butlers.modules.memory.operations.batching import retry_when_busy
from butlers.modules.memory.operations.change_events import append_changes
from butlers.modules.memory.operations.feedback import refusal_for
from butlers.modules.memory.operations.idempotency import Answer, Request, find_answer, run_once
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import rule_inversion, states
from butlers.modules.memory.store.decay_sweep import MIN_ID
from butlers.modules.memory.store.embedding_versions import EmbeddedText
from butlers.modules.memory.store.rule_inversion import HarmfulRule

_BATCH = 50
_LEVELS = (Maturity.CANDIDATE, Maturity.ESTABLISHED, Maturity.PROVEN)


async def invert_rules(memory: Memory, caller: Caller) -> int:
    """Turn the tenant's harmful rules into anti-patterns; return their number."""
    after, inverted = MIN_ID, 0
    while True:
        async with memory.transaction(caller) as tx:
            harmful = await rule_inversion.rules_to_invert(tx, caller, after, _BATCH)
        if not harmful:
            return inverted
        warnings = [anti_pattern_content(rule.content, rule.reasons) for rule in harmful]
        vectors = await memory.embedder.embed_batch(warnings, tenant=caller.tenant)
        embedded = [EmbeddedText(vector, memory.embedder.version.id) for vector in vectors]
        inverted += await retry_when_busy(
            _write_inversions, memory, caller, list(zip(harmful, warnings, embedded, strict=True))
        )
        after = harmful[-1].id


async def _write_inversions(
    memory: Memory, caller: Caller, inversions: Sequence[tuple[HarmfulRule, str, EmbeddedText]]
) -> int:
    async with memory.write_transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        before = await states.lock(tx, caller, MemoryType.RULE, [rule.id for rule, _, _ in inversions])
        inverted = {
            rule.id: before[rule.id]
            for rule, warning, embedded in inversions
            if await rule_inversion.invert_rule(tx, caller, rule, warning, embedded)
        }
        await append_changes(tx, caller, "rule_inverted", MemoryType.RULE, inverted)
    return len(inverted)


async def revert_inversion(memory: Memory, caller: Caller, rule_id: UUID, request: Request) -> Answer:
    """Turn a warning into the rule it was, confirmed now, with its maturity and permanence of then.

    Its marks stay: the next harmful one flags it for inversion again. Raises `Conflict` where the rule is no warning.
    """
    if (stored := await find_answer(memory, caller, request)) is not None:
        return stored
    async with memory.transaction(caller) as tx:
        inversion = await rule_inversion.find_inversion(tx, caller, rule_id)
        if inversion is None:
            raise await _refusal_to_revert(tx, caller, rule_id)
    embedded = await memory.embed(caller, inversion.original)
    told = inversion.before
    state = _state_before(told if isinstance(told, Mapping) else {})

    async def work(tx: Connection) -> Answer:
        before = await states.lock(tx, caller, MemoryType.RULE, [rule_id])
        if not await rule_inversion.revert_inversion(tx, caller, rule_id, inversion.original, embedded, **state):
            raise await _refusal_to_revert(tx, caller, rule_id)
        await append_changes(tx, caller, "rule_inversion_reverted", MemoryType.RULE, before)
        return {"id": str(rule_id), "maturity": state["maturity"].value, "content": inversion.original}

    return await run_once(memory.write_transaction(caller), caller, request, work)


def _state_before(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a rule was before its inversion; a value that no event tells rightly is that of a new rule."""
    maturity, permanence, rate = told.get("maturity"), told.get("permanence"), told.get("decay_rate")
    return {
        "maturity": Maturity(maturity) if maturity in _LEVELS else Maturity.CANDIDATE,
        "permanence": Permanence(permanence) if permanence in list(Permanence) else Permanence.STANDARD,
        "decay_rate": float(rate) if isinstance(rate, int | float) and 0 <= rate <= 1 else CANDIDATE_DECAY_RATE,
    }


async def _refusal_to_revert(tx: Connection, caller: Caller, rule_id: UUID) -> Fault:
    refusal = await refusal_for(tx, caller, MemoryType.RULE, rule_id)
    if isinstance(refusal, MemoryNotLive) and refusal.state != "forgotten":
        return Conflict(f"the rule {rule_id} is not an inverted one", hint="Only a warning that a sweep made is.")
    return refusal
