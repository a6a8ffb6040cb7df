"""The command wrapper, shared arguments, and output as JSON or text."""

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import typer

from butlers.cli.wording import in_words_of_the_command, names_of, shown_names
from butlers.errors import Conflict, Fault
from butlers.visible_text import escape_control_characters

if TYPE_CHECKING:
    from rich.console import RenderableType

P = ParamSpec("P")
HERE = Path()
_OS_ERROR_HINT = "Make sure that it exists and that you may read and write it, or name another one."

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The butler's folder.", show_default=True)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def command(function: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make a command of an async function: a fault becomes one line on stderr and exit code 1."""

    is_run = function.__name__ == "run"

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        from butlers.environment import read_environment
        from butlers.host import logs

        shown_names.set(names_of(function))
        try:
            env = read_environment()
            logs_everything = is_run or os.environ.get("BUTLERS_LOG", "").strip()
            logs.configure_logging(env.log_level if logs_everything else "warning", env.log_format)
            asyncio.run(function(*args, **kwargs))
        except Fault as fault:
            raise _failed(in_words_of_the_command(fault.message), in_words_of_the_command(fault.hint)) from None
        except asyncio.CancelledError:
            # SIGTERM is the normal end of a running butler and a failure of every other command.
            raise typer.Exit(0 if is_run else 143) from None
        except KeyboardInterrupt:
            typer.echo("butlers: interrupted.", err=True)
            raise typer.Exit(130) from None
        except typer.Exit:
            raise
        except Exception as error:
            logging.getLogger("butlers").debug("internal", exc_info=error)
            if isinstance(error, OSError) and error.filename and error.strerror:
                raise _failed(f"{error.filename}: {error.strerror}", _OS_ERROR_HINT) from None
            hint = "Run the command again with BUTLERS_LOG=debug to see the traceback."
            raise _failed(f"internal error {type(error).__name__}", hint) from None

    return run


def _failed(message: str, hint: str) -> typer.Exit:
    """Print what happened and what to do, and return the exit."""
    text = f"butlers: {message.rstrip('.')}. {hint}".rstrip()
    typer.echo(escape_control_characters(text), err=True)
    return typer.Exit(1)


def ask(question: str, refusal: str) -> None:
    """Raise a conflict with the refusal unless the answer is yes. The question goes to stderr."""
    with interrupted_at_once():
        typer.echo(f"{question} [y/N] ", err=True, nl=False)
        answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        typer.echo(err=True)
    if answer.strip().lower() not in {"y", "yes"}:
        raise Conflict(refusal, hint="Answer y, or pass --yes.")


@contextmanager
def interrupted_at_once() -> Iterator[None]:
    """Let Ctrl-C end what blocks the event loop, which only records SIGINT."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def show(answer: Any, view: "Callable[[Any], RenderableType]", *, as_json: bool, to_stderr: bool = False) -> None:
    """Print an answer as JSON, or as its view renders it."""
    if as_json:
        typer.echo(json.dumps(answer, default=str), err=to_stderr)
        return
    from butlers.cli.tables import render

    render(view(answer), to_stderr=to_stderr)


def show_rows(rows: Sequence[Mapping[str, object]], layout: str, *, as_json: bool) -> None:
    """Print rows as a JSON list, or as a table of this layout."""

    def view(rows: Sequence[Mapping[str, object]]) -> "RenderableType":
        from butlers.cli.tables import TextTable

        return TextTable(layout, rows)

    show(rows, view, as_json=as_json)
