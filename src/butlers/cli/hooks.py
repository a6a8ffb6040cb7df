"""The `butlers hook` commands."""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from butlers.cli.output import HERE, AsJson, Folder, command, show_rows
from butlers.errors import Fault

if TYPE_CHECKING:
    from butlers.agents import Agent

app = typer.Typer(help="Run a hook of an agent. `butlers connect` sets the hooks up.", no_args_is_help=True)

_EXIT_SECONDS = 9.0
"""Less than what `agents.HOOK_TIMEOUT_SECONDS` gives a hook: an agent ends one without a word."""
_DELIVERY_SECONDS = 300.0
_DEFAULT_AGENT = "claude-code"

For = Annotated[str, typer.Option("--for", metavar="AGENT", help="The agent that runs the hook.")]
Wait = Annotated[bool, typer.Option("--wait", help="Store the episode before the command ends.")]


@app.command("session-start")
def session_start(folder: Folder = HERE, agent: For = _DEFAULT_AGENT) -> None:
    """Print the memories that a session starts with. Reads the session as JSON from stdin.

    Example: `butlers hook session-start my-butler --for codex`
    """

    def run(event: str, known: "Agent") -> None:
        from butlers.environment import read_environment
        from butlers.hooks.session_start import session_start as start

        if output := asyncio.run(start(folder, event, known, read_environment())):
            typer.echo(output)

    _run_hook(agent, run)


@app.command("turn-end")
def turn_end(folder: Folder = HERE, agent: For = _DEFAULT_AGENT, wait: Wait = False) -> None:
    """Store the last turn of a session as an episode. Reads the session as JSON from stdin.

    The event waits in a file while a process of its own stores it: the agent goes on at once.

    Example: `butlers hook turn-end my-butler --for codex`
    """
    _run_hook(agent, lambda event, known: _keep("turn-end", folder, event, known, wait=wait), _limit(wait=wait))


@app.command("session-end")
def session_end(folder: Folder = HERE, agent: For = _DEFAULT_AGENT, wait: Wait = False) -> None:
    """Store a whole session as an episode. Reads the session as JSON from stdin.

    The event waits in a file while a process of its own stores it: the agent goes on at once.

    Example: `butlers hook session-end my-butler`
    """
    _run_hook(agent, lambda event, known: _keep("session-end", folder, event, known, wait=wait), _limit(wait=wait))


@app.command("deliver")
@command
async def deliver(folder: Folder = HERE, as_json: AsJson = False) -> None:
    """Store the episodes of events that still wait, for example because the database was down.

    Example: `butlers hook deliver my-butler`
    """
    from butlers.environment import read_environment
    from butlers.hooks.delivery import deliver as deliver_events
    from butlers.hooks.outbox import Outbox
    from butlers.hooks.time_limit import end_process_in_time

    environment = read_environment()
    with end_process_in_time(_DELIVERY_SECONDS, _report):
        report = await deliver_events(Outbox(environment.home, folder), environment)
    row = asdict(report) | {"errors": "; ".join(dict.fromkeys(report.errors))}
    show_rows([row], "stored | left_out | waiting | errors", as_json=as_json)
    if report.is_busy:
        typer.echo("Another process stores them at the moment.", err=True)
    if report.errors:
        raise typer.Exit(1)


def _keep(hook: str, folder: Path, event: str, agent: "Agent", *, wait: bool) -> None:
    from butlers.environment import read_environment
    from butlers.hooks import delivery
    from butlers.hooks.outbox import Outbox

    environment = read_environment()
    outbox = Outbox(environment.home, folder)
    path = delivery.accept_event(outbox, hook, event, agent)
    if path and not wait:
        delivery.deliver_later(outbox)
    elif path:
        report = asyncio.run(delivery.deliver(outbox, environment, awaited=path))
        if path.exists() and report.errors:
            _report(report.errors[-1])


def _limit(*, wait: bool) -> float:
    return _DELIVERY_SECONDS if wait else _EXIT_SECONDS


def _run_hook(agent: str, run: "Callable[[str, Agent], Any]", seconds: float = _EXIT_SECONDS) -> None:
    """Run a hook. An error becomes one line on stderr, and the exit code is 0."""
    from butlers.agents import find_agent
    from butlers.hooks.event import MAX_EVENT_CHARACTERS
    from butlers.hooks.time_limit import end_process_in_time
    from butlers.host import logs

    try:
        logs.configure_logging("warning", "console")
        with end_process_in_time(seconds, _report):
            run(sys.stdin.read(MAX_EVENT_CHARACTERS + 1), find_agent(agent))
    except TimeoutError:
        _report("the memory took too long")
    except Exception as error:  # noqa: BLE001 — an error of the memory must not stop the session
        _report(error.message if isinstance(error, Fault) else type(error).__name__)


def _report(reason: str) -> None:
    typer.echo(f"butlers: the session continues without memory: {reason}", err=True)
