"""The tool that inspects a memory for what should not be in it."""

from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from butlers.caller import Caller
from butlers.contract import tool
from butlers.modules.memory.operations import hygiene
from butlers.modules.memory.operations.idempotency import Request, run_once_across_transactions
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.tools.arguments import Key, OptionalList


class HygieneAnswer(TypedDict, total=False):
    """The state of a memory: a score, findings with examples and remedies, and what a fix did."""

    score: int
    formula: str
    live: dict[str, int]
    findings: list[dict[str, Any]]
    notes: list[str]
    fixed: list[str]
    forgotten: dict[str, int]
    left: int
    request_id: str


@tool(destructive=True, toolset="full")
async def memory_hygiene(
    memory: Memory,
    caller: Caller,
    fix: Annotated[
        OptionalList, Field(description="Forgets duplicates, twins, echoes, secrets, unused_facts, unjudged_rules.")
    ] = None,
    idempotency_key: Key = None,
) -> HygieneAnswer:
    """Inspect this memory for copies, contradictions, echoes and secrets; memory_undo takes a fix back."""
    request = Request("memory_hygiene", {"fix": fix}, idempotency_key)
    if not fix:
        return (await hygiene.inspect(memory, caller)).answer()  # type: ignore[return-value]
    return await run_once_across_transactions(  # type: ignore[return-value]
        memory, caller, request, lambda: hygiene.fix(memory, caller, fix)
    )


TOOLS = (memory_hygiene,)
