"""`butlers memory consolidate`, `sweep`, `cleanup`, `reembed`: what memory does by itself, done now."""

from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from butlers.cli.memory_client import Key, Tenant, call, opened
from butlers.cli.output import HERE, AsJson, Folder, command
from butlers.cli.progress import progress

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count what would change; nothing does.")]
AllTenants = Annotated[bool, typer.Option("--all-tenants", help="Every tenant's, as the schedule does.")]


@command
async def consolidate(
    folder: Folder = HERE,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be sent; nothing is taken and nothing changes.")
    ] = False,
    all_tenants: AllTenants = False,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Distil waiting episodes into facts and rules now, and show what was learned.

    Example: `butlers memory consolidate . --dry-run`
    """
    from butlers.cli import memory_views
    from butlers.modules.memory.operations import consolidation

    async with opened(folder, tenant) as reached:
        memory, caller = reached.memory, reached.caller
        if dry_run:
            shown = await consolidation.preview(memory, caller, everywhere=all_tenants)
            memory_views.show(shown, memory_views.prompts, as_json=as_json)
            return
        with progress("consolidating") as told:

            def tell(report: consolidation.ConsolidationReport) -> None:
                told(report.record.episodes, report.waiting)

            done = await consolidation.consolidate(memory, caller, everywhere=all_tenants, tell=tell)
    memory_views.show(done, memory_views.consolidated, as_json=as_json)


@command
async def sweep(
    folder: Folder = HERE,
    dry_run: DryRun = False,
    no_cap: Annotated[
        bool, typer.Option("--no-cap", help="Let go of all that is due, however much it is at once.")
    ] = False,
    all_tenants: AllTenants = False,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Let time work on facts and rules now: what nobody confirmed fades, what did harm becomes a warning.

    Example: `butlers memory sweep . --dry-run`
    """
    from butlers.cli import memory_views
    from butlers.modules.memory.operations import decay_sweep

    async with opened(folder, tenant) as reached:
        if dry_run:
            done = await decay_sweep.preview(reached.memory, reached.caller, everywhere=all_tenants)
        else:
            with progress("sweeping") as told:
                done = await decay_sweep.sweep(
                    reached.memory, reached.caller, everywhere=all_tenants, capped=not no_cap, tell=told
                )
    memory_views.show(done, memory_views.did, as_json=as_json)


@command
async def cleanup(
    folder: Folder = HERE,
    max_entries: Annotated[
        int | None, typer.Option(min=0, help="Keep so many at the most; the configured number by default.")
    ] = None,
    dry_run: DryRun = False,
    all_tenants: AllTenants = False,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Delete expired episodes now, and the oldest distilled ones over the limit.

    Example: `butlers memory cleanup . --dry-run`
    """
    from butlers.cli import memory_views
    from butlers.modules.memory.operations import cleanup as cleaning

    async with opened(folder, tenant) as reached:
        memory, caller = reached.memory, reached.caller
        if dry_run:
            done = await cleaning.preview(memory, caller, everywhere=all_tenants, max_entries=max_entries)
        else:
            with progress("cleaning up") as told:
                done = await cleaning.clean_up(
                    memory, caller, everywhere=all_tenants, max_entries=max_entries, tell=told
                )
    memory_views.show(done, memory_views.did, as_json=as_json)


@command
async def reembed(
    folder: Folder = HERE,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what waits; nothing changes.")] = False,
    all_tenants: AllTenants = False,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Embed anew, with the model in use, what another model or version embedded; ended half-way, it goes on later.

    Example: `butlers memory reembed . --all-tenants`
    """
    from butlers.cli import memory_views
    from butlers.modules.memory.operations import reembedding

    async with opened(folder, tenant) as reached:
        if dry_run:
            waiting = await reembedding.count_stale(reached.memory, reached.caller, everywhere=all_tenants)
            done = {"dry_run": True, "waiting": waiting}
        else:
            with progress("embedding anew") as told:
                done = await reembedding.reembed(reached.memory, reached.caller, everywhere=all_tenants, tell=told)
    memory_views.show(done, memory_views.did, as_json=as_json)


@command
async def dead_letters(
    folder: Folder,
    episode_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Which to retry; all of them by default.")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Let them wait to be consolidated again.")] = False,
    idempotency_key: Key = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Show the episodes that consolidation gave up, with the reason, or have them tried again.

    Example: `butlers memory dead-letters . --retry`
    """
    wanted = {"retry": retry, "episode_ids": episode_ids or None, "idempotency_key": idempotency_key}
    await call("memory_dead_letters", folder, tenant, as_json, **wanted)


COMMANDS: Mapping[str, Callable[..., None]] = {
    "consolidate": consolidate,
    "dead-letters": dead_letters,
    "sweep": sweep,
    "cleanup": cleanup,
    "reembed": reembed,
}
