"""The `butlers import` command."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from butlers.cli.memory_client import Tenant, open_memory
from butlers.cli.output import AsJson, Folder, command, show
from butlers.cli.progress import progress
from butlers.cli.transfer_speed import transfer_speed

if TYPE_CHECKING:
    from butlers.modules.memory.operations.foreign_import import ForeignImportReport

_MEMORY_KINDS = ("episode", "fact", "rule")
_KINDS = (*_MEMORY_KINDS, "entity", "link")


File = Annotated[Path, typer.Argument(metavar="FILE", help="The other system's file, zip archive or folder.")]
Format = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="FORMAT",
        help="mcp-memory, claude-code, claude-code-sessions, mem0, claude, chatgpt, basic-memory, "
        "mcp-memory-service, letta, graphiti or lines. auto recognises all but lines.",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would become what and what is left out, and change nothing.")
]
Partial = Annotated[bool, typer.Option("--partial", help="Import the rest of a file of which a part can't be read.")]
Scope = Annotated[str, typer.Option(help="The scope of facts and rules: global, or a butler's name.")]
User = Annotated[str | None, typer.Option(help="Import only facts about this user, for example a user_id of mem0.")]
Replace = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Retract what this earlier import brought and the file no longer has."),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Confirm everything now, instead of when it was last changed.")]
Consolidate = Annotated[
    bool, typer.Option("--consolidate", help="Let the runtime's model turn the episodes into facts and rules.")
]
Personas = Annotated[
    bool, typer.Option("--personas", help="Import what an agent of the other system is told to be, as rules.")
]


@command
async def import_(
    folder: Folder,
    file: File,
    format_: Format = "auto",
    dry_run: DryRun = False,
    partial: Partial = False,
    scope: Scope = "global",
    user: User = None,
    replace: Replace = None,
    fresh: Fresh = False,
    consolidate: Consolidate = False,
    personas: Personas = False,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Import memories of another system. The same file again changes nothing.

    An error imports nothing. `butlers memory retract-from DIR --import ID` takes an import back.

    Example: `butlers import . ~/.claude --from claude-code --dry-run`
    """
    from butlers.cli import import_views
    from butlers.memory_formats import Source, find_format
    from butlers.modules.memory.domain.model import validate_scope
    from butlers.modules.memory.operations.foreign_import import import_foreign, preview_import
    from butlers.modules.memory.operations.foreign_records import ImportOptions
    from butlers.modules.memory.tools.arguments import parse_id

    replaces = parse_id("--replace", replace) if replace else None
    with Source(file) as source:
        found = find_format(format_, source)
        started = time.monotonic()
        async with open_memory(folder, tenant) as (memory, caller):
            options = ImportOptions(
                format=found.name,
                file=source.name,
                butler=memory.butler,
                now=datetime.now(UTC),
                scope=validate_scope(scope),
                user=user,
                is_fresh=fresh,
                consolidates=consolidate,
                has_personas=personas,
                secrets=memory.config.secrets,
            )
            given = (memory, caller, source, found, options, replaces)
            if dry_run:
                report = await preview_import(*given)
            else:
                with progress("importing") as update:
                    report = await import_foreign(*given, is_partial=partial, progress=update)
    answer = {"tenant": caller.tenant, "dry_run": dry_run, **_answer(report)}
    speed = {} if dry_run else transfer_speed(sum(answer["new"][kind] for kind in _MEMORY_KINDS), started)
    show(answer | speed, import_views.foreign_import, as_json=as_json)


def _answer(report: "ForeignImportReport") -> dict[str, Any]:
    has_new = any(report.new.values())
    return {
        "format": report.format,
        "new": {kind: report.new[kind] for kind in _KINDS},
        "known": {kind: report.known[kind] for kind in _KINDS},
        "changed": report.changed,
        "retracted": report.retracted,
        "left_out": dict(report.left_out),
        "redacted": dict(report.redacted),
        "problems": [{"place": each.place, "problem": each.reason} for each in report.problems],
        "problem_count": report.problem_count,
        "import_id": str(report.import_id) if report.import_id and has_new else None,
    }


COMMANDS = (import_,)
