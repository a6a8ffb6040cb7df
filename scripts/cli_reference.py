"""Generator of docs/reference/cli.md from the commands."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from butlers.cli import app

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "cli.md"

INTRO = """\
# Commands

Each command takes the butler's folder, DIR, as its first argument. DIR defaults to the current folder where no other
arguments follow. `--json` prints machine-readable output. The exit code is 0 on success, 1 on an error (one line on
stderr says what to do) and 2 on wrong usage. The environment variables are on the page about
[configuration](config.md#environment-variables).

This page is generated from the commands by `python scripts/cli_reference.py`.
"""


def render() -> str:
    """The page."""
    return "\n".join([INTRO, *(section(path, command) for path, command in commands(typer.main.get_command(app)))])


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command that is not a group, with its full name."""
    subcommands = getattr(command, "commands", None)
    if subcommands is None:
        yield " ".join(path), command
        return
    for name, subcommand in subcommands.items():
        yield from commands(subcommand, (*path, name))


def section(path: str, command: Any) -> str:
    """One command: its help, its usage, and its arguments and options."""
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option"]
    usage = [f"butlers {path}", *map(argument_usage, arguments), *map(option_usage, options)]
    paragraphs = [line.strip() for line in (command.help or "").split("\n\n")]
    rows = [f"| `{name(param)}` | {param.help} |" for param in (*arguments, *options) if param.help]
    table = ["| argument | meaning |", "|---|---|", *rows, ""] if rows else []
    return "\n".join(
        [f"## `butlers {path}`", "", *("\n\n".join(paragraphs), ""), "```", " ".join(usage), "```", "", *table]
    )


def argument_usage(argument: Any) -> str:
    """DIR, or [DIR] where it is optional."""
    return name(argument) if argument.required else f"[{name(argument)}]"


def option_usage(option: Any) -> str:
    """--port N, in brackets where it is optional."""
    text = option.opts[0] if option.is_flag else f"{option.opts[0]} {option.name.upper()}"
    return text if option.required else f"[{text}]"


def name(param: Any) -> str:
    """The name of an argument or option on the command line."""
    return str(param.opts[0] if param.param_type_name == "option" else param.metavar or param.name.upper())


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
