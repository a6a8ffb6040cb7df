"""Tools that confirm memories and mark rules."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from butlers.caller import Caller
from butlers.contract import tool
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.operations import feedback
from butlers.modules.memory.operations.idempotency import Request
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.tools.arguments import Id, Key, MemoryTypeName, OptionalText, parse_id


class ConfirmResult(TypedDict):
    """A memory after its confirmation."""

    id: str
    memory_type: str
    confidence: float
    last_confirmed_at: str


class MarkResult(TypedDict):
    """A rule after a mark."""

    id: str
    applied_count: int
    success_count: int
    harmful_count: int
    effectiveness_score: float
    maturity: str
    maturity_before: str
    needs_inversion: bool
    evidence: Annotated[
        Literal["told", "recalled", "none", "unknown"],
        Field(description="How your session came to know the rule; none: it has no receipt of it."),
    ]


RuleId = Annotated[str, Field(description="The rule's id.")]


@tool(idempotent=True, aliases={"type": "memory_type", "id": "memory_id"})
async def memory_confirm(
    memory: Memory, caller: Caller, memory_type: MemoryTypeName, memory_id: Id, idempotency_key: Key = None
) -> ConfirmResult:
    """Confirm that a fact or rule still holds; unconfirmed ones fade with time."""
    parsed_id = parse_id("memory_id", memory_id)
    request = Request("memory_confirm", {"type": memory_type, "id": str(parsed_id)}, idempotency_key)
    return await feedback.confirm(memory, caller, MemoryType(memory_type), parsed_id, request)  # type: ignore[return-value]


@tool(aliases={"id": "rule_id"})
async def memory_mark_helpful(
    memory: Memory, caller: Caller, rule_id: RuleId, idempotency_key: Key = None
) -> MarkResult:
    """Report that applying a rule worked; rules that keep working are trusted more."""
    parsed_id = parse_id("rule_id", rule_id)
    request = Request("memory_mark_helpful", {"rule_id": str(parsed_id)}, idempotency_key)
    return await feedback.mark_helpful(memory, caller, parsed_id, request)  # type: ignore[return-value]


@tool(aliases={"id": "rule_id"})
async def memory_mark_harmful(
    memory: Memory,
    caller: Caller,
    rule_id: RuleId,
    reason: Annotated[OptionalText, Field(description="What went wrong, in a sentence.")] = None,
    idempotency_key: Key = None,
) -> MarkResult:
    """Report that applying a rule caused a problem; it weighs as four successes, and three can make it a warning."""
    parsed_id = parse_id("rule_id", rule_id)
    request = Request("memory_mark_harmful", {"rule_id": str(parsed_id), "reason": reason}, idempotency_key)
    return await feedback.mark_harmful(memory, caller, parsed_id, reason, request)  # type: ignore[return-value]


TOOLS = (memory_confirm, memory_mark_helpful, memory_mark_harmful)
