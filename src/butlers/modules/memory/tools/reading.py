"""Tools that search and read memories."""

from typing import Annotated, Literal

from pydantic import Field

from butlers.caller import Caller
from butlers.contract import count_rows, tool
from butlers.modules.memory.domain.model import MemoryType, SearchMode
from butlers.modules.memory.operations import reading
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.tools import answers
from butlers.modules.memory.tools.arguments import Blank, Id, MemoryTypeName, Scope, Text, TypeNames, Word, parse_id

_RECALL_LIMIT = 10

Limit = Annotated[Annotated[int, Field(ge=1, le=100)] | None, Blank, Field(description="Maximum number of results.")]


@tool(read_only=True)
async def memory_search(
    memory: Memory,
    caller: Caller,
    query: Annotated[Text, Field(description="Words or a question.")],
    types: TypeNames = None,
    scope: Scope = None,
    mode: Annotated[
        Literal["semantic", "keyword", "hybrid", "blended"] | None,
        Word,
        Field(description="By meaning, by words, or by both: combined by rank (hybrid) or measure (blended)."),
    ] = None,
    limit: Limit = None,
    min_confidence: Annotated[
        Annotated[float, Field(ge=0, le=1)] | None, Blank, Field(description="Leave out what is less certain.")
    ] = None,
) -> list[answers.Memory]:
    """Search episodes, facts and rules, for example to see what was said before; memory_recall is for topics."""
    retrieval = memory.config.retrieval
    limit = limit or retrieval.default_limit
    found = await reading.search(
        memory,
        caller,
        query,
        types=[MemoryType(name) for name in types or list(MemoryType)],
        scope=scope,
        mode=SearchMode(mode or retrieval.default_mode),
        limit=limit,
        min_confidence=retrieval.min_confidence if min_confidence is None else min_confidence,
    )
    count_rows(asked=limit, returned=len(found))
    return [answers.list_item(record) for record in found]


@tool(open_to_readers=True)
async def memory_recall(
    memory: Memory,
    caller: Caller,
    topic: Annotated[Text, Field(description="The topic of what you are about to do.")],
    scope: Scope = None,
    limit: Limit = _RECALL_LIMIT,
) -> list[answers.Memory]:
    """Recall the facts and rules that matter for a topic. Call it first, before you answer or act."""
    limit = limit or _RECALL_LIMIT
    types = (MemoryType.FACT, MemoryType.RULE)
    found = await reading.recall(memory, caller, topic, scope=scope, limit=limit, types=types)
    count_rows(asked=limit, returned=len(found))
    return [answers.list_item(record) for record in found]


@tool(aliases={"type": "memory_type", "id": "memory_id"}, open_to_readers=True)
async def memory_get(memory: Memory, caller: Caller, memory_type: MemoryTypeName, memory_id: Id) -> answers.Memory:
    """Read one memory in any state with its full content."""
    found = await reading.get(memory, caller, MemoryType(memory_type), parse_id("memory_id", memory_id))
    return answers.full_record(found)


TOOLS = (memory_search, memory_recall, memory_get)
