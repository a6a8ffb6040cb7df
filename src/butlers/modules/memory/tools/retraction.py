"""The tool that takes back what came from a bad source."""

from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from butlers.caller import Caller
from butlers.contract import tool
from butlers.errors import InvalidInput
from butlers.modules.memory.operations import retraction
from butlers.modules.memory.operations.idempotency import Request, run_once_across_transactions
from butlers.modules.memory.operations.retraction import Origin
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.tools.answers import to_json
from butlers.modules.memory.tools.arguments import Blank, Key, OptionalText, parse_memory_id, parse_session_id


class Retracted(TypedDict, total=False):
    """What came from a session or an episode, and what was taken back."""

    dry_run: bool
    found: list[dict[str, Any]]
    retraction_id: str
    retracted: dict[str, int]
    brought_back: list[str]
    restored: int
    left_alone: list[str]


@tool(destructive=True, toolset="full")
async def memory_retract_from(
    memory: Memory,
    caller: Caller,
    session_id: Annotated[OptionalText, Field(description="Everything this session stored or led to.")] = None,
    episode_id: Annotated[OptionalText, Field(description="Everything this episode led to.")] = None,
    dry_run: Annotated[bool | None, Blank, Field(description="Only list it, which is the default.")] = True,
    also_elsewhere: Annotated[bool | None, Blank, Field(description="What other episodes say as well, too.")] = False,
    undo: Annotated[OptionalText, Field(description="A retraction_id, to bring back what it took.")] = None,
    idempotency_key: Key = None,
) -> Retracted:
    """List everything that came from a session or an episode that can't be trusted, and take it back together."""
    if undo:
        if session_id or episode_id:
            raise InvalidInput("undo takes no origin", hint="Send undo alone.")
        return to_json(await retraction.undo_retraction(memory, caller, parse_memory_id("undo", undo)))  # type: ignore[no-any-return]
    origin = Origin(parse_session_id(session_id), parse_memory_id("episode_id", episode_id) if episode_id else None)
    if (origin.session_id is None) == (origin.episode_id is None):
        raise InvalidInput("one origin is needed", hint="Send either a session_id or an episode_id.")
    if dry_run is None or dry_run:
        return to_json(await retraction.preview(memory, caller, origin))  # type: ignore[no-any-return]
    asked = {"session": str(origin.session_id), "episode": str(origin.episode_id), "all": bool(also_elsewhere)}
    request = Request("memory_retract_from", asked, idempotency_key)

    async def work() -> dict[str, Any]:
        done = await retraction.retract(memory, caller, origin, also_elsewhere=bool(also_elsewhere))
        answer: dict[str, Any] = to_json(done)
        return answer

    return await run_once_across_transactions(memory, caller, request, work)  # type: ignore[return-value]


TOOLS = (memory_retract_from,)
