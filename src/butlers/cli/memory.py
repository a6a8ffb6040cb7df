"""`butlers memory`: what an agent does with a memory, done by hand."""

from pathlib import Path
from typing import Annotated

import typer

from butlers.cli import entities, memory_export, memory_jobs, memory_removal
from butlers.cli.memory_client import Key, Tenant, call, several
from butlers.cli.output import HERE, AsJson, Folder, command

app = typer.Typer(help="Store, find and look after memories; export and import them.", no_args_is_help=True)

Content = Annotated[str, typer.Argument(metavar="CONTENT", help="What is to be remembered.")]
Type = Annotated[str, typer.Argument(metavar="TYPE", help="episode, fact or rule.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The memory's id, as a search shows it.")]
RuleId = Annotated[str, typer.Argument(metavar="RULE_ID", help="The rule's id, as a search shows it.")]
Importance = Annotated[float | None, typer.Option(help="0 trivial, 5 ordinary (the default), 10 vital.")]
Permanence = Annotated[
    str | None,
    typer.Option(help="How long it stays true unconfirmed: permanent, stable, standard, volatile, ephemeral."),
]
StoreScope = Annotated[str | None, typer.Option(help="global (the default), or a butler's name.")]
Scope = Annotated[
    str | None, typer.Option(help="Looks in global and this scope (default: this butler's); * looks everywhere.")
]
Tags = Annotated[list[str] | None, typer.Option(help="Words to keep with it: a,b or the option repeated.")]
Limit = Annotated[int | None, typer.Option(help="How many at the most, up to 100.")]
Butler = Annotated[str | None, typer.Option(help="The butler's name; another than this butler's is refused.")]


@app.command()
@command
async def store_fact(
    folder: Folder,
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="Who or what it is about.")],
    predicate: Annotated[str, typer.Argument(metavar="PREDICATE", help="What about it: favorite_color, works_at.")],
    content: Content,
    importance: Importance = None,
    permanence: Permanence = None,
    scope: StoreScope = None,
    tags: Tags = None,
    entity_id: Annotated[str | None, typer.Option(help="The entity it is about.")] = None,
    idempotency_key: Key = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Store a fact; the same subject and predicate again replaces what was known.

    Example: `butlers memory store-fact . user favorite_color "blue, like the sea" --importance 7`
    """
    await call(
        "memory_store_fact",
        folder,
        tenant,
        as_json,
        subject=subject,
        predicate=predicate,
        content=content,
        importance=importance,
        permanence=permanence,
        scope=scope,
        tags=several(tags),
        entity_id=entity_id,
        idempotency_key=idempotency_key,
    )


@app.command()
@command
async def store_rule(
    folder: Folder,
    content: Content,
    scope: StoreScope = None,
    tags: Tags = None,
    permanence: Permanence = None,
    idempotency_key: Key = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Store a way of working worth repeating.

    Example: `butlers memory store-rule . "Ask before you send an email" --tags email`
    """
    await call(
        "memory_store_rule",
        folder,
        tenant,
        as_json,
        content=content,
        scope=scope,
        tags=several(tags),
        permanence=permanence,
        idempotency_key=idempotency_key,
    )


@app.command()
@command
async def store_episode(
    folder: Folder,
    content: Content,
    butler: Butler = None,
    session_id: Annotated[str | None, typer.Option(help="The session it happened in, a UUID.")] = None,
    importance: Importance = None,
    idempotency_key: Key = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Store what happened; it is distilled into facts and rules later, then expires.

    Example: `butlers memory store-episode . "We planned the trip to Lisbon"`
    """
    await call(
        "memory_store_episode",
        folder,
        tenant,
        as_json,
        content=content,
        butler=butler,
        session_id=session_id,
        importance=importance,
        idempotency_key=idempotency_key,
    )


@app.command()
@command
async def search(
    folder: Folder,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Words or a question.")],
    types: Annotated[
        list[str] | None, typer.Option(help="episode, fact, rule: a,b or the option repeated; all by default.")
    ] = None,
    scope: Scope = None,
    mode: Annotated[str | None, typer.Option(help="semantic, keyword, hybrid or blended.")] = None,
    limit: Limit = None,
    min_confidence: Annotated[float | None, typer.Option(help="Leave out what is believed less, 0 to 1.")] = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Search episodes, facts and rules; nothing is noted as used.

    Example: `butlers memory search . "what does she like to eat" --types fact --limit 5`
    """
    await call(
        "memory_search",
        folder,
        tenant,
        as_json,
        query=query,
        types=several(types),
        scope=scope,
        mode=mode,
        limit=limit,
        min_confidence=min_confidence,
    )


@app.command()
@command
async def recall(
    folder: Folder,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="What is about to be dealt with.")],
    scope: Scope = None,
    limit: Limit = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Recall the facts and rules that matter for a topic, and note that they were used.

    Example: `butlers memory recall . "dinner with Ada" --limit 3`
    """
    await call("memory_recall", folder, tenant, as_json, topic=topic, scope=scope, limit=limit)


@app.command()
@command
async def context(
    folder: Folder,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What a session is started with.")],
    butler: Butler = None,
    token_budget: Annotated[int | None, typer.Option(help="How many tokens it may take.")] = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Print the block of memories a session with that prompt starts with.

    Example: `butlers memory context . "Plan dinner with Ada" --token-budget 500`
    """
    await call(
        "memory_context", folder, tenant, as_json, trigger_prompt=prompt, butler=butler, token_budget=token_budget
    )


@app.command()
@command
async def get(folder: Folder, type_: Type, memory_id: Id, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Show one memory whole, whatever its state.

    Example: `butlers memory get . fact 3f2a8c1e-…`
    """
    await call("memory_get", folder, tenant, as_json, memory_type=type_, memory_id=memory_id)


@app.command()
@command
async def confirm(
    folder: Folder,
    type_: Type,
    memory_id: Id,
    idempotency_key: Key = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Confirm that a fact or rule still holds; unconfirmed ones fade.

    Example: `butlers memory confirm . fact 3f2a8c1e-…`
    """
    await _change("memory_confirm", folder, tenant, as_json, type_, memory_id, idempotency_key)


@app.command()
@command
async def forget(
    folder: Folder,
    type_: Type,
    memory_id: Id,
    idempotency_key: Key = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Take a memory out of every search; it stays on record and can be restored.

    Example: `butlers memory forget . fact 3f2a8c1e-…`
    """
    await _change("memory_forget", folder, tenant, as_json, type_, memory_id, idempotency_key)


@app.command()
@command
async def restore(
    folder: Folder,
    type_: Type,
    memory_id: Id,
    idempotency_key: Key = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Bring a forgotten memory back into searches.

    Example: `butlers memory restore . fact 3f2a8c1e-…`
    """
    await _change("memory_restore", folder, tenant, as_json, type_, memory_id, idempotency_key)


@app.command()
@command
async def links(
    folder: Folder,
    type_: Type,
    memory_id: Id,
    direction: Annotated[str | None, typer.Option(help="outgoing, incoming or both (the default).")] = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Show what a memory was derived from, replaced, or led to.

    Example: `butlers memory links . fact 3f2a8c1e-… --direction outgoing`
    """
    await call("memory_links", folder, tenant, as_json, memory_type=type_, memory_id=memory_id, direction=direction)


@app.command()
@command
async def history(folder: Folder, type_: Type, memory_id: Id, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Show what happened to a memory, what it superseded and what superseded it.

    Example: `butlers memory history . fact 3f2a8c1e-…`
    """
    await call("memory_history", folder, tenant, as_json, memory_type=type_, memory_id=memory_id)


@app.command()
@command
async def helpful(
    folder: Folder, rule_id: RuleId, idempotency_key: Key = None, tenant: Tenant = None, as_json: AsJson = False
) -> None:
    """Report that applying a rule worked.

    Example: `butlers memory helpful . 3f2a8c1e-…`
    """
    await call("memory_mark_helpful", folder, tenant, as_json, rule_id=rule_id, idempotency_key=idempotency_key)


@app.command()
@command
async def harmful(
    folder: Folder,
    rule_id: RuleId,
    reason: Annotated[str | None, typer.Option(help="What went wrong, in a sentence.")] = None,
    idempotency_key: Key = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Report that applying a rule caused a problem.

    Example: `butlers memory harmful . 3f2a8c1e-… --reason "It woke everybody"`
    """
    await call(
        "memory_mark_harmful",
        folder,
        tenant,
        as_json,
        rule_id=rule_id,
        reason=reason,
        idempotency_key=idempotency_key,
    )


@app.command()
@command
async def stats(
    folder: Folder = HERE,
    scope: Annotated[str | None, typer.Option(help="Counts global and this scope; everything by default.")] = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Count memories by state.

    Example: `butlers memory stats .`
    """
    await call("memory_stats", folder, tenant, as_json, scope=scope)


for name, each in (*memory_export.COMMANDS.items(), *memory_jobs.COMMANDS.items(), *memory_removal.COMMANDS.items()):
    app.command(name=name)(each)
app.add_typer(entities.app, name="entity")


async def _change(
    tool: str,
    folder: Path,
    tenant: str | None,
    as_json: bool,
    memory_type: str,
    memory_id: str,
    idempotency_key: str | None,
) -> None:
    about = {"memory_type": memory_type, "memory_id": memory_id, "idempotency_key": idempotency_key}
    await call(tool, folder, tenant, as_json, **about)
