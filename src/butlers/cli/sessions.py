"""The `butlers trigger`, `connect` and `hook` commands."""

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from butlers.cli.memory_client import Tenant
from butlers.cli.output import HERE, AsJson, Folder, ask, command, show
from butlers.errors import Fault

if TYPE_CHECKING:
    from butlers.connect import FileChange

CLAUDE_CODE = "claude-code"
hook = typer.Typer(help="Run a hook of Claude Code. `butlers connect` sets the hooks up.", no_args_is_help=True)


@command
async def trigger(
    folder: Folder,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="The prompt of the session.")],
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Run one session with memory and print its answer.

    Example: `butlers trigger . "What do you know about Ada?"`
    """
    from butlers import app
    from butlers.cli import memory_views
    from butlers.environment import read_environment
    from butlers.host.runtimes import make_runtime

    config = app.load_configuration(folder)
    # Before the database is opened: a missing runtime is reported at once.
    make_runtime(config.butler.runtime, config.folder).check()
    # SIGTERM must end the processes that the session started.
    app.cancel_on_sigterm()
    async with (
        app.open_butler(config, read_environment()) as butler,
        app.open_server(butler, over_http=False, with_jobs=False),
    ):
        result = await butler.spawner.spawn(butler.caller(tenant), prompt, trigger_source="cli")
    if not as_json:
        show(result.text.rstrip(), memory_views.plain, as_json=False)
        return
    usage = result.usage and asdict(result.usage)
    typer.echo(json.dumps({"session_id": str(result.session_id), "answer": result.text, "usage": usage}))


@command
async def connect(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The butler's folder.")] = HERE,
    client: Annotated[
        str | None, typer.Argument(metavar="CLIENT", help=f"The client to set up: `{CLAUDE_CODE}`.")
    ] = None,
    project: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The project's folder. Default: the current one.")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the butler from the project.")] = False,
    only_print: Annotated[
        bool, typer.Option("--print", help="Print the JSON for any MCP client, and write nothing.")
    ] = False,
    over_http: Annotated[
        bool, typer.Option("--http", help="Connect to a running butler instead of starting one per session.")
    ] = False,
    local: Annotated[
        bool, typer.Option("--local", help="Write the hooks to settings.local.json, which is not shared.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Connect a project of Claude Code to the butler: its tools and its memory hooks.

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
        problem = f"{client} is not a supported client" if client else "no client is named"
        raise InvalidInput(problem, hint=f"Name `{CLAUDE_CODE}`, or pass --print for any other client.")
    target = (project or Path()).resolve()
    if not target.is_dir():
        raise InvalidInput(f"there is no folder {target}", hint="Pass the folder of a project.")
    changes = (
        connecting.plan_remove(config, target)
        if remove
        else connecting.plan_connect(config, target, over_http=over_http, local=local)
    )
    _apply(changes, yes=yes, as_json=as_json)


def _apply(changes: "Sequence[FileChange]", *, yes: bool, as_json: bool) -> None:
    """Show the changes, ask if stdin is a terminal, and write them."""
    if not as_json:
        typer.echo("\n".join(change.diff() for change in changes) or "Nothing to change.")
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
    """Print the memories that a session starts with. Reads the session as JSON from stdin.

    Example: `butlers hook session-start my-butler`
    """
    from butlers import hooks

    _run_hook(hooks.session_start, folder)


@hook.command("session-end")
def session_end(folder: Folder = HERE) -> None:
    """Store a session as an episode. Reads the session as JSON from stdin.

    Example: `butlers hook session-end my-butler`
    """
    from butlers import hooks

    _run_hook(hooks.session_end, folder)


def _run_hook(run: Callable[[Path, str], Coroutine[Any, Any, str | bool]], folder: Path) -> None:
    """Run a hook and print its text, if any. An error becomes one line on stderr, and the exit code is 0."""
    from butlers import hooks
    from butlers.host import logs

    def report(reason: str) -> None:
        typer.echo(f"butlers: the session continues without memory: {reason}", err=True)

    try:
        logs.configure_logging("warning", "console")
        with hooks.end_process_in_time(report):
            output = asyncio.run(run(folder, sys.stdin.read()))
        if isinstance(output, str) and output:
            typer.echo(output)
    except TimeoutError:
        report(f"the memory took longer than {hooks.HOOK_TIMEOUT_SECONDS:g} s")
    except Exception as error:  # noqa: BLE001 — an error of the memory must not stop the session
        report(error.message if isinstance(error, Fault) else type(error).__name__)


COMMANDS = (trigger, connect)
