"""Tools that store episodes, facts and rules."""

from dataclasses import asdict
from typing import Annotated

from pydantic import Field

from butlers.caller import Caller
from butlers.contract import tool
from butlers.modules.memory.domain.model import GLOBAL, NewEpisode, NewFact, NewRule, Permanence
from butlers.modules.memory.operations import writing
from butlers.modules.memory.operations.idempotency import Request
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.tools.answers import StoredEpisode, StoredFact, StoredRule
from butlers.modules.memory.tools.arguments import (
    Importance,
    Key,
    OptionalList,
    OptionalText,
    PermanenceName,
    Text,
    parse_entity_id,
    parse_id,
    parse_session_id,
)

DEFAULT_IMPORTANCE = 5.0


@tool()
async def memory_store_episode(
    memory: Memory,
    caller: Caller,
    content: Annotated[Text, Field(description="What happened, in a few sentences.")],
    butler: Annotated[Text, Field(description="This butler's name.")],
    session_id: OptionalText = None,
    importance: Importance = DEFAULT_IMPORTANCE,
    idempotency_key: Key = None,
) -> StoredEpisode:
    """Store what happened in a session, at its end; it is distilled into facts and rules later, then expires."""
    episode = build_episode(caller, content, butler, session_id, importance)
    request = Request("memory_store_episode", asdict(episode), idempotency_key)
    return await writing.store_episode(memory, caller, episode, request)  # type: ignore[return-value]


@tool()
async def memory_store_fact(
    memory: Memory,
    caller: Caller,
    subject: Annotated[Text, Field(description="Who or what it is about: user, a name, a project.")],
    predicate: Annotated[Text, Field(description="The property, in snake_case: favorite_color, works_at.")],
    content: Annotated[Text, Field(description="What is true.")],
    importance: Importance = DEFAULT_IMPORTANCE,
    permanence: PermanenceName = "standard",
    scope: Annotated[OptionalText, Field(description="global, or a butler's name.")] = GLOBAL,
    tags: OptionalList = None,
    entity_id: Annotated[OptionalText, Field(description="The entity it is about, from entity_resolve.")] = None,
    supersedes_id: Annotated[OptionalText, Field(description="A fact under another key that it replaces.")] = None,
    idempotency_key: Key = None,
) -> StoredFact:
    """Store something durable you learned. It supersedes the fact with the same subject and predicate."""
    fact = build_fact(caller, subject, predicate, content, importance, permanence, scope, tags, entity_id)
    replaced = parse_id("supersedes_id", supersedes_id) if supersedes_id else None
    arguments = asdict(fact) | ({"supersedes_id": replaced} if replaced else {})
    request = Request("memory_store_fact", arguments, idempotency_key)
    return await writing.store_fact(memory, caller, fact, request, supersedes_id=replaced)  # type: ignore[return-value]


@tool()
async def memory_store_rule(
    memory: Memory,
    caller: Caller,
    content: Annotated[Text, Field(description="What to do, or not to do, and when.")],
    scope: Annotated[OptionalText, Field(description="global, or a butler's name.")] = GLOBAL,
    tags: OptionalList = None,
    permanence: PermanenceName = None,
    idempotency_key: Key = None,
) -> StoredRule:
    """Store a way of working worth repeating; it earns trust with memory_mark_helpful."""
    rule = build_rule(caller, content, scope, tags, permanence)
    request = Request("memory_store_rule", asdict(rule), idempotency_key)
    return await writing.store_rule(memory, caller, rule, request)  # type: ignore[return-value]


def build_episode(
    caller: Caller, content: str, butler: str, session_id: str | None, importance: float | None
) -> NewEpisode:
    """The validated episode of a call."""
    return NewEpisode(
        content=content,
        butler=butler,
        # The caller's own session wins: models invent ids.
        session_id=parse_session_id(caller.session_id or session_id),
        importance=DEFAULT_IMPORTANCE if importance is None else importance,
        metadata=dict(caller.details),
    )


def build_fact(
    caller: Caller,
    subject: str,
    predicate: str,
    content: str,
    importance: float | None,
    permanence: str | None,
    scope: str | None,
    tags: list[str] | None,
    entity_id: str | None,
) -> NewFact:
    """The validated fact of a call."""
    return NewFact(
        subject=subject,
        predicate=predicate,
        content=content,
        importance=DEFAULT_IMPORTANCE if importance is None else importance,
        permanence=Permanence.named(permanence or "standard"),
        scope=scope or GLOBAL,
        tags=tuple(tags or ()),
        entity_id=parse_entity_id("entity_id", entity_id) if entity_id else None,
        metadata=_origin(caller),
    )


def build_rule(
    caller: Caller, content: str, scope: str | None, tags: list[str] | None, permanence: str | None
) -> NewRule:
    """The validated rule of a call."""
    return NewRule(
        content=content,
        scope=scope or GLOBAL,
        tags=tuple(tags or ()),
        permanence=Permanence.named(permanence) if permanence else None,
        metadata=_origin(caller),
    )


def _origin(caller: Caller) -> dict[str, object]:
    """Metadata with the session that stores the memory, if any."""
    return {"session_id": caller.session_id} if caller.session_id else {}


TOOLS = (memory_store_episode, memory_store_fact, memory_store_rule)
