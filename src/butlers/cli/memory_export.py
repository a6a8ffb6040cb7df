"""`butlers memory export` and `import`: a whole tenant as a file."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TextIO

import typer

from butlers.cli.memory_client import Tenant, opened
from butlers.cli.output import AsJson, Folder, command
from butlers.cli.progress import progress
from butlers.errors import InvalidInput

STREAM = Path("-")
_SHORTEST = 0.001


@command
async def export(
    folder: Folder,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to; `-`, or nothing, is stdout.")] = STREAM,
    vectors: Annotated[bool, typer.Option("--vectors", help="Vectors too: the import then needs no model.")] = False,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Write everything a tenant has as JSON Lines, as it is at one moment.

    Example: `butlers memory export . memories.jsonl`
    """
    from butlers.modules.memory.operations import export_import

    started = time.monotonic()
    async with opened(folder, tenant) as reached:
        with _written(file) as out, progress("exporting") as told:
            write = _writer(file, out)
            header = await export_import.export_tenant(
                reached.memory, reached.caller, write, vectors=vectors, told=told
            )
    summary = {"tenant": header.tenant, "exported": header.counts}
    # Where the memories go to stdout, nothing else does.
    _report(summary | _speed(header.memories, started), as_json=as_json, aside=file == STREAM)


@command
async def import_(
    folder: Folder,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An exported file; `-` is stdin.")],
    merge: Annotated[
        bool, typer.Option("--merge", help="Into a tenant that is not empty; ids it has already are skipped.")
    ] = False,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Take in everything an exported file has, or nothing: the whole file is checked before a row is written.

    Example: `butlers memory import . memories.jsonl --tenant acme`
    """
    from butlers.modules.memory.operations import export_import

    with _read(file) as source:
        started = time.monotonic()
        async with opened(folder, tenant) as reached:
            with progress("importing") as told:
                done = await export_import.import_file(reached.memory, reached.caller, source, merge=merge, told=told)
            summary = {"tenant": reached.caller.tenant, "imported": done.imported, "skipped": done.skipped}
    _report(summary | _speed(done.memories, started), as_json=as_json)


COMMANDS: Mapping[str, Callable[..., None]] = {"export": export, "import": import_}


@contextmanager
def _written(file: Path) -> Iterator[TextIO]:
    """A stream to write to; a file is there whole or not at all, and for its owner's eyes."""
    if file == STREAM:
        yield sys.stdout
        return
    if file.exists() and not file.is_file():
        with file.open("w", encoding="utf-8") as out:
            yield out
        return
    try:
        number, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    except OSError as error:
        raise _unwritable(file, error) from None
    made = Path(name)
    try:
        with os.fdopen(number, "w", encoding="utf-8") as out:
            yield out
            os.fsync(out.fileno())
        made.replace(file)
    finally:
        made.unlink(missing_ok=True)


def _writer(file: Path, out: TextIO) -> Callable[[str], None]:
    """Writes through to the stream; what goes wrong there is not taken for the database's fault."""

    def write(text: str) -> None:
        try:
            out.write(text)
            out.flush()
        except BrokenPipeError:
            # Whoever read our output has left, as `head` does. Nothing is left to be flushed at the end either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
            raise typer.Exit(1) from None
        except OSError as error:
            raise _unwritable(file, error) from None

    return write


def _unwritable(file: Path, error: OSError) -> InvalidInput:
    return InvalidInput(f"{file} can't be written: {error.strerror}", hint="Name another place.")


@contextmanager
def _read(file: Path) -> Iterator[BinaryIO]:
    """A file that can be read twice: once to check it, once to take it in."""
    if file == STREAM:
        with tempfile.TemporaryFile() as kept:
            shutil.copyfileobj(sys.stdin.buffer, kept)
            yield kept
        return
    try:
        source = file.open("rb")
    except OSError as error:
        raise InvalidInput(f"{file} can't be read: {error.strerror}", hint="Name a file that was exported.") from None
    with source:
        yield source


def _speed(memories: int, started: float) -> dict[str, Any]:
    seconds = max(time.monotonic() - started, _SHORTEST)
    return {"memories": memories, "seconds": round(seconds, 1), "memories_per_second": round(memories / seconds, 1)}


def _report(summary: Mapping[str, Any], *, as_json: bool, aside: bool = False) -> None:
    """What was done, on stdout or aside on stderr."""
    from butlers.cli import memory_views

    memory_views.show(summary, memory_views.counted, as_json=as_json, aside=aside)
