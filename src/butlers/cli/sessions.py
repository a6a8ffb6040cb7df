"""`butlers trigger`, `connect` and `hook`: sessions of the butler's own, and those of Claude Code."""

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from butlers.cli.memory_client import Tenant
from butlers.cli.output import HERE, AsJson, Folder, ask, command
from butlers.errors import Fault

if TYPE_CHECKING:
    from butlers.connect import FileChange

CLAUDE_CODE = "claude-code"
hook = typer.Typer(
    help="What Claude Code runs around its sessions; `butlers connect` sets it up.", no_args_is_help=True
)


@command
async def trigger(
    folder: Folder,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What the butler is to do.")],
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Run one session of the butler's runtime, with memory around it, and print its answer.

    Example: `butlers trigger . "What do you know about Ada?"`
    """
    from butlers import app
    from butlers.cli import memory_views
    from butlers.environment import read_environment

    # What the session had started would outlive it.
    app.cancel_on_sigterm()
    async with (
        app.open_butler(app.load_configuration(folder), read_environment()) as butler,
        app.open_server(butler, over_http=False, by_the_clock=False),
    ):
        answered = await butler.spawner.spawn(butler.caller(tenant), prompt, trigger_source="cli")
    if not as_json:
        memory_views.show(answered.text.rstrip(), memory_views.plain, as_json=False)
        return
    usage = answered.usage and {
        "input_tokens": answered.usage.input_tokens,
        "output_tokens": answered.usage.output_tokens,
    }
    typer.echo(json.dumps({"session_id": str(answered.session_id), "answer": answered.text, "usage": usage}))


@command
async def connect(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The butler's folder.")] = HERE,
    client: Annotated[
        str | None, typer.Argument(metavar="CLIENT", help=f"`{CLAUDE_CODE}`, to set up a project of its.")
    ] = None,
    project: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The project; the current folder by default.")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take the butler out of the project again.")] = False,
    only_print: Annotated[
        bool, typer.Option("--print", help="Print the JSON that any MCP client takes, and write nothing.")
    ] = False,
    over_http: Annotated[
        bool, typer.Option("--http", help="Reach a butler that runs, instead of starting one for each session.")
    ] = False,
    local: Annotated[
        bool, typer.Option("--local", help="Hooks for yourself only: into settings.local.json, which is not shared.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Put the butler's tools, and the hooks that bring its memory, into a project of Claude Code.

    Example: `butlers connect my-butler claude-code --project ~/code/shop`
    """
    from butlers import app
    from butlers import connect as connecting
    from butlers.errors import InvalidInput

    if client is None and str(folder) == CLAUDE_CODE and not (folder / "butler.toml").exists():
        folder, client = HERE, CLAUDE_CODE
    config = app.load_configuration(folder)
    if over_http and not remove:
        await connecting.check_address(config)
    if only_print:
        typer.echo(json.dumps(connecting.mcp_configuration(config, over_http=over_http), indent=2))
        return
    if client != CLAUDE_CODE:
        wrong = f"{client} is no client that can be set up" if client else "the client is not named"
        raise InvalidInput(wrong, hint=f"Say `{CLAUDE_CODE}`, or --print for any other.")
    place = (project or Path()).resolve()
    if not place.is_dir():
        raise InvalidInput(f"there is no folder {place}", hint="Name the folder of a project.")
    changes = (
        connecting.plan_remove(config, place)
        if remove
        else connecting.plan_connect(config, place, over_http=over_http, local=local)
    )
    _make(changes, yes=yes, as_json=as_json)


def _make(changes: "Sequence[FileChange]", *, yes: bool, as_json: bool) -> None:
    """Show what will be written, ask where somebody can answer, and write it."""
    if not as_json:
        typer.echo("\n".join(change.diff() for change in changes) or "Nothing is to be changed.")
        if not changes:
            return
    if changes and not yes and not as_json and sys.stdin.isatty():
        ask("Write this?", "nothing was written")
    for change in changes:
        change.apply()
    done = [{"file": str(each.path), "done": "removed" if each.after is None else "wrote"} for each in changes]
    typer.echo(json.dumps(done) if as_json else "\n".join("{done} {file}".format(**each) for each in done))


@hook.command("session-start")
def session_start(folder: Folder = HERE) -> None:
    """Print the memories a session begins with; told of the session as JSON on stdin.

    Example: `butlers hook session-start my-butler`
    """
    from butlers import hooks

    async def say() -> None:
        if said := await hooks.session_start(folder, sys.stdin.read()):
            typer.echo(said)

    _whatever_happens(say)


@hook.command("session-end")
def session_end(folder: Folder = HERE) -> None:
    """Keep what happened in a session; told of the session as JSON on stdin.

    Example: `butlers hook session-end my-butler`
    """
    from butlers import hooks

    async def keep() -> None:
        await hooks.session_end(folder, sys.stdin.read())

    _whatever_happens(keep)


def _whatever_happens(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """A hook ends well whatever happens: one line on stderr says what was missed."""
    from butlers.host import logs

    try:
        logs.configure_logging("warning", "console")
        asyncio.run(work())
    except Exception as error:  # noqa: BLE001 — memory must never be in the way of somebody's session
        reason = error.message if isinstance(error, Fault) else type(error).__name__
        typer.echo(f"butlers: the session goes on without its memory: {reason}", err=True)


COMMANDS = (trigger, connect)
