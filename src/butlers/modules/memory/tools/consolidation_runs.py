"""The tool that shows what consolidation runs learned, and takes it back."""

from typing import Annotated, Any
from uuid import UUID

from pydantic import Field
from typing_extensions import TypedDict

from butlers.caller import Caller
from butlers.contract import tool
from butlers.errors import InvalidInput
from butlers.modules.memory.operations import consolidation_runs
from butlers.modules.memory.operations.idempotency import Request
from butlers.modules.memory.operations.paging import Start
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.tools.answers import to_json
from butlers.modules.memory.tools.arguments import Blank, Key, OptionalList, OptionalText, parse_id


class RunsResult(TypedDict, total=False):
    """The newest runs, one of them as a diff, or what is taken back of it and what stays."""

    runs: list[dict[str, Any]]
    run: dict[str, Any]
    episodes: list[dict[str, Any]]
    dropped: list[str]
    dry_run: bool
    run_id: str
    request_id: str
    taken_back: int
    brought_back: list[str]
    items: list[dict[str, Any]]


@tool(destructive=True, toolset="full")
async def memory_consolidation_runs(
    memory: Memory,
    caller: Caller,
    run_id: Annotated[OptionalText, Field(description="Show this run; without it, the newest are listed.")] = None,
    take_back: Annotated[bool | None, Blank, Field(description="Take back what the run learned.")] = False,
    memory_ids: Annotated[OptionalList, Field(description="Take back only these memories of the run.")] = None,
    include_corroborated: Annotated[
        bool | None, Blank, Field(description="Also take back what others say as well.")
    ] = False,
    dry_run: Annotated[bool | None, Blank, Field(description="Only say what would be taken back.")] = False,
    idempotency_key: Key = None,
) -> RunsResult:
    """List what consolidation runs learned, replaced, confirmed and dropped, or take back what one learned."""
    run = parse_id("run_id", run_id) if run_id else None
    if take_back:
        if run is None:
            raise InvalidInput("take_back needs a run", hint="Send its run_id.")
        ids = [parse_id("memory_ids", each) for each in memory_ids] if memory_ids else None
        options = {"ids": ids, "include_corroborated": bool(include_corroborated)}
        return await _take_back(memory, caller, run, options, idempotency_key, dry_run=bool(dry_run))
    return await (_show(memory, caller, run) if run else _list(memory, caller))


async def _list(memory: Memory, caller: Caller) -> RunsResult:
    found = await consolidation_runs.list_runs(memory, caller, Start())
    return to_json({"runs": [_with_seconds(dict(row)) for row in found.rows]})  # type: ignore[no-any-return]


async def _show(memory: Memory, caller: Caller, run_id: UUID) -> RunsResult:
    diff = await consolidation_runs.show_run(memory, caller, run_id)
    run = {name: value for name, value in diff.run.items() if name not in {"errors", "parse_errors"}}
    answer = {
        "run": _with_seconds(run),
        "episodes": [{name: each[name] for name in ("id", "content", "created_at")} for each in diff.episodes],
        "items": [consolidation_runs.describe(each) for each in diff.items],
        "dropped": diff.dropped,
    }
    return to_json(answer)  # type: ignore[no-any-return]


def _with_seconds(run: dict[str, Any]) -> dict[str, Any]:
    return {**run, "seconds": consolidation_runs.seconds_of(run)}


async def _take_back(
    memory: Memory, caller: Caller, run_id: UUID, options: dict[str, Any], key: str | None, *, dry_run: bool
) -> RunsResult:
    if dry_run:
        return to_json(await consolidation_runs.preview_take_back(memory, caller, run_id, **options))  # type: ignore[no-any-return]
    arguments = {"run": str(run_id), **options, "ids": sorted(map(str, options["ids"] or ()))}
    request = Request("memory_consolidation_runs", arguments, key)
    return to_json(await consolidation_runs.take_back(memory, caller, run_id, request, **options))  # type: ignore[no-any-return]


TOOLS = (memory_consolidation_runs,)
