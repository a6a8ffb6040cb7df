"""The `butlers` command line."""

from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Annotated

import typer

from butlers.cli import backups, connecting, hooks, importing, jobs, keys, lifecycle, memory, model, sessions

_EPILOG = """
**Files.** A butler is a folder, DIR, with a `butler.toml`. Without DIR it is the current folder.

**Environment.** `BUTLERS_HOME`: the embedded server and the model, by default in `~/.local/share/butlers`.
`BUTLERS_DATABASE_URL`, `BUTLERS_ADMIN_DATABASE_URL`: a PostgreSQL of your own, as the application and as the owner.
`BUTLERS_LOG`: debug, info, warning, error or critical. `BUTLERS_LOG_FORMAT`: console or json.

**Exit status.** 0: done. 1: refused or failed, and stderr says what to do. 2: wrong usage.

**Example.** `butlers init home && butlers connect home claude-code && butlers run home`
"""

app = typer.Typer(
    name="butlers",
    no_args_is_help=True,
    epilog=_EPILOG,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"butlers {version('butlers')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Give agents a memory: run butlers, connect agents to them, and look after what they know.

    `butlers COMMAND --help` explains a command with an example. `butlers --install-completion` teaches your shell the
    commands.
    """


_BUTLER, _AGENTS, _MEMORY, _OPERATION = "A butler", "Agents", "Memories", "Operation"
_PANELS: dict[str, Sequence[Callable[..., None]]] = {
    _BUTLER: (*lifecycle.COMMANDS, *sessions.COMMANDS),
    _AGENTS: connecting.COMMANDS,
    _MEMORY: importing.COMMANDS,
    _OPERATION: (*lifecycle.DATABASE_COMMANDS, *backups.COMMANDS),
}
for panel, commands in _PANELS.items():
    for command in commands:
        app.command(command.__name__.rstrip("_"), rich_help_panel=panel)(command)
app.add_typer(keys.app, name="key", rich_help_panel=_OPERATION)
app.add_typer(jobs.app, name="jobs", rich_help_panel=_OPERATION)
app.add_typer(hooks.app, name="hook", rich_help_panel=_AGENTS)
app.add_typer(memory.app, name="memory", rich_help_panel=_MEMORY)
app.add_typer(model.app, name="model", rich_help_panel=_MEMORY)


def main() -> None:
    """Run the command line, under one name however it is started."""
    app(prog_name="butlers")
