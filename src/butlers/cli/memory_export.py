"""The `butlers memory export`, `import` and `imports` commands."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO, TextIO

import typer

from butlers.cli.memory_client import Tenant, open_memory
from butlers.cli.output import HERE, AsJson, Folder, command, show
from butlers.cli.progress import progress
from butlers.cli.transfer_speed import transfer_speed
from butlers.errors import InvalidInput

STREAM = Path("-")
OWN_FORMAT = "butlers"


@command
async def export(
    folder: Folder,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file to write. Default: `-`, which is stdout.")
    ] = STREAM,
    vectors: Annotated[
        bool, typer.Option("--vectors", help="Include vectors, so that the import needs no model.")
    ] = False,
    format_: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="butlers: everything, to import again. mcp-memory: what is live, for the MCP memory server. "
            "markdown: what is live, to read and to compare.",
        ),
    ] = OWN_FORMAT,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Export a snapshot of one tenant, as JSON Lines or as Markdown.

    Example: `butlers memory export . memories.jsonl`
    """
    from butlers.cli import memory_views
    from butlers.modules.memory.operations import export_import, readable_export

    _check_export_format(format_, (OWN_FORMAT, *readable_export.FORMATS), vectors=vectors)
    started = time.monotonic()
    async with open_memory(folder, tenant) as (memory, caller):
        with _open_output(file) as out, progress("exporting") as update:
            write = _writer(file, out)
            if format_ == OWN_FORMAT:
                header = await export_import.export_tenant(memory, caller, write, vectors=vectors, progress=update)
                counts, memories = {str(kind): number for kind, number in header.counts.items()}, header.memories
            else:
                counts = dict(await readable_export.export_readable(memory, caller, format_, write, progress=update))
                memories = sum(counts.values()) - counts.get("entity", 0)
    summary = {"tenant": caller.tenant, "exported": counts} | transfer_speed(memories, started)
    # An export to stdout writes nothing else there.
    show(summary, memory_views.transfer, as_json=as_json, to_stderr=file == STREAM)


@command
async def import_(
    folder: Folder,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An exported file; `-` is stdin.")],
    merge: Annotated[
        bool, typer.Option("--merge", help="Import into a tenant that is not empty; skip ids it already has.")
    ] = False,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Import an exported file. All of it is checked first, and an error imports nothing.

    Example: `butlers memory import . memories.jsonl --tenant acme`
    """
    from butlers.cli import memory_views
    from butlers.modules.memory.operations import export_import

    with open_input(file) as source:
        started = time.monotonic()
        async with open_memory(folder, tenant) as (memory, caller):
            with progress("importing") as update:
                report = await export_import.import_file(memory, caller, source, merge=merge, progress=update)
    summary = {"tenant": caller.tenant, "imported": report.imported, "skipped": report.skipped}
    show(summary | transfer_speed(report.memories, started), memory_views.transfer, as_json=as_json)


@command
async def imports(folder: Folder = HERE, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """List the newest imports, each with the id that `butlers memory retract-from --import` takes.

    Example: `butlers memory imports .`
    """
    from butlers.cli import import_views
    from butlers.modules.memory.operations import foreign_import

    async with open_memory(folder, tenant) as (memory, caller):
        found = await foreign_import.list_imports(memory, caller)
    show(found, import_views.imports, as_json=as_json)


COMMANDS = (export, import_, imports)


def _check_export_format(name: str, names: tuple[str, ...], *, vectors: bool) -> None:
    if name not in names:
        raise InvalidInput(f"there is no format {name[:50]}", hint=f"Choose one of {', '.join(names)}.")
    if vectors and name != OWN_FORMAT:
        raise InvalidInput("only the format butlers holds vectors", hint="Leave --vectors out.")


@contextmanager
def _open_output(file: Path) -> Iterator[TextIO]:
    """Open the file for writing. It replaces an older one when all is written, and only its owner can read it."""
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
    temporary = Path(name)
    try:
        with os.fdopen(number, "w", encoding="utf-8") as out:
            yield out
            os.fsync(out.fileno())
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def _writer(file: Path, out: TextIO) -> Callable[[str], None]:
    """Return a function that writes and flushes, and whose errors can't be taken for those of the database."""

    def write(text: str) -> None:
        try:
            out.write(text)
            out.flush()
        except BrokenPipeError:
            # The reader is gone, as with `head`. Without a sink the flush at exit would fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
            raise typer.Exit(1) from None
        except OSError as error:
            raise _unwritable(file, error) from None

    return write


def _unwritable(file: Path, error: OSError) -> InvalidInput:
    return InvalidInput(f"{file} can't be written: {error.strerror}", hint="Choose another file.")


@contextmanager
def open_input(file: Path) -> Iterator[BinaryIO]:
    """Open a file that can be read twice: once to check it and once to import it."""
    if file == STREAM:
        with tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
            copy.seek(0)
            yield copy
        return
    try:
        source = file.open("rb")
    except OSError as error:
        raise InvalidInput(f"{file} can't be read: {error.strerror}", hint="Choose an exported file.") from None
    with source:
        yield source
