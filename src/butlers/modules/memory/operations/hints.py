"""Hints in the answer of a store: live memories that say nearly the same, or the opposite, under another key."""

from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.model import GLOBAL, NewFact, NewRule
from butlers.modules.memory.operations.idempotency import Answer
from butlers.modules.memory.store import hints
from butlers.modules.memory.store.embedding_versions import EmbeddedText

_FACT_HINT = "If this fact replaces one of them, store it again with supersedes_id = that id."
_RULE_HINT = "If two of these rules say the same, forget one with memory_forget."


async def similar_facts(
    tx: Connection, caller: Caller, fact: NewFact, fact_id: UUID, embedded: EmbeddedText, min_similarity: float | None
) -> Answer:
    """The live facts that are similar to a new one, and what to do with them; empty without any."""
    if min_similarity is None:
        return {}
    scopes = sorted({GLOBAL, fact.scope})
    similar = await hints.similar_facts(tx, caller, fact, fact_id, embedded, scopes, min_similarity)
    return {"similar": similar, "hint": _FACT_HINT} if similar else {}


async def similar_rules(
    tx: Connection, caller: Caller, rule: NewRule, rule_id: UUID, embedded: EmbeddedText, min_similarity: float | None
) -> Answer:
    """The live rules that are similar to a new one, and what to do with them; empty without any."""
    if min_similarity is None:
        return {}
    scopes = sorted({GLOBAL, rule.scope})
    similar = await hints.similar_rules(tx, caller, rule_id, embedded, scopes, min_similarity)
    return {"similar": similar, "hint": _RULE_HINT} if similar else {}
