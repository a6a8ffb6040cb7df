"""How commands speak: tables for people, JSON for programs, one line on stderr when something is refused."""

import asyncio
import json
import logging
import os
import signal
import sys
import unicodedata
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import asdict, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, ParamSpec

import typer

from butlers.errors import Conflict, Fault

P = ParamSpec("P")
HERE = Path()
_JOINERS = "\u200c\u200d"
_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The butler's folder.", show_default=True)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def command(function: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """An async function as a command: faults become one line on stderr and exit code 1."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        from butlers.environment import read_environment
        from butlers.host import logs

        try:
            env = read_environment()
            logs.configure_logging(env.log_level if _is_asked_for(function) else "warning", env.log_format)
            asyncio.run(_finished(function(*args, **kwargs)))
        except Fault as fault:
            typer.echo(spelled(f"butlers: {fault.message.rstrip('.')}. {fault.advice}".rstrip()), err=True)
            raise typer.Exit(1) from None
        except asyncio.CancelledError:
            # SIGTERM: a butler ended as it was told to; of anything else there is no answer.
            raise typer.Exit(0 if function.__name__ == "run" else 143) from None
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        except typer.Exit:
            raise
        except Exception as error:
            logging.getLogger("butlers").debug("internal", exc_info=error)
            said = f"butlers: {type(error).__name__}: something went wrong that should not have."
            typer.echo(f"{said} Run it again with BUTLERS_LOG=debug for the traceback.", err=True)
            raise typer.Exit(1) from None

    return run


def _is_asked_for(function: Callable[..., object]) -> bool:
    """Whether a command's log is more than its warnings: a butler's own, or where somebody set the level."""
    return function.__name__ == "run" or bool(os.environ.get("BUTLERS_LOG", "").strip())


async def _finished(work: Awaitable[None]) -> None:
    await work


def ask(question: str, refused: str) -> None:
    """Go on only when somebody says yes. The question is on stderr, so that stdout has the answer alone."""
    # The event loop has the signal for itself and would only note it: here somebody waits.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        typer.echo(f"{question} [y/N] ", err=True, nl=False)
        said = sys.stdin.readline()
    finally:
        signal.signal(signal.SIGINT, before)
    if not said.endswith("\n"):
        typer.echo(err=True)
    if said.strip().lower() not in {"y", "yes"}:
        raise Conflict(refused, hint="Answer y, or pass --yes.")


def show(rows: Sequence[object], columns: Sequence[str], *, as_json: bool, title: str = "") -> None:
    """A table of these rows, or a JSON list."""
    plain = [_plain(row) for row in rows]
    if as_json:
        typer.echo(json.dumps(plain, default=str))
        return
    from rich.console import Console
    from rich.table import Table

    from butlers.cli.memory_views import visible

    table = Table(title=title or None, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column.replace("_", " "), overflow="fold", no_wrap=column == "id")
    for row in plain:
        table.add_row(*(visible(_cell(row.get(column))) for column in columns))
    Console().print(table)


def spelled(text: str) -> str:
    """The text with what steers a terminal spelled out."""
    return "".join(_spelled(character) for character in text)


def _spelled(character: str) -> str:
    if character in _JOINERS or character == "\n" or unicodedata.category(character) not in _HIDDEN:
        return character
    return character.encode("unicode_escape").decode()


def _plain(row: object) -> dict[str, Any]:
    if is_dataclass(row) and not isinstance(row, type):
        return asdict(row)
    return dict(row)  # type: ignore[call-overload, no-any-return]


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        return spelled(", ".join(str(item) for item in value))
    return spelled(str(value))
