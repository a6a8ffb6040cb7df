"""The `butlers memory runs` and `take-back` commands."""

from typing import Annotated, Any

import typer

from butlers.cli.memory_client import Tenant, open_memory, tool_command, validate_arguments
from butlers.cli.memory_removal import Yes, ask_or_refuse
from butlers.cli.output import AsJson, Folder, command, show


@tool_command("memory_consolidation_runs")
def runs(
    folder: Folder,
    run_id: Annotated[str | None, typer.Argument(metavar="[RUN]", help="Show this run as a diff.")] = None,
) -> None:
    """List the consolidation runs, or show what one learned, replaced, confirmed and dropped.

    Example: `butlers memory runs . 3f2a8c1e-…`
    """


@command
async def take_back(
    folder: Folder,
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="The run, from `runs`.")],
    item: Annotated[
        list[str] | None, typer.Option(help="Only this memory: a,b or the option repeated. Default: the whole run.")
    ] = None,
    include_corroborated: Annotated[
        bool, typer.Option("--include-corroborated", help="Also take back what others say as well.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")] = False,
    yes: Yes = False,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Take back what a consolidation run learned. The command shows it and asks first.

    Example: `butlers memory take-back . 3f2a8c1e-… --dry-run`
    """
    from butlers.cli import run_views
    from butlers.modules.memory.tools.consolidation_runs import memory_consolidation_runs as tool

    given = {"run_id": run_id, "take_back": True, "memory_ids": item, "include_corroborated": include_corroborated}
    arguments = validate_arguments(tool, given)
    async with open_memory(folder, tenant) as (memory, caller):

        async def call(*, dry_run: bool) -> Any:
            return await tool.function(memory, caller, **arguments, dry_run=dry_run)

        answer = await call(dry_run=True)
        if not dry_run:
            if answer["taken_back"] and not yes:
                show(answer, run_views.take_back, as_json=False, to_stderr=as_json)
                ask_or_refuse("Take these back?", "nothing was taken back")
            answer = await call(dry_run=False)
    show(answer, run_views.take_back, as_json=as_json)


COMMANDS = (runs, take_back)
