"""Acts of people on memories, each a call with its own request id, and snapshots of a tenant's rows."""
# ruff: noqa: S608 — the tables are constants of the tests

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

from butlers.caller import Caller
from butlers.modules.memory.domain.entities import EntityChange
from butlers.modules.memory.domain.model import MemoryEdit, MemoryType, NewFact, Permanence
from butlers.modules.memory.operations import (
    editing,
    entities,
    feedback,
    looking,
    management,
    retraction,
    twins,
    undo,
    writing,
)
from butlers.modules.memory.operations.retraction import Origin
from butlers.modules.memory.runtime import Memory
from memory.memory_fixtures import REQUEST, Archive

FACT, RULE, EPISODE = MemoryType.FACT, MemoryType.RULE, MemoryType.EPISODE
Snapshot = dict[tuple[str, str], str]


@dataclass(frozen=True)
class Actor:
    """A caller whose calls each have their own request id."""

    memory: Memory
    caller: Caller

    async def __call__(self, act: Callable[..., Awaitable[Any]], *arguments: Any, **more: Any) -> str:
        """Call an operation as a new request and return the id of the request."""
        return (await self.answer(act, *arguments, **more))[0]

    async def answer(self, act: Callable[..., Awaitable[Any]], *arguments: Any, **more: Any) -> tuple[str, Any]:
        """Call an operation as a new request and return the id of the request and the answer."""
        caller = replace(self.caller, request_id=str(uuid4()), via="dashboard")
        if act is not retraction.retract:
            arguments = (*arguments, REQUEST)
        return caller.request_id, await act(self.memory, caller, *arguments, **more)

    async def undo(self, request_id: str) -> Any:
        """Undo a request."""
        return (await self.answer(undo.undo, request_id))[1]

    async def preview(self, request_id: str) -> Any:
        """Return what the undo of a request would change."""
        return await undo.preview_undo(self.memory, self.caller, request_id)

    async def store(self, content: str = "eats no meat", predicate: str = "diet", **more: Any) -> str:
        """Store a fact and return the id of the request."""
        return await self(writing.store_fact, NewFact(subject="Ada", predicate=predicate, content=content, **more))

    async def confirm(self, kind: MemoryType, memory_id: str) -> str:
        return await self(feedback.confirm, kind, UUID(memory_id))

    async def forget(self, kind: MemoryType, memory_id: str) -> str:
        return await self(management.forget, kind, UUID(memory_id))

    async def restore(self, kind: MemoryType, memory_id: str) -> str:
        return await self(management.restore, kind, UUID(memory_id))

    async def correct(self, fact_id: str, content: str) -> str:
        return await self(editing.correct, UUID(fact_id), content)

    async def edit(self, kind: MemoryType, memory_id: str, **change: Any) -> str:
        return await self(editing.edit, kind, UUID(memory_id), MemoryEdit(**change))

    async def move(self, fact_id: str, entity_id: str) -> str:
        return await self(editing.move, UUID(fact_id), UUID(entity_id))

    async def mark(self, rule_id: str, *, helpful: bool, reason: str | None = None) -> str:
        if helpful:
            return await self(feedback.mark_helpful, UUID(rule_id))
        return await self(feedback.mark_harmful, UUID(rule_id), reason)

    async def look(self, kind: MemoryType, memory_id: str) -> str:
        return await self(looking.mark_looked_at, kind, UUID(memory_id))

    async def keep_both(self, kind: str, memory_id: str, other: str) -> str:
        return await self(twins.keep_both, kind, UUID(memory_id), UUID(other))

    async def change_entity(self, entity_id: str, **change: Any) -> str:
        return await self(entities.update, UUID(entity_id), EntityChange(**change))

    async def retract(self, episode_id: str) -> str:
        return await self(retraction.retract, Origin(episode_id=UUID(episode_id)))


def permanence(name: str) -> Permanence:
    """Return a permanence by name."""
    return Permanence.named(name)


async def snapshot(archive: Archive, tenant: str) -> Snapshot:
    """Return the rows of memories, entities and links of a tenant, as text by table and key."""
    keys = {
        "facts": "id::text",
        "rules": "id::text",
        "episodes": "id::text",
        "entities": "id::text",
        "memory_links": "source_id::text || target_id::text",
    }
    return {
        (table, row["key"]): row["row"]
        for table, key in keys.items()
        for row in await archive.rows(
            f"select {key} as key, (to_jsonb(t) - 'embedding')::text as row from {table} t where tenant_id = $1",
            tenant,
        )
    }
