"""Tools for entities: people, organizations, places and things."""

from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, with_config
from typing_extensions import TypedDict

from butlers.caller import Caller
from butlers.contract import count_rows, tool
from butlers.modules.memory.domain.entities import EntityChange, EntityType, NewEntity
from butlers.modules.memory.domain.entity_resolution import ResolutionHints, ScoredCandidate
from butlers.modules.memory.operations import entities
from butlers.modules.memory.operations.idempotency import Request
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.tools.answers import to_json
from butlers.modules.memory.tools.arguments import (
    Blank,
    Key,
    OptionalList,
    OptionalObject,
    OptionalText,
    Text,
    Word,
    as_list,
    as_object,
    parse_entity_id,
)

_ALIASES = {"id": "entity_id"}

Kind = Literal["person", "organization", "place", "other"]
EntityTypeName = Annotated[Kind, Word, Field(description="person, organization, place or other.")]
EntityId = Annotated[str, Field(description="An entity_id from entity_resolve or entity_create.")]
Aliases = Annotated[OptionalList, Field(description="All other names; the list replaces the old one.")]
Metadata = Annotated[OptionalObject, Field(description="Keys to add; the others stay.")]
# The call middleware checks it and removes it from the call.
TenantId = Annotated[OptionalText, Field(description="Your own by default; another one is refused.")]
Score = Annotated[float, Field(allow_inf_nan=False)]


@with_config(ConfigDict(extra="forbid"))
class ContextHints(TypedDict, total=False):
    """Context that tells entities of the same name apart."""

    topic: Annotated[str | None, Field(description="What the conversation is about.")]
    mentioned_with: Annotated[
        list[str] | None, BeforeValidator(as_list), Field(description="Names and words mentioned with it.")
    ]
    domain_scores: Annotated[
        dict[str, Score] | None,
        BeforeValidator(as_object),
        Field(description="Points to add, by entity_id."),
    ]


class CreatedEntity(TypedDict):
    """A new entity."""

    id: str
    entity_id: str


class Entity(TypedDict):
    """An entity with all its fields; `merged_into` is null for a live one."""

    id: str
    entity_id: str
    tenant_id: str
    canonical_name: str
    entity_type: str
    aliases: list[str]
    metadata: dict[str, Any]
    live_facts: int
    merged_into: str | None
    created_at: str
    updated_at: str


class ChangedEntity(TypedDict):
    """An entity after a change."""

    id: str
    entity_id: str
    changed: list[str]
    canonical_name: str
    entity_type: str
    aliases: list[str]
    metadata: dict[str, Any]
    updated_at: str


class Candidate(TypedDict):
    """An entity a name may mean."""

    entity_id: str
    canonical_name: str
    entity_type: str
    score: float
    name_match: str
    aliases: list[str]


class MergeResult(TypedDict):
    """The result of a merge."""

    id: str
    source_entity_id: str
    target_entity_id: str
    facts_repointed: int
    facts_superseded: int
    aliases_added: int


@tool()
async def entity_create(
    memory: Memory,
    caller: Caller,
    canonical_name: Annotated[Text, Field(description="The full name, specific enough to identify it.")],
    entity_type: EntityTypeName,
    aliases: Annotated[OptionalList, Field(description="Other names.")] = None,
    metadata: Annotated[OptionalObject, Field(description="Keys to store with it.")] = None,
    tenant_id: TenantId = None,  # noqa: ARG001
    idempotency_key: Key = None,
) -> CreatedEntity:
    """Store a new person, organization, place or thing that entity_resolve did not find."""
    entity = NewEntity(
        canonical_name=canonical_name,
        entity_type=EntityType.named(entity_type),
        aliases=tuple(aliases or ()),
        metadata=metadata or {},
    )
    request = Request("entity_create", asdict(entity), idempotency_key)
    return await entities.create(memory, caller, entity, request)  # type: ignore[return-value]


@tool(read_only=True, aliases=_ALIASES)
async def entity_get(
    memory: Memory,
    caller: Caller,
    entity_id: EntityId,
    tenant_id: TenantId = None,  # noqa: ARG001
) -> Entity:
    """Read one entity in full, with the number of facts about it."""
    return to_json(await entities.get(memory, caller, parse_entity_id("entity_id", entity_id)))  # type: ignore[no-any-return]


@tool(aliases=_ALIASES)
async def entity_update(
    memory: Memory,
    caller: Caller,
    entity_id: EntityId,
    canonical_name: Annotated[OptionalText, Field(description="Its new name.")] = None,
    aliases: Aliases = None,
    metadata: Metadata = None,
    tenant_id: TenantId = None,  # noqa: ARG001
    idempotency_key: Key = None,
) -> ChangedEntity:
    """Change the name, the complete list of aliases or the metadata of an entity."""
    parsed_id = parse_entity_id("entity_id", entity_id)
    change = EntityChange(
        canonical_name=canonical_name, aliases=None if aliases is None else tuple(aliases), metadata=metadata
    )
    request = Request("entity_update", {"entity_id": str(parsed_id), **asdict(change)}, idempotency_key)
    return await entities.update(memory, caller, parsed_id, change, request)  # type: ignore[return-value]


@tool(read_only=True)
async def entity_resolve(
    memory: Memory,
    caller: Caller,
    name: Annotated[Text, Field(description="The name as it was mentioned.")],
    tenant_id: TenantId = None,  # noqa: ARG001
    entity_type: Annotated[Kind | None, Word, Field(description="Only this type.")] = None,
    context_hints: Annotated[
        ContextHints | None, BeforeValidator(as_object), Field(description="Context that tells namesakes apart.")
    ] = None,
    enable_fuzzy: Annotated[bool | None, Blank, Field(description="Also match similar spellings.")] = False,
) -> list[Candidate]:
    """Find the entities a name may mean, the likeliest first. Call it before you store or recall facts about one."""
    kind = EntityType.named(entity_type) if entity_type else None
    hints = _to_hints(context_hints or {})
    found = await entities.resolve(memory, caller, name, kind, hints, fuzzy=bool(enable_fuzzy))
    count_rows(asked=len(found), returned=len(found))
    return [_to_candidate(each) for each in found]


@tool(destructive=True)
async def entity_merge(
    memory: Memory,
    caller: Caller,
    source_entity_id: Annotated[str, Field(description="The duplicate, merged into the target.")],
    target_entity_id: Annotated[str, Field(description="The entity that stays and gets all facts.")],
    tenant_id: TenantId = None,  # noqa: ARG001
    idempotency_key: Key = None,
) -> MergeResult:
    """Merge two entities that are the same. It can't be undone, so be sure or ask."""
    source = parse_entity_id("source_entity_id", source_entity_id)
    target = parse_entity_id("target_entity_id", target_entity_id)
    request = Request("entity_merge", {"source": str(source), "target": str(target)}, idempotency_key)
    return await entities.merge(memory, caller, source, target, request)  # type: ignore[return-value]


def _to_hints(hints: ContextHints) -> ResolutionHints:
    scores = hints.get("domain_scores") or {}
    return ResolutionHints(
        topic=hints.get("topic") or "",
        mentioned_with=tuple(hints.get("mentioned_with") or ()),
        domain_scores={parse_entity_id("domain_scores", entity_id): score for entity_id, score in scores.items()},
    )


def _to_candidate(scored: ScoredCandidate) -> Candidate:
    candidate = scored.candidate
    return {
        "entity_id": str(candidate.id),
        "canonical_name": candidate.canonical_name,
        "entity_type": candidate.entity_type,
        "score": scored.score,
        "name_match": candidate.match.value,
        "aliases": list(candidate.aliases),
    }


TOOLS = (entity_create, entity_get, entity_update, entity_resolve, entity_merge)
