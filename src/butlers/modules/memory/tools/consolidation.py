"""Tools for consolidation, dead letters and the cleanup of episodes."""

from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from butlers.caller import Caller
from butlers.contract import tool
from butlers.modules.memory.operations import cleanup, consolidation
from butlers.modules.memory.operations.idempotency import Request, run_once_across_transactions
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.tools.answers import to_json
from butlers.modules.memory.tools.arguments import Blank, Key, OptionalList, parse_id

_WAIT_SECONDS = 20.0
_MAX_DEAD_LETTERS = 100


class ConsolidationCounts(TypedDict, total=False):
    """The counts of a run, or of the pending episodes for a dry run; a run with status `running` continues."""

    dry_run: bool
    status: str
    reason: str
    groups: int
    waiting: int
    batches: int
    failed_batches: int
    episodes: int
    facts_created: int
    facts_updated: int
    rules_created: int
    confirmed: int
    proposed: int
    tokens: dict[str, Any]
    learned: list[dict[str, Any]]
    errors: list[str]


class CleanupCounts(TypedDict):
    """The counts of a cleanup or of a dry run."""

    dry_run: bool
    expired_deleted: int
    expired_unread: int
    capacity_deleted: int
    remaining: int


class DeadLetters(TypedDict, total=False):
    """The first dead-lettered episodes and the number of all, or those that are pending again."""

    dead_letters: list[dict[str, Any]]
    total: int
    requeued: int
    ids: list[str]


@tool()
async def memory_run_consolidation(
    memory: Memory,
    caller: Caller,
    dry_run: Annotated[bool | None, Blank, Field(description="Only count the pending episodes.")] = False,
    idempotency_key: Key = None,
) -> ConsolidationCounts:
    """Distil pending episodes into facts and rules now. It runs on a schedule; call it only on request."""
    if dry_run:
        return await consolidation.dry_run(memory, caller)  # type: ignore[return-value]
    request = Request("memory_run_consolidation", {}, idempotency_key)
    return await run_once_across_transactions(  # type: ignore[return-value]
        memory,
        caller,
        request,
        lambda: consolidation.consolidate_in_background(memory, caller, seconds=_WAIT_SECONDS),
    )


@tool(toolset="full")
async def memory_dead_letters(
    memory: Memory,
    caller: Caller,
    retry: Annotated[bool | None, Blank, Field(description="Make them pending again.")] = False,
    episode_ids: Annotated[OptionalList, Field(description="Episodes to retry; all by default.")] = None,
    idempotency_key: Key = None,
) -> DeadLetters:
    """List the dead-lettered episodes with their errors, or retry them."""
    if not retry:
        return to_json(await consolidation.list_dead_letters(memory, caller, _MAX_DEAD_LETTERS))  # type: ignore[no-any-return]
    ids = [parse_id("episode_ids", each) for each in episode_ids] if episode_ids else None
    request = Request("memory_dead_letters", {"ids": [str(each) for each in ids or ()]}, idempotency_key)
    return await consolidation.retry_dead_letters(memory, caller, ids, request)  # type: ignore[return-value]


@tool(destructive=True)
async def memory_run_episode_cleanup(
    memory: Memory,
    caller: Caller,
    max_entries: Annotated[
        Annotated[int, Field(ge=0)] | None, Blank, Field(description="Number of episodes to keep.")
    ] = None,
    dry_run: Annotated[bool | None, Blank, Field(description="Only count what would be deleted.")] = False,
    idempotency_key: Key = None,
) -> CleanupCounts:
    """Delete expired episodes, and the oldest consolidated ones over the limit. It runs on a schedule."""
    max_entries = memory.config.max_episodes if max_entries is None else max_entries
    if dry_run:
        return await cleanup.preview(memory, caller, max_entries=max_entries)  # type: ignore[return-value]
    request = Request("memory_run_episode_cleanup", {"max_entries": max_entries}, idempotency_key)
    return await run_once_across_transactions(  # type: ignore[return-value]
        memory, caller, request, lambda: cleanup.clean_up(memory, caller, max_entries=max_entries)
    )


TOOLS = (memory_run_consolidation, memory_run_episode_cleanup, memory_dead_letters)
