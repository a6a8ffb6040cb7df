"""The tool that builds the memory block of a session."""

from typing import Annotated

from pydantic import Field

from butlers.caller import Caller
from butlers.contract import tool
from butlers.modules.memory.operations import context
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.tools.arguments import Blank, Text


@tool(read_only=True)
async def memory_context(
    memory: Memory,
    caller: Caller,
    trigger_prompt: Annotated[Text, Field(description="The prompt that starts the session.")],
    butler: Annotated[Text, Field(description="This butler's name.")],
    token_budget: Annotated[Annotated[int, Field(ge=16, le=100_000)] | None, Blank] = None,
) -> str:
    """Build the memory block for a session's system prompt; called before a session, rarely in one."""
    return await context.build_context(memory, caller, trigger_prompt, butler, token_budget)


TOOLS = (memory_context,)
