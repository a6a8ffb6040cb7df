"""The `butlers memory entity` commands."""

from pathlib import Path
from typing import Annotated

import typer

from butlers.cli.memory_client import Key, Tenant, call_tool, open_memory, split_values, tool_command
from butlers.cli.output import HERE, AsJson, Folder, ask, command, show

app = typer.Typer(help="Manage entities: the people, places and things that facts are about.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The entity's name.")]
EntityId = Annotated[str, typer.Argument(metavar="ENTITY_ID", help="The entity's id, from resolve or list.")]
Kind = Annotated[str, typer.Argument(metavar="TYPE", help="person, organization, place or other.")]
OnlyKind = Annotated[
    str | None, typer.Option("--entity-type", help="Only one type: person, organization, place or other.")
]
Aliases = Annotated[list[str] | None, typer.Option(help="Other names: a,b or the option repeated.")]
Metadata = Annotated[str | None, typer.Option(help="A JSON object to store with it.")]


@tool_command("entity_create", app)
def create(
    folder: Folder,
    canonical_name: Name,
    entity_type: Kind,
    aliases: Aliases = None,
    metadata: Metadata = None,
    idempotency_key: Key = None,
) -> None:
    """Create an entity.

    Example: `butlers memory entity create . "Chloe Martin" person --aliases Chloe,Coco`
    """


@tool_command("entity_get", app)
def get(folder: Folder, entity_id: EntityId) -> None:
    """Show one entity with all its fields, also a merged one.

    Example: `butlers memory entity get . 3f2a8c1e-…`
    """


@tool_command("entity_update", app)
def update(
    folder: Folder,
    entity_id: EntityId,
    canonical_name: Annotated[str | None, typer.Option(help="The new name.")] = None,
    aliases: Annotated[
        list[str] | None, typer.Option(help="All other names, instead of the old ones; '[]' for none.")
    ] = None,
    metadata: Annotated[str | None, typer.Option(help="A JSON object to add to its metadata.")] = None,
    idempotency_key: Key = None,
) -> None:
    """Change an entity's name, aliases or metadata.

    Example: `butlers memory entity update . 3f2a8c1e-… --canonical-name "Chloe Martin-Smith"`
    """


@app.command()
@command
async def resolve(
    folder: Folder,
    name: Name,
    entity_type: OnlyKind = None,
    topic: Annotated[str | None, typer.Option(help="The topic, to rank entities with the same name.")] = None,
    mentioned_with: Annotated[
        list[str] | None, typer.Option(help="Names and words near it: a,b or the option repeated.")
    ] = None,
    domain_scores: Annotated[str | None, typer.Option(help="A JSON object: points to add, by entity id.")] = None,
    enable_fuzzy: Annotated[bool, typer.Option("--fuzzy", help="Also find similar spellings.")] = False,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Find the entities that a name may mean, the most likely first.

    Example: `butlers memory entity resolve . Chloe --topic tennis`
    """
    hints = {"topic": topic, "mentioned_with": split_values(mentioned_with), "domain_scores": domain_scores}
    given = {hint: value for hint, value in hints.items() if value is not None} or None
    arguments = {"name": name, "entity_type": entity_type, "context_hints": given, "enable_fuzzy": enable_fuzzy}
    await call_tool("entity_resolve", folder, tenant, as_json, arguments)


@app.command()
@command
async def merge(
    folder: Folder,
    source_entity_id: Annotated[str, typer.Argument(metavar="SOURCE_ID", help="The entity to merge and remove.")],
    target_entity_id: Annotated[
        str, typer.Argument(metavar="TARGET_ID", help="The entity that stays and gets all facts.")
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not show the two entities and ask first.")] = False,
    idempotency_key: Key = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Merge two entities. The command shows both and asks first, because a merge can't be undone.

    Example: `butlers memory entity merge . 3f2a8c1e-… 7b1d04aa-…`
    """
    if not yes:
        await _preview_and_ask(folder, tenant, source_entity_id, target_entity_id)
    ids = {"source_entity_id": source_entity_id, "target_entity_id": target_entity_id}
    await call_tool("entity_merge", folder, tenant, as_json, {**ids, "idempotency_key": idempotency_key})


@app.command(name="list")
@command
async def list_(
    folder: Folder = HERE,
    entity_type: OnlyKind = None,
    merged: Annotated[bool, typer.Option("--merged", help="List merged entities instead.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The maximum number of entities.")] = 100,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """List entities by name, with the number of their facts.

    Example: `butlers memory entity list . --entity-type person`
    """
    from butlers.cli import entity_views
    from butlers.modules.memory.domain.entities import EntityType
    from butlers.modules.memory.operations import entities
    from butlers.modules.memory.tools.answers import to_json

    kind = EntityType.named(entity_type.strip().lower()) if entity_type else None
    async with open_memory(folder, tenant) as (memory, caller):
        found = await entities.list_entities(memory, caller, kind, merged=merged, limit=limit + 1)
    show(to_json(found[:limit]), entity_views.entity_list, as_json=as_json)
    if len(found) > limit:
        typer.echo(f"These are the first {limit}. --limit lists more.", err=True)


async def _preview_and_ask(folder: Path, tenant: str | None, source_id: str, target_id: str) -> None:
    """Show the effect of a merge on stderr. Raises a conflict unless the answer is yes."""
    from butlers.cli import entity_views
    from butlers.modules.memory.operations import entities
    from butlers.modules.memory.tools.answers import to_json
    from butlers.modules.memory.tools.arguments import parse_entity_id

    source = parse_entity_id("source_entity_id", source_id)
    target = parse_entity_id("target_entity_id", target_id)
    async with open_memory(folder, tenant) as (memory, caller):
        preview = await entities.preview_merge(memory, caller, source, target)
    show(to_json(preview), entity_views.merge_preview, as_json=False, to_stderr=True)
    ask("Merge the first into the second?", "nothing was merged")
