"""The `butlers memory hygiene` command."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from butlers.cli.memory_client import Tenant, open_memory, split_values
from butlers.cli.memory_export import open_input
from butlers.cli.output import AsJson, Folder, command, show
from butlers.cli.progress import progress
from butlers.errors import InvalidInput

if TYPE_CHECKING:
    from butlers.modules.memory.operations.batching import Progress
    from butlers.modules.memory.operations.hygiene import HygieneReport
    from butlers.modules.memory.runtime import Memory

_OWN_FORMAT = b'{"format":"butlers-memory"'


@command
async def hygiene(
    folder: Folder,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="A file to inspect instead, of any format that is imported."),
    ] = None,
    format_: Annotated[
        str, typer.Option("--from", metavar="FORMAT", help="The format of FILE, as `butlers import` names it.")
    ] = "auto",
    fix: Annotated[bool, typer.Option("--fix", help="Forget what the findings name. It can be undone.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="The kinds to fix: a,b or the option repeated. Default: duplicates,twins,echoes."),
    ] = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Inspect a memory: duplicates, twins, contradictions, echoes, secrets, unused facts, unjudged rules, namesakes.

    Example: `butlers memory hygiene . --fix --only duplicates,twins`
    """
    from butlers.cli import hygiene_views
    from butlers.modules.memory.operations import hygiene as operation

    if file is not None and fix:
        raise InvalidInput("a file can't be fixed", hint="Import it first, then fix the memory.")
    async with open_memory(folder, tenant) as (memory, caller):
        with progress("inspecting") as update:
            if file is not None:
                answer = (await _inspect(memory, file, format_, update)).answer()
            elif fix:
                answer = await operation.fix(memory, caller, split_values(only) or (), progress=update)
            else:
                answer = (await operation.inspect(memory, caller, progress=update)).answer()
    show(answer, hygiene_views.report, as_json=as_json)


async def _inspect(memory: "Memory", file: Path, format_: str, update: "Progress") -> "HygieneReport":
    """Inspect an export of a butler, or a file of another system; nothing is stored."""
    from butlers.memory_formats import AUTO, read_records
    from butlers.modules.memory.operations.hygiene_file import inspect_file, inspect_foreign

    if format_ == AUTO and not file.is_dir():  # noqa: ASYNC240 — nothing else runs in this process
        with open_input(file) as source:
            if source.read(len(_OWN_FORMAT)).replace(b" ", b"").startswith(_OWN_FORMAT[:-1]):
                source.seek(0)
                return await inspect_file(memory, source, progress=update)
    return await inspect_foreign(memory, read_records(file, format_), progress=update)


COMMANDS = (hygiene,)
