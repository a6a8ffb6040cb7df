"""The `butlers memory` commands that call a memory tool each."""

from typing import Annotated

import typer

from butlers.cli import (
    entities,
    memory_batch,
    memory_export,
    memory_hygiene,
    memory_jobs,
    memory_proposals,
    memory_removal,
    memory_runs,
    memory_undo,
)
from butlers.cli.memory_client import Key, tool_command
from butlers.cli.output import HERE, Folder

app = typer.Typer(help="Store, search and maintain memories; export and import them.", no_args_is_help=True)

Content = Annotated[str, typer.Argument(metavar="CONTENT", help="The text to store.")]
Type = Annotated[str, typer.Argument(metavar="TYPE", help="episode, fact or rule.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The memory's id, from a search.")]
RuleId = Annotated[str, typer.Argument(metavar="RULE_ID", help="The rule's id, from a search.")]
Importance = Annotated[float | None, typer.Option(help="0 (trivial) to 10 (vital). Default: 5.")]
Permanence = Annotated[
    str | None, typer.Option(help="How slowly it fades: permanent, stable, standard, volatile or ephemeral.")
]
StoreScope = Annotated[str | None, typer.Option(help="global, or a butler's name. Default: global.")]
Scope = Annotated[
    str | None, typer.Option(help="Search global and this scope; * searches all. Default: this butler's scope.")
]
Tags = Annotated[list[str] | None, typer.Option(help="Tags: a,b or the option repeated.")]
Limit = Annotated[int | None, typer.Option(help="The maximum number of results, up to 100.")]
Butler = Annotated[str | None, typer.Option(help="The butler's name. Any other butler is refused.")]


@tool_command("memory_store_fact", app)
def store_fact(
    folder: Folder,
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="The subject of the fact: user, or a name.")],
    predicate: Annotated[str, typer.Argument(metavar="PREDICATE", help="The property: favorite_color, works_at.")],
    content: Content,
    importance: Importance = None,
    permanence: Permanence = None,
    scope: StoreScope = None,
    tags: Tags = None,
    entity_id: Annotated[str | None, typer.Option(help="The id of the entity it is about.")] = None,
    supersedes_id: Annotated[
        str | None, typer.Option(help="The id of a fact under another key that it replaces.")
    ] = None,
    idempotency_key: Key = None,
) -> None:
    """Store a fact. It supersedes the fact with the same subject and predicate.

    Example: `butlers memory store-fact . user favorite_color "blue, like the sea" --importance 7`
    """


@tool_command("memory_store_rule", app)
def store_rule(
    folder: Folder,
    content: Content,
    scope: StoreScope = None,
    tags: Tags = None,
    permanence: Permanence = None,
    idempotency_key: Key = None,
) -> None:
    """Store a rule: how to do something well.

    Example: `butlers memory store-rule . "Ask before you send an email" --tags email`
    """


@tool_command("memory_store_episode", app)
def store_episode(
    folder: Folder,
    content: Content,
    butler: Butler = None,
    session_id: Annotated[str | None, typer.Option(help="The id of its session, a UUID.")] = None,
    importance: Importance = None,
    idempotency_key: Key = None,
) -> None:
    """Store an episode. Consolidation turns it into facts and rules before it expires.

    Example: `butlers memory store-episode . "We planned the trip to Lisbon"`
    """


@tool_command("memory_search", app)
def search(
    folder: Folder,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Words or a question.")],
    types: Annotated[
        list[str] | None, typer.Option(help="episode, fact, rule: a,b or the option repeated. Default: all.")
    ] = None,
    scope: Scope = None,
    mode: Annotated[str | None, typer.Option(help="semantic, keyword, hybrid or blended.")] = None,
    limit: Limit = None,
    min_confidence: Annotated[
        float | None, typer.Option(help="Leave out memories with less confidence, 0 to 1.")
    ] = None,
) -> None:
    """Search episodes, facts and rules. The search does not count as use.

    Example: `butlers memory search . "what does she like to eat" --types fact --limit 5`
    """


@tool_command("memory_recall", app)
def recall(
    folder: Folder,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic, in a few words.")],
    scope: Scope = None,
    limit: Limit = None,
) -> None:
    """Recall the facts and rules that matter for a topic. They count as used.

    Example: `butlers memory recall . "dinner with Ada" --limit 3`
    """


@tool_command("memory_context", app)
def context(
    folder: Folder,
    trigger_prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="The prompt of the session.")],
    butler: Butler = None,
    token_budget: Annotated[int | None, typer.Option(help="The maximum number of tokens.")] = None,
) -> None:
    """Print the memories that a session with this prompt starts with.

    Example: `butlers memory context . "Plan dinner with Ada" --token-budget 500`
    """


@tool_command("memory_get", app)
def get(folder: Folder, memory_type: Type, memory_id: Id) -> None:
    """Show one memory with all its fields, in any state.

    Example: `butlers memory get . fact 3f2a8c1e-…`
    """


@tool_command("memory_confirm", app)
def confirm(folder: Folder, memory_type: Type, memory_id: Id, idempotency_key: Key = None) -> None:
    """Confirm that a fact or rule still holds. Unconfirmed ones fade.

    Example: `butlers memory confirm . fact 3f2a8c1e-…`
    """


@tool_command("memory_forget", app)
def forget(folder: Folder, memory_type: Type, memory_id: Id, idempotency_key: Key = None) -> None:
    """Forget a memory: no search finds it. It can be restored.

    Example: `butlers memory forget . fact 3f2a8c1e-…`
    """


@tool_command("memory_restore", app)
def restore(folder: Folder, memory_type: Type, memory_id: Id, idempotency_key: Key = None) -> None:
    """Restore a forgotten memory.

    Example: `butlers memory restore . fact 3f2a8c1e-…`
    """


@tool_command("memory_links", app)
def links(
    folder: Folder,
    memory_type: Type,
    memory_id: Id,
    direction: Annotated[str | None, typer.Option(help="outgoing, incoming or both. Default: both.")] = None,
) -> None:
    """Show the links of a memory: its sources, and what it supersedes, supports or contradicts.

    Example: `butlers memory links . fact 3f2a8c1e-… --direction outgoing`
    """


@tool_command("memory_history", app)
def history(
    folder: Folder,
    memory_type: Type,
    memory_id: Id,
    limit: Annotated[int | None, typer.Option(help="The maximum number of events, up to 1000. Default: 200.")] = None,
    cursor: Annotated[str | None, typer.Option(help="Continue after a page: the next_cursor it ends with.")] = None,
) -> None:
    """Show the events of a memory, the facts it superseded and those that superseded it.

    Example: `butlers memory history . fact 3f2a8c1e-…`
    """


@tool_command("memory_sessions", app)
def sessions(
    folder: Folder = HERE,
    cursor: Annotated[str | None, typer.Option(help="Continue after a page: the next_cursor it ends with.")] = None,
) -> None:
    """List sessions, newest first, with their tokens and how much they were told.

    Example: `butlers memory sessions .`
    """


@tool_command("memory_receipts", app)
def receipts(
    folder: Folder, session_id: Annotated[str, typer.Argument(metavar="SESSION_ID", help="The session's UUID.")]
) -> None:
    """Show what a session was told and found, and what was left out and why.

    Example: `butlers memory receipts . 3f2a8c1e-…`
    """


@tool_command("memory_told", app)
def told(folder: Folder, memory_type: Type, memory_id: Id) -> None:
    """Show the sessions that were told a memory.

    Example: `butlers memory told . fact 3f2a8c1e-…`
    """


@tool_command("memory_mark_helpful", app)
def helpful(folder: Folder, rule_id: RuleId, idempotency_key: Key = None) -> None:
    """Report that a rule helped.

    Example: `butlers memory helpful . 3f2a8c1e-…`
    """


@tool_command("memory_mark_harmful", app)
def harmful(
    folder: Folder,
    rule_id: RuleId,
    reason: Annotated[str | None, typer.Option(help="What went wrong, in one sentence.")] = None,
    idempotency_key: Key = None,
) -> None:
    """Report that a rule did harm.

    Example: `butlers memory harmful . 3f2a8c1e-… --reason "It woke everybody"`
    """


@tool_command("memory_stats", app)
def stats(
    folder: Folder = HERE,
    scope: Annotated[str | None, typer.Option(help="Count global and this scope. Default: all.")] = None,
) -> None:
    """Count memories by type and state.

    Example: `butlers memory stats .`
    """


_MODULES = (
    memory_batch,
    memory_export,
    memory_jobs,
    memory_runs,
    memory_proposals,
    memory_removal,
    memory_undo,
    memory_hygiene,
)
for function in (each for module in _MODULES for each in module.COMMANDS):
    app.command(function.__name__.strip("_").replace("_", "-"))(function)
app.add_typer(entities.app, name="entity")
