"""The `butlers memory hygiene` command."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType

from butlers.cli.memory_client import Tenant, open_memory, split_values
from butlers.cli.memory_export import open_input
from butlers.cli.output import AsJson, Folder, command, show
from butlers.cli.progress import progress
from butlers.cli.tables import TextTable, visible
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
    show(answer, report, as_json=as_json)


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


def report(answer: dict[str, Any]) -> RenderableType:
    """Render the score, the findings with an example each, and what was fixed."""
    live = ", ".join(f"{number:,} {name}" for name, number in answer["live"].items())
    rows = [
        {
            "found": each["count"],
            "finding": each["kind"].replace("_", " "),
            "example": visible(_example(each["examples"][0])) if each["examples"] else "",
            "remedy": each["remedy"] if each["count"] else "",
        }
        for each in answer["findings"]
    ]
    parts: list[RenderableType] = [
        visible(f"{answer['score']} of 100 ({answer['formula']}) for {live}."),
        TextTable("found | finding / example / remedy", rows),
        *(visible(f"Note: {each}.") for each in answer["notes"]),
    ]
    if "request_id" in answer:
        forgotten = ", ".join(f"{number:,} {name}" for name, number in answer["forgotten"].items()) or "nothing"
        left = f" {answer['left']:,} are left for the next fix." if answer["left"] else ""
        parts.append(visible(f"Forgot {forgotten}.{left} The request {answer['request_id']} undoes it."))
    return Group(*parts)


def _example(example: dict[str, Any]) -> str:
    if "names" in example:
        return " and ".join(example["names"])
    if "kinds" in example:
        return f"{example['memory_type']} {example['id']}: {', '.join(example['kinds'])}"
    text = _words(example)
    return f"{text} beside {_words(example['beside'])}" if "beside" in example else text


def _words(example: dict[str, Any]) -> str:
    key = " · ".join(example[name] for name in ("subject", "predicate") if name in example)
    content = example["content"][:80]
    return f"{key}: {content}" if key else str(content)


COMMANDS = (hygiene,)
