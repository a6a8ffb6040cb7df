"""The tool that stores several memories in one call."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag
from typing_extensions import TypedDict

from butlers.caller import Caller
from butlers.contract import tool
from butlers.modules.memory.domain.model import GLOBAL
from butlers.modules.memory.operations import batch_writing
from butlers.modules.memory.operations.batch_writing import MAX_ITEMS, BatchItem, naming_item
from butlers.modules.memory.operations.idempotency import Request
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.tools.arguments import (
    Importance,
    Key,
    OptionalList,
    OptionalText,
    PermanenceName,
    Text,
    Word,
    as_list,
    as_word,
    parse_id,
)
from butlers.modules.memory.tools.writing import DEFAULT_IMPORTANCE, build_episode, build_fact, build_rule


class _Item(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class EpisodeItem(_Item):
    """An episode, as memory_store_episode takes it; `butler` is this butler by default."""

    type: Annotated[Literal["episode"], Word]
    content: Text
    butler: OptionalText = None
    session_id: OptionalText = None
    importance: Importance = DEFAULT_IMPORTANCE

    def build(self, memory: Memory, caller: Caller) -> BatchItem:
        """The item with its validated memory."""
        butler = self.butler or memory.butler
        return BatchItem(build_episode(caller, self.content, butler, self.session_id, self.importance))


class FactItem(_Item):
    """A fact, as memory_store_fact takes it."""

    type: Annotated[Literal["fact"], Word]
    subject: Text
    predicate: Text
    content: Text
    importance: Importance = DEFAULT_IMPORTANCE
    permanence: PermanenceName = "standard"
    scope: OptionalText = GLOBAL
    tags: OptionalList = None
    entity_id: OptionalText = None
    supersedes_id: OptionalText = None

    def build(self, _: Memory, caller: Caller) -> BatchItem:
        """The item with its validated memory."""
        values = self.model_dump(exclude={"type", "supersedes_id"})
        replaced = parse_id("supersedes_id", self.supersedes_id) if self.supersedes_id else None
        return BatchItem(build_fact(caller, **values), replaced)


class RuleItem(_Item):
    """A rule, as memory_store_rule takes it."""

    type: Annotated[Literal["rule"], Word]
    content: Text
    scope: OptionalText = GLOBAL
    tags: OptionalList = None
    permanence: PermanenceName = None

    def build(self, _: Memory, caller: Caller) -> BatchItem:
        """The item with its validated memory."""
        return BatchItem(build_rule(caller, **self.model_dump(exclude={"type"})))


def _type_of(item: Any) -> Any:
    """The type of an item as a word, so that only the arguments of that type are named in an error."""
    return as_word(item.get("type") if isinstance(item, dict) else getattr(item, "type", None))


Item = Annotated[
    Annotated[EpisodeItem, Tag("episode")] | Annotated[FactItem, Tag("fact")] | Annotated[RuleItem, Tag("rule")],
    Discriminator(
        _type_of,
        custom_error_type="item_type",
        custom_error_message="should be an object with a type: episode, fact or rule",
    ),
]


class StoredItem(TypedDict, total=False):
    """A stored memory, with the fields that the tool of its type answers."""

    memory_type: str
    id: str
    expires_at: str
    superseded_id: str
    also_superseded_id: str
    confirmed_existing: bool
    similar: list[dict[str, Any]]
    hint: str
    redacted: dict[str, int]


class StoredBatch(TypedDict):
    """The stored memories, in the order of the items."""

    stored: int
    results: list[StoredItem]


@tool(toolset="full")
async def memory_store_batch(
    memory: Memory,
    caller: Caller,
    items: Annotated[
        list[Item],
        BeforeValidator(as_list),
        Field(
            min_length=1,
            max_length=MAX_ITEMS,
            description="Each with its type (episode, fact or rule) and the arguments of that memory_store tool.",
        ),
    ],
    idempotency_key: Key = None,
) -> StoredBatch:
    """Store several memories at once: all of them, or none if one is refused. Later items see the earlier ones."""
    built = []
    for number, item in enumerate(items):
        with naming_item(number):
            built.append(item.build(memory, caller))
    arguments = {"items": [item.model_dump() for item in items]}
    request = Request("memory_store_batch", arguments, idempotency_key)
    return await batch_writing.store_batch(memory, caller, built, request)  # type: ignore[return-value]


TOOLS = (memory_store_batch,)
