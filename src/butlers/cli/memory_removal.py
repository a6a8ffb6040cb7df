"""The `butlers memory retract-from`, `revert-inversion` and `erase` commands."""

import sys
from typing import Annotated, Any

import typer

from butlers.cli.memory_client import Tenant, open_memory, validate_arguments
from butlers.cli.output import HERE, AsJson, Folder, ask, command, show
from butlers.cli.progress import progress
from butlers.errors import InvalidInput

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@command
async def retract_from(
    folder: Folder = HERE,
    session: Annotated[
        str | None, typer.Option(help="Retract all that this session stored, and all derived from it.")
    ] = None,
    episode: Annotated[str | None, typer.Option(help="Retract this episode, and all derived from it.")] = None,
    import_id: Annotated[
        str | None, typer.Option("--import", metavar="ID", help="Retract all that this import brought.")
    ] = None,
    include_corroborated: Annotated[
        bool, typer.Option("--include-corroborated", help="Also retract memories that other episodes corroborate.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the memories, and change nothing.")] = False,
    undo: Annotated[str | None, typer.Option(help="The id of a retraction to undo.")] = None,
    yes: Yes = False,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Retract all memories that came from a session, an episode or an import. The command lists them and asks first.

    Example: `butlers memory retract-from . --session 3f2a8c1e-…`
    """
    from butlers.cli import memory_views
    from butlers.modules.memory.tools.retraction import memory_retract_from as tool

    if undo and dry_run:
        raise InvalidInput("--undo has no dry run", hint="Leave --dry-run out.")
    given: dict[str, Any] = {"session_id": session, "episode_id": episode, "import_id": import_id}
    given |= {"undo": undo, "include_corroborated": include_corroborated}
    arguments = validate_arguments(tool, given)
    async with open_memory(folder, tenant) as (memory, caller):

        async def call(*, dry_run: bool) -> Any:
            return await tool.function(memory, caller, **arguments, dry_run=dry_run)

        answer = await call(dry_run=True)
        if not undo and not dry_run and answer["found"]:
            if not yes:
                show(answer, memory_views.retraction, as_json=False, to_stderr=as_json)
                ask_or_refuse("Retract all of these?", "nothing was retracted")
            answer = await call(dry_run=False)
    show(answer, memory_views.retraction, as_json=as_json)


@command
async def revert_inversion(
    folder: Folder,
    rule_id: Annotated[str, typer.Argument(metavar="ID", help="The id of the rule that became a warning.")],
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Turn a warning back into the rule it was. Its marks stay, and one more harm makes it a warning again.

    Example: `butlers memory revert-inversion . 3f2a8c1e-…`
    """
    from butlers.cli import memory_views
    from butlers.modules.memory.operations import rule_inversion
    from butlers.modules.memory.operations.idempotency import Request
    from butlers.modules.memory.tools.arguments import parse_id

    parsed_id = parse_id("ID", rule_id)
    async with open_memory(folder, tenant) as (memory, caller):
        request = Request("revert_inversion", {"rule_id": str(parsed_id)})
        result = await rule_inversion.revert_inversion(memory, caller, parsed_id, request)
    show(result, memory_views.record, as_json=as_json)


@command
async def erase(
    folder: Folder,
    what: Annotated[str, typer.Argument(metavar="WHAT", help="episode, fact, rule, entity or tenant.")],
    memory_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="Its id; none for a tenant.")] = None,
    yes: Yes = False,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Delete a memory, an entity with all its facts, or all data of a tenant. It can't be undone.

    Example: `butlers memory erase . entity 3f2a8c1e-…`
    """
    from butlers.cli import memory_views
    from butlers.modules.memory.domain.model import MemoryType
    from butlers.modules.memory.operations import erasure
    from butlers.modules.memory.tools.arguments import parse_entity_id, parse_id

    what = what.strip().lower()
    if what not in {*MemoryType, "entity", "tenant"} or (memory_id is None) != (what == "tenant"):
        raise InvalidInput("erase takes a type and an id, or tenant", hint="Pass `fact ID`, `entity ID` or `tenant`.")
    async with open_memory(folder, tenant) as (memory, caller):
        if not yes:
            target = f"all data of the tenant {caller.tenant}" if what == "tenant" else f"{what} {memory_id}"
            ask_or_refuse(f"Delete {target}? It can't be undone.", "nothing was deleted")
        if memory_id is None:
            with progress("erasing") as update:
                result = await erasure.erase_tenant(memory, caller, progress=update)
        elif what == "entity":
            result = await erasure.erase_entity(memory, caller, parse_entity_id("ID", memory_id))
        else:
            result = await erasure.erase_memory(memory, caller, MemoryType(what), parse_id("ID", memory_id))
    show(result, memory_views.erasure, as_json=as_json)


def ask_or_refuse(question: str, refusal: str) -> None:
    """Ask in the terminal; raises `InvalidInput` where there is none."""
    if not sys.stdin.isatty():
        raise InvalidInput("stdin is not a terminal, so the question can't be answered", hint="Pass --yes.")
    ask(question, refusal)


COMMANDS = (retract_from, revert_inversion, erase)
