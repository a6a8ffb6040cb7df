"""The tool that retracts everything from a bad source."""

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
from butlers.modules.memory.tools.arguments import Blank, Key, OptionalText, parse_id, parse_session_id


class RetractionResult(TypedDict, total=False):
    """The memories that came from a session or an episode, and the counts of those retracted."""

    dry_run: bool
    found: list[dict[str, Any]]
    total: int
    retraction_id: str
    retracted: dict[str, int]
    brought_back: list[str]
    restored: int
    left_alone: list[str]


@tool(destructive=True, toolset="full")
async def memory_retract_from(
    memory: Memory,
    caller: Caller,
    session_id: Annotated[OptionalText, Field(description="The session to retract from.")] = None,
    episode_id: Annotated[OptionalText, Field(description="The episode to retract from.")] = None,
    import_id: Annotated[OptionalText, Field(description="The import to retract.")] = None,
    dry_run: Annotated[bool | None, Blank, Field(description="Only list them; the default.")] = True,
    include_corroborated: Annotated[
        bool | None, Blank, Field(description="Also retract memories that other episodes corroborate.")
    ] = False,
    undo: Annotated[OptionalText, Field(description="A retraction_id to undo.")] = None,
    idempotency_key: Key = None,
) -> RetractionResult:
    """List everything that came from an untrustworthy session, episode or import, and retract it together."""
    if undo:
        if session_id or episode_id or import_id:
            raise InvalidInput(
                "undo can't have an origin", hint="Send undo without session_id, episode_id and import_id."
            )
        return to_json(await retraction.undo_retraction(memory, caller, parse_id("undo", undo)))  # type: ignore[no-any-return]
    origin = Origin(
        parse_session_id(session_id),
        parse_id("episode_id", episode_id) if episode_id else None,
        parse_id("import_id", import_id) if import_id else None,
    )
    if sum(each is not None for each in (origin.session_id, origin.episode_id, origin.import_id)) != 1:
        raise InvalidInput("one origin is needed", hint="Send a session_id, an episode_id or an import_id.")
    if dry_run is None or dry_run:
        return to_json(await retraction.preview(memory, caller, origin))  # type: ignore[no-any-return]
    every = bool(include_corroborated)
    arguments = {"session": str(origin.session_id), "episode": str(origin.episode_id), "all": every}
    if origin.import_id:
        arguments["import"] = str(origin.import_id)
    request = Request("memory_retract_from", arguments, idempotency_key)

    async def work() -> dict[str, Any]:
        return to_json(await retraction.retract(memory, caller, origin, include_corroborated=every))  # type: ignore[no-any-return]

    return await run_once_across_transactions(memory, caller, request, work)  # type: ignore[return-value]


TOOLS = (memory_retract_from,)
