"""The `butlers memory consolidate`, `dead-letters`, `sweep`, `cleanup` and `reembed` commands."""

from typing import Annotated

import typer

from butlers.cli.memory_client import Key, Tenant, open_memory, tool_command
from butlers.cli.output import HERE, AsJson, Folder, command, show
from butlers.cli.progress import progress

DryRun = Annotated[bool, typer.Option("--dry-run", help="Count what would change, and change nothing.")]
AllTenants = Annotated[bool, typer.Option("--all-tenants", help="Include all tenants, as the scheduled job does.")]


@command
async def consolidate(
    folder: Folder = HERE,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the prompts, and change nothing.")] = False,
    all_tenants: AllTenants = False,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Consolidate pending episodes into facts and rules now, and show them.

    Example: `butlers memory consolidate . --dry-run`
    """
    from butlers.cli import memory_views
    from butlers.modules.memory.operations import consolidation

    async with open_memory(folder, tenant) as (memory, caller):
        if dry_run:
            prompts = await consolidation.preview(memory, caller, all_tenants=all_tenants)
            show(prompts, memory_views.prompts, as_json=as_json)
            return
        with progress("consolidating") as update:
            result = await consolidation.consolidate(memory, caller, all_tenants=all_tenants, progress=update)
    show(result, memory_views.consolidation, as_json=as_json)


@command
async def sweep(
    folder: Folder = HERE,
    dry_run: DryRun = False,
    no_cap: Annotated[bool, typer.Option("--no-cap", help="Expire all that are due, with no limit.")] = False,
    all_tenants: AllTenants = False,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Sweep facts and rules now: unconfirmed ones fade and expire, and harmful rules become warnings.

    Example: `butlers memory sweep . --dry-run`
    """
    from butlers.cli import memory_views
    from butlers.modules.memory.operations import decay_sweep

    async with open_memory(folder, tenant) as (memory, caller):
        if dry_run:
            result = await decay_sweep.preview(memory, caller, all_tenants=all_tenants)
        else:
            with progress("sweeping") as update:
                result = await decay_sweep.sweep(
                    memory, caller, all_tenants=all_tenants, capped=not no_cap, progress=update
                )
    show(result, memory_views.job_result, as_json=as_json)


@command
async def cleanup(
    folder: Folder = HERE,
    max_entries: Annotated[
        int | None, typer.Option(min=0, help="The number of episodes to keep. Default: the configured one.")
    ] = None,
    dry_run: DryRun = False,
    all_tenants: AllTenants = False,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Delete expired episodes now, and the oldest consolidated ones over the limit.

    Example: `butlers memory cleanup . --dry-run`
    """
    from butlers.cli import memory_views
    from butlers.modules.memory.operations import cleanup as cleaning

    async with open_memory(folder, tenant) as (memory, caller):
        if dry_run:
            result = await cleaning.preview(memory, caller, all_tenants=all_tenants, max_entries=max_entries)
        else:
            with progress("cleaning up") as update:
                result = await cleaning.clean_up(
                    memory, caller, all_tenants=all_tenants, max_entries=max_entries, progress=update
                )
    show(result, memory_views.job_result, as_json=as_json)


@command
async def reembed(
    folder: Folder = HERE,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count the pending memories, and change nothing.")
    ] = False,
    all_tenants: AllTenants = False,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Embed again all memories that another model or version embedded. An interrupted run can be continued.

    Example: `butlers memory reembed . --all-tenants`
    """
    from butlers.cli import memory_views
    from butlers.modules.memory.operations import reembedding

    async with open_memory(folder, tenant) as (memory, caller):
        if dry_run:
            waiting = await reembedding.count_stale(memory, caller, all_tenants=all_tenants)
            result = {"dry_run": True, "waiting": waiting}
        else:
            with progress("embedding") as update:
                result = await reembedding.reembed(memory, caller, all_tenants=all_tenants, progress=update)
    show(result, memory_views.job_result, as_json=as_json)


@tool_command("memory_dead_letters")
def dead_letters(
    folder: Folder,
    episode_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="The episodes to retry. Default: all.")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Make them pending for the next consolidation.")] = False,
    idempotency_key: Key = None,
) -> None:
    """Show the dead-lettered episodes with their errors, or retry them.

    Example: `butlers memory dead-letters . --retry`
    """


COMMANDS = (consolidate, dead_letters, sweep, cleanup, reembed)
