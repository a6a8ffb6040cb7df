"""The tool for proposals of consolidation that wait for a person."""

from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from butlers.caller import Caller
from butlers.contract import tool
from butlers.errors import InvalidInput
from butlers.modules.memory.operations import proposals
from butlers.modules.memory.operations.idempotency import Request
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.tools.answers import to_json
from butlers.modules.memory.tools.arguments import Key, OptionalText, parse_id


class ProposalsResult(TypedDict, total=False):
    """The proposals that wait, or the one that was decided."""

    proposals: list[dict[str, Any]]
    id: str
    accepted: bool
    declined: bool
    memory_id: str


@tool(toolset="full")
async def memory_proposals(
    memory: Memory,
    caller: Caller,
    accept: Annotated[OptionalText, Field(description="Store this proposal, after checking it again.")] = None,
    decline: Annotated[OptionalText, Field(description="Decline this proposal.")] = None,
    idempotency_key: Key = None,
) -> ProposalsResult:
    """List what consolidation proposes and a person has to decide, or accept or decline one proposal."""
    if accept and decline:
        raise InvalidInput("a proposal is accepted or declined", hint="Send accept or decline.")
    if not accept and not decline:
        return to_json({"proposals": await proposals.list_waiting(memory, caller)})  # type: ignore[no-any-return]
    decide, name = (proposals.accept, "accept") if accept else (proposals.decline, "decline")
    proposal_id = parse_id(name, accept or decline or "")
    request = Request("memory_proposals", {name: str(proposal_id)}, idempotency_key)
    return to_json(await decide(memory, caller, proposal_id, request))  # type: ignore[no-any-return]


TOOLS = (memory_proposals,)
