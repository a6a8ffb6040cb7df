"""Tools that tell memory what held and what worked."""

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from butlers.caller import Caller
from butlers.contract import tool
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.operations import feedback
from butlers.modules.memory.operations.idempotency import Request
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.tools.arguments import Id, Key, MemoryTypeName, OptionalText, parse_memory_id


class Confirmed(TypedDict):
    """A belief renewed."""

    id: str
    memory_type: str
    confidence: float
    last_confirmed_at: str


class Marked(TypedDict):
    """A rule after a mark."""

    id: str
    applied_count: int
    success_count: int
    harmful_count: int
    effectiveness_score: float
    maturity: str
    maturity_before: str
    needs_inversion: bool


RuleId = Annotated[str, Field(description="The rule's id.")]


@tool(idempotent=True, aliases={"type": "memory_type", "id": "memory_id"})
async def memory_confirm(
    memory: Memory, caller: Caller, memory_type: MemoryTypeName, memory_id: Id, idempotency_key: Key = None
) -> Confirmed:
    """Confirm that a fact or rule still holds; unconfirmed ones fade with time."""
    wanted = parse_memory_id("memory_id", memory_id)
    request = Request("memory_confirm", {"type": memory_type, "id": str(wanted)}, idempotency_key)
    return await feedback.confirm(memory, caller, MemoryType(memory_type), wanted, request)  # type: ignore[return-value]


@tool(aliases={"id": "rule_id"})
async def memory_mark_helpful(memory: Memory, caller: Caller, rule_id: RuleId, idempotency_key: Key = None) -> Marked:
    """Report that applying a rule worked; rules that keep working are trusted more."""
    wanted = parse_memory_id("rule_id", rule_id)
    request = Request("memory_mark_helpful", {"rule_id": str(wanted)}, idempotency_key)
    return await feedback.mark_helpful(memory, caller, wanted, request)  # type: ignore[return-value]


@tool(aliases={"id": "rule_id"})
async def memory_mark_harmful(
    memory: Memory,
    caller: Caller,
    rule_id: RuleId,
    reason: Annotated[OptionalText, Field(description="What went wrong, in a sentence.")] = None,
    idempotency_key: Key = None,
) -> Marked:
    """Report that applying a rule caused a problem; it weighs four successes, and three turn it into a warning."""
    wanted = parse_memory_id("rule_id", rule_id)
    request = Request("memory_mark_harmful", {"rule_id": str(wanted), "reason": reason}, idempotency_key)
    return await feedback.mark_harmful(memory, caller, wanted, reason, request)  # type: ignore[return-value]


TOOLS = (memory_confirm, memory_mark_helpful, memory_mark_harmful)
