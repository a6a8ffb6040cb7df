"""The `butlers` command line."""

from importlib.metadata import version
from typing import Annotated

import typer

from butlers.cli import backups, connecting, hooks, importing, jobs, keys, lifecycle, memory, sessions

app = typer.Typer(
    name="butlers",
    help="Run long-running agents with memory.",
    no_args_is_help=True,
    add_completion=False,
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
    """Run long-running agents with memory."""


for module in (lifecycle, sessions, connecting, importing, backups):
    for command in module.COMMANDS:
        app.command(command.__name__.rstrip("_"))(command)
app.add_typer(keys.app, name="key")
app.add_typer(jobs.app, name="jobs")
app.add_typer(hooks.app, name="hook")
app.add_typer(memory.app, name="memory")


def main() -> None:
    """Run the command line."""
    app()
