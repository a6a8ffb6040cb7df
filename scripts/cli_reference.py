"""Writes docs/reference/cli.md from the commands themselves."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from butlers.cli import app

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "cli.md"

INTRO = """\
# Commands

Each command takes the butler's folder, DIR, as its first word; it may be left out where no other words follow,
and is the current folder then. `--json` prints what a program can read. The exit code is 0 when it is done,
1 when it was refused or failed (one line on stderr says what to do) and 2 for wrong usage. The environment
variables are on the page about [configuration](config.md#environment-variables).

This page is made from the commands: `python scripts/cli_reference.py` writes it anew.
"""


def render() -> str:
    """The whole page."""
    return "\n".join([INTRO, *(section(path, command) for path, command in commands(typer.main.get_command(app)))])


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command that does something, with the words that reach it."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield " ".join(path), command
        return
    for name, each in inner.items():
        yield from commands(each, (*path, name))


def section(path: str, command: Any) -> str:
    """One command: what it does, how it is written, what each word means."""
    words = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    usage = [f"butlers {path}", *(placeholder(word) for word in words), *(written(each) for each in options)]
    about = [line.strip() for line in (command.help or "").split("\n\n")]
    rows = [f"| `{name(each)}` | {each.help or ''} |" for each in (*words, *options) if each.help]
    table = ["| word | meaning |", "|---|---|", *rows, ""] if rows else []
    return "\n".join(
        [f"## `butlers {path}`", "", *("\n\n".join(about), ""), "```", " ".join(usage), "```", "", *table]
    )


def placeholder(word: Any) -> str:
    """DIR, or [DIR] where it may be left out."""
    return name(word) if word.required else f"[{name(word)}]"


def written(option: Any) -> str:
    """--port N, in brackets unless it must be there."""
    text = option.opts[0] if option.is_flag else f"{option.opts[0]} {option.name.upper()}"
    return text if option.required else f"[{text}]"


def name(word: Any) -> str:
    """As it stands on the command line."""
    return str(word.opts[0] if word.param_type_name == "option" else word.metavar or word.name.upper())


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
