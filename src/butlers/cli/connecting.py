"""The `butlers connect` command."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from butlers.cli.output import HERE, AsJson, ask, command, show_rows
from butlers.errors import InvalidInput

if TYPE_CHECKING:
    from butlers.agents import Agent
    from butlers.connect import Connection, FileChange


def _matching_agents(incomplete: str) -> list[str]:
    """Return the names of agents that begin like this, for the shell's completion."""
    from butlers.agents import AGENTS

    return [name for name in AGENTS if name.startswith(incomplete)]


@command
async def connect(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The butler's folder.")] = HERE,
    agent: Annotated[
        str | None,
        typer.Argument(
            metavar="AGENT",
            help="The agent to set up: `claude-code`, `codex`, `gemini`, …",
            autocompletion=_matching_agents,
        ),
    ] = None,
    project: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The project's folder. Default: the current one.")
    ] = None,
    user: Annotated[bool, typer.Option("--user", help="Connect all projects of the user, not one.")] = False,
    over_http: Annotated[
        bool, typer.Option("--http", help="Connect to a running butler instead of starting one per session.")
    ] = False,
    local: Annotated[
        bool, typer.Option("--local", help="claude-code: hooks in settings.local.json, which is not shared.")
    ] = False,
    only_print: Annotated[
        bool, typer.Option("--print", help="Print what the agent's files need, and write nothing.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Show whether the connection is there, current, trusted and works.")
    ] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the butler from the agent's files.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Connect an agent to the butler: its tools, and hooks that bring memories in and keep what was done.

    Agents: `claude-code`, `codex`, `gemini`, `opencode`, `vscode`, `cursor`, `claude-desktop`, `windsurf`, `zed`,
    `cline`, `goose`. The changes are shown before they are written; everything else in the files stays.

    Example: `butlers connect my-butler codex --project ~/code/shop`
    """
    from butlers import app
    from butlers import connect as connecting
    from butlers.agents import find_agent

    folder, agent = _in_this_folder(folder, agent)
    config = app.load_configuration(folder)
    if over_http and not (remove or check):
        await connecting.check_address(config)
    if only_print and agent is None:
        typer.echo(json.dumps(connecting.mcp_configuration(config, over_http=over_http), indent=2))
        return
    known = find_agent(agent or "")
    place = _find_project(known, project, user=user)
    connection = connecting.Connection(
        config, known, place, over_http=over_http, is_local=_is_local(known, local=local)
    )
    if only_print:
        _print_files(connecting.new_files(connection), as_json=as_json)
    elif check:
        await _check(connection, as_json=as_json)
    elif remove:
        _apply(connecting.plan_remove(connection), (), yes=yes, as_json=as_json)
    else:
        advice = known.project_advice if place else known.user_advice
        _apply(connecting.plan_connect(connection), advice, yes=yes, as_json=as_json)


def _in_this_folder(folder: Path, agent: str | None) -> tuple[Path, str | None]:
    """Return the folder and the agent; an agent named alone is that of the butler in this folder."""
    from butlers.agents import AGENTS

    is_alone = agent is None and str(folder) in AGENTS and not (folder / "butler.toml").exists()
    return (HERE, str(folder)) if is_alone else (folder, agent)


def _find_project(agent: "Agent", project: Path | None, *, user: bool) -> Path | None:
    """Return the folder of the project; None for the user's settings."""
    if project and (user or not agent.has_project_files):
        problem = "--project and --user exclude each other" if user else f"{agent.title} has no settings of a project"
        raise InvalidInput(problem, hint="Leave out --project.")
    if user or not agent.has_project_files:
        return None
    target = (project or Path()).resolve()
    if not target.is_dir():
        raise InvalidInput(f"there is no folder {target}", hint="Pass the folder of a project.")
    return target


def _is_local(agent: "Agent", *, local: bool) -> bool:
    if local and not getattr(agent.hooks, "local", ""):
        raise InvalidInput(f"{agent.title} has no settings that are not shared", hint="Leave out --local.")
    return local


def _print_files(changes: "Sequence[FileChange]", *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps([{"file": str(change.path), "text": change.after} for change in changes]))
        return
    typer.echo("\n".join(f"# {change.path}\n{change.after}" for change in changes).rstrip())


async def _check(connection: "Connection", *, as_json: bool) -> None:
    from butlers.connect.checking import check_connection

    checks = await check_connection(connection)
    show_rows([asdict(check) for check in checks], "state | name | found / fix:", as_json=as_json)
    if any(check.state == "fail" for check in checks):
        raise typer.Exit(1)


def _apply(changes: "Sequence[FileChange]", advice: Sequence[str], *, yes: bool, as_json: bool) -> None:
    """Show the changes, ask if stdin is a terminal, write them, and say what is left to do."""
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
    for line in advice if changes else ():
        typer.echo(line, err=as_json)


COMMANDS = (connect,)
