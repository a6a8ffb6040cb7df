"""The `butlers memory undo` command."""

from typing import Annotated, Any

import typer

from butlers.cli.memory_client import Tenant, open_memory, validate_arguments
from butlers.cli.memory_removal import Yes, ask_or_refuse
from butlers.cli.output import AsJson, Folder, command, show
from butlers.errors import Conflict


@command
async def undo(
    folder: Folder,
    event_id: Annotated[
        str | None, typer.Argument(metavar="[EVENT_ID]", help="The event, from `history`. Default: your last act.")
    ] = None,
    request: Annotated[str | None, typer.Option(help="Undo all that the call with this request id changed.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")] = False,
    yes: Yes = False,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Undo one event, one call or your last act. The command shows what would change and asks first.

    Example: `butlers memory undo . 3f2a8c1e-…`
    """
    from butlers.cli import memory_views
    from butlers.modules.memory.tools.undo import memory_undo as tool

    arguments = validate_arguments(tool, {"event_id": event_id, "request_id": request})
    async with open_memory(folder, tenant) as (memory, caller):

        async def call(*, dry_run: bool, **more: Any) -> Any:
            return await tool.function(memory, caller, **{**arguments, **more}, dry_run=dry_run)

        answer = await call(dry_run=True)
        if not dry_run and not answer.get("already"):
            if "reason" in answer:
                raise Conflict(f"this can't be undone: {answer['reason']}", hint="Look at its history.")
            if not yes:
                show(answer, memory_views.undo, as_json=False, to_stderr=as_json)
                ask_or_refuse("Undo it?", "nothing was undone")
            # What was shown, also if the last act is another one by now.
            shown = {} if event_id else {"request_id": answer["request_id"]}
            answer = await call(dry_run=False, **shown)
    show(answer, memory_views.undo, as_json=as_json)


COMMANDS = (undo,)
