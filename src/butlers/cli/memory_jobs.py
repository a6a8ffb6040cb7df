"""`butlers memory consolidate` and `dead-letters`: what memory does by itself, done now."""

from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from butlers.cli.memory_calls import Key, Tenant, call, opened
from butlers.cli.output import HERE, AsJson, Folder, command
from butlers.cli.progress import progress


@command
async def consolidate(
    folder: Folder = HERE,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be sent; nothing is taken and nothing changes.")
    ] = False,
    all_tenants: Annotated[bool, typer.Option("--all-tenants", help="Every tenant's, as the schedule does.")] = False,
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

            def tell(report: consolidation.Report) -> None:
                told(report.record.episodes, report.waiting)

            done = await consolidation.run(memory, caller, everywhere=all_tenants, tell=tell)
    memory_views.show(done, memory_views.consolidated, as_json=as_json)


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


COMMANDS: Mapping[str, Callable[..., None]] = {"consolidate": consolidate, "dead-letters": dead_letters}
