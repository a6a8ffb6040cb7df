"""`butlers memory entity`: people, organizations, places and things, told apart by hand."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from butlers.cli.memory_client import Key, Tenant, call, opened, several
from butlers.cli.output import HERE, AsJson, Folder, ask, command

if TYPE_CHECKING:
    from uuid import UUID

app = typer.Typer(help="Entities: whom and what facts are about.", no_args_is_help=True)

_LISTED = 100

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name.")]
EntityId = Annotated[str, typer.Argument(metavar="ENTITY_ID", help="The entity's id, as resolve or list shows it.")]
Kind = Annotated[str, typer.Argument(metavar="TYPE", help="person, organization, place or other.")]
OnlyKind = Annotated[
    str | None, typer.Option("--entity-type", help="Only these: person, organization, place or other.")
]
Aliases = Annotated[list[str] | None, typer.Option(help="Other names: a,b or the option repeated.")]
Metadata = Annotated[str | None, typer.Option(help="A JSON object to keep with it.")]


@app.command()
@command
async def create(
    folder: Folder,
    canonical_name: Name,
    entity_type: Kind,
    aliases: Aliases = None,
    metadata: Metadata = None,
    idempotency_key: Key = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Make somebody or something known.

    Example: `butlers memory entity create . "Chloe Martin" person --aliases Chloe,Coco`
    """
    await call(
        "entity_create",
        folder,
        tenant,
        as_json,
        canonical_name=canonical_name,
        entity_type=entity_type,
        aliases=several(aliases),
        metadata=metadata,
        idempotency_key=idempotency_key,
    )


@app.command()
@command
async def get(folder: Folder, entity_id: EntityId, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Show one entity whole, also one that was merged away.

    Example: `butlers memory entity get . 3f2a8c1e-…`
    """
    await call("entity_get", folder, tenant, as_json, entity_id=entity_id)


@app.command()
@command
async def update(
    folder: Folder,
    entity_id: EntityId,
    canonical_name: Annotated[str | None, typer.Option(help="Its new name.")] = None,
    aliases: Annotated[
        list[str] | None, typer.Option(help="All its other names, in place of the old ones; '[]' for none.")
    ] = None,
    metadata: Annotated[str | None, typer.Option(help="A JSON object that adds to what it has.")] = None,
    idempotency_key: Key = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Correct an entity's name, aliases or metadata.

    Example: `butlers memory entity update . 3f2a8c1e-… --canonical-name "Chloe Martin-Smith"`
    """
    await call(
        "entity_update",
        folder,
        tenant,
        as_json,
        entity_id=entity_id,
        canonical_name=canonical_name,
        aliases=several(aliases),
        metadata=metadata,
        idempotency_key=idempotency_key,
    )


@app.command()
@command
async def resolve(
    folder: Folder,
    name: Name,
    entity_type: OnlyKind = None,
    topic: Annotated[str | None, typer.Option(help="What it is about; tells those of one name apart.")] = None,
    mentioned_with: Annotated[
        list[str] | None, typer.Option(help="Names and words beside it: a,b or the option repeated.")
    ] = None,
    domain_scores: Annotated[str | None, typer.Option(help="A JSON object: points to add, by entity id.")] = None,
    enable_fuzzy: Annotated[bool, typer.Option("--fuzzy", help="Names spelled alike, too.")] = False,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Find whom a name means, the likeliest first.

    Example: `butlers memory entity resolve . Chloe --topic tennis`
    """
    said = {"topic": topic, "mentioned_with": several(mentioned_with), "domain_scores": domain_scores}
    await call(
        "entity_resolve",
        folder,
        tenant,
        as_json,
        name=name,
        entity_type=entity_type,
        context_hints={word: value for word, value in said.items() if value is not None} or None,
        enable_fuzzy=enable_fuzzy,
    )


@app.command()
@command
async def merge(
    folder: Folder,
    source_entity_id: Annotated[str, typer.Argument(metavar="SOURCE_ID", help="The entity that goes.")],
    target_entity_id: Annotated[
        str, typer.Argument(metavar="TARGET_ID", help="The one that stays and gets all its facts.")
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Without showing the two and asking first.")] = False,
    idempotency_key: Key = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Make two entities one. It can't be undone: the two are shown side by side first, and you are asked.

    Example: `butlers memory entity merge . 3f2a8c1e-… 7b1d04aa-…`
    """
    if not yes:
        await _ask(folder, tenant, source_entity_id, target_entity_id)
    await call(
        "entity_merge",
        folder,
        tenant,
        as_json,
        source_entity_id=source_entity_id,
        target_entity_id=target_entity_id,
        idempotency_key=idempotency_key,
    )


@app.command(name="list")
@command
async def list_(
    folder: Folder = HERE,
    entity_type: OnlyKind = None,
    merged: Annotated[bool, typer.Option("--merged", help="Those that were merged away instead.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many at the most.")] = _LISTED,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """List entities by name, with the number of facts known about each.

    Example: `butlers memory entity list . --entity-type person`
    """
    from butlers.cli import entity_views, memory_views
    from butlers.modules.memory.domain.entities import EntityType
    from butlers.modules.memory.operations import entities
    from butlers.modules.memory.tools.answers import to_json

    kind = EntityType.named(entity_type.strip().lower()) if entity_type else None
    async with opened(folder, tenant) as reached:
        found = await entities.list_entities(reached.memory, reached.caller, kind, merged=merged, limit=limit)
    memory_views.show(to_json(found), entity_views.listed, as_json=as_json)


async def _ask(folder: Path, tenant: str | None, source_id: str, target_id: str) -> None:
    """Show what a merge would do, and go on only when somebody says yes."""
    from butlers.cli import entity_views, memory_views
    from butlers.modules.memory.operations import entities
    from butlers.modules.memory.tools.answers import to_json

    source, target = _id("source_entity_id", source_id), _id("target_entity_id", target_id)
    async with opened(folder, tenant) as reached:
        would = await entities.preview_merge(reached.memory, reached.caller, source, target)
    # On stderr, so that stdout has the answer alone.
    memory_views.show(to_json(would), entity_views.side_by_side, as_json=False, aside=True)
    ask("Merge the first into the second?", "nothing was merged")


def _id(name: str, text: str) -> "UUID":
    from butlers.modules.memory.tools.arguments import parse_entity_id

    return parse_entity_id(name, text)
