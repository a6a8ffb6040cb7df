"""`butlers memory retract-from` and `erase`: what came from a bad source, and what is to be gone for good."""

import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from butlers.cli.memory_client import Tenant, accepted, opened
from butlers.cli.output import HERE, AsJson, Folder, ask, command
from butlers.cli.progress import progress
from butlers.errors import InvalidInput

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@command
async def retract_from(
    folder: Folder = HERE,
    session: Annotated[str | None, typer.Option(help="Everything this session stored or led to.")] = None,
    episode: Annotated[str | None, typer.Option(help="Everything this episode led to.")] = None,
    also_elsewhere: Annotated[
        bool, typer.Option("--also-elsewhere", help="What other episodes say as well, too.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list it.")] = False,
    undo: Annotated[str | None, typer.Option(help="A retraction's id: bring back what it took.")] = None,
    yes: Yes = False,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """List everything that came from a session or an episode, and take it back together once you have said yes.

    Example: `butlers memory retract-from . --session 3f2a8c1e-…`
    """
    from butlers.cli import memory_views
    from butlers.modules.memory.tools.retraction import memory_retract_from as tool

    if undo and dry_run:
        raise InvalidInput("--undo can't be tried without doing it", hint="Leave --dry-run out.")
    said = {"session_id": session, "episode_id": episode, "undo": undo, "also_elsewhere": also_elsewhere}
    words = accepted(tool, {name: value for name, value in said.items() if value is not None})
    async with opened(folder, tenant) as reached:

        async def call(**more: Any) -> Any:
            return await tool.function(reached.memory, reached.caller, **words, **more)

        answer = await call(dry_run=True)
        if not undo and not dry_run and answer["found"]:
            if not yes:
                memory_views.show(answer, memory_views.retracted, as_json=False, aside=as_json)
                _ask("Take all of this back?", "nothing was taken back")
            answer = await call(dry_run=False)
    memory_views.show(answer, memory_views.retracted, as_json=as_json)


@command
async def erase(
    folder: Folder,
    what: Annotated[str, typer.Argument(metavar="WHAT", help="episode, fact, rule, entity or tenant.")],
    memory_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="Its id; a tenant has none.")] = None,
    yes: Yes = False,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Delete a memory, an entity with all that is known of it, or everything of a tenant, for good.

    Example: `butlers memory erase . entity 3f2a8c1e-…`
    """
    from butlers.cli import memory_views
    from butlers.modules.memory.domain.model import MemoryType
    from butlers.modules.memory.operations import erasure
    from butlers.modules.memory.tools.arguments import parse_entity_id, parse_memory_id

    if what not in {*MemoryType, "entity", "tenant"} or (memory_id is None) != (what == "tenant"):
        raise InvalidInput("what is to be erased is not clear", hint="Say `fact ID`, `entity ID` or `tenant`.")
    async with opened(folder, tenant) as reached:
        memory, caller = reached.memory, reached.caller
        if not yes:
            whom = f"everything of the tenant {caller.tenant}" if what == "tenant" else f"{what} {memory_id}"
            _ask(f"Delete {whom} for good? Nothing can bring it back.", "nothing was deleted")
        if memory_id is None:
            with progress("erasing") as told:
                done = await erasure.erase_tenant(memory, caller, tell=told)
        elif what == "entity":
            done = await erasure.erase_entity(memory, caller, parse_entity_id("ID", memory_id))
        else:
            done = await erasure.erase_memory(memory, caller, MemoryType(what), parse_memory_id("ID", memory_id))
    memory_views.show(done, memory_views.erased, as_json=as_json)


def _ask(question: str, refused: str) -> None:
    if not sys.stdin.isatty():
        raise InvalidInput("nobody is there to be asked", hint="Say --yes, or --dry-run to see what it would do.")
    ask(question, refused)


COMMANDS: Mapping[str, Callable[..., None]] = {"retract-from": retract_from, "erase": erase}
