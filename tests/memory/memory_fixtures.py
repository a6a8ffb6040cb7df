"""Test helpers for memory: tools as an agent calls them, rows as the administrator sees them."""
# ruff: noqa: S608 — the tables and columns are constants of the tests

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import uvicorn
from fastmcp import Client

from butlers.app import Butler
from butlers.caller import Caller
from butlers.config import AuthConfig
from butlers.host import http
from butlers.host.auth import make_auth_provider
from butlers.host.metrics import Metrics
from butlers.host.server import BoundTool, Server, build_server, http_app
from butlers.modules.memory.operations.idempotency import Request
from butlers.modules.memory.runtime import Memory

REQUEST = Request("a test", {})
"""A request without an idempotency key."""
TABLES = {"fact": "facts", "rule": "rules", "episode": "episodes", "entity": "entities"}


def new_caller(memory: Memory) -> Caller:
    """Return a caller in a new tenant."""
    return Caller(tenant=f"t-{uuid4().hex}", butler=memory.butler, actor="somebody")


def write_butler(at: Path, name: str, extra: str = "") -> Path:
    """Write the folder of a butler with memory, every tool and high limits."""
    folder = at / name
    folder.mkdir()
    limits = "[butler.limits]\ncalls_per_second = 100000\nburst = 100000\n"
    module = '[modules.memory]\nenabled = true\ntoolset = "full"\n'
    (folder / "butler.toml").write_text(f'[butler]\nname = "{name}"\nport = 0\n{limits}{extra}\n{module}')
    return folder


_BOUND_TOOLS: dict[int, tuple[Memory, list[BoundTool]]] = {}


def _bound_tools(butler: Butler, memory: Memory) -> list[BoundTool]:
    """Return the tools of a memory, made once: they do not depend on the tenant."""
    if id(memory) not in _BOUND_TOOLS:
        # With the memory itself, whose id no other one may get.
        _BOUND_TOOLS[id(memory)] = memory, [BoundTool(tool, memory) for tool in butler.modules[0].tools()]
    return _BOUND_TOOLS[id(memory)][1]


def build_tenant_server(butler: Butler, memory: Memory, tenant: str, **auth: Any) -> Server:
    """Build a server whose local callers belong to that tenant."""
    config = butler.config.butler.model_copy(update={"auth": AuthConfig(tenant=tenant, **auth)})
    guard = make_auth_provider(config.auth, butler.database) if auth else None
    return build_server(config, butler.database, _bound_tools(butler, memory), {}, Metrics(), guard=guard)


class QuietServer(uvicorn.Server):
    """A web server that installs no signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serve_http(server: Server, pages: Any = None) -> AsyncIterator[str]:
    """Serve on a real HTTP port; yields the address."""
    with http.bind_socket("127.0.0.1", 0) as socket:
        web = QuietServer(uvicorn.Config(http_app(server, pages), lifespan="on", log_config=None, ws="none"))
        serving = asyncio.create_task(web.serve(sockets=[socket]))
        while not web.started:  # noqa: ASYNC110 — uvicorn has no event to wait for
            await asyncio.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{socket.getsockname()[1]}/mcp"
        finally:
            server.stop()
            web.should_exit = True
            await serving


async def valid_arguments(tools: "Tools", butler: str) -> dict[str, dict[str, Any]]:
    """Return valid arguments for each tool, about memories that exist."""
    fact, rule = await tools.fact("a secret about tea"), await tools.rule("A secret rule about tea")
    forgotten = await tools.fact("a forgotten secret", predicate="gone")
    await tools("memory_forget", memory_type="fact", memory_id=forgotten)
    address = {"memory_type": "fact", "memory_id": fact}
    ada, duplicate = await tools.entity("Ada of the secret tea"), await tools.entity("Ada of the secret drink")
    return {
        "memory_store_episode": {"content": "a secret talk about tea", "butler": butler},
        "memory_store_fact": {"subject": "user", "predicate": "drink", "content": "a secret tea"},
        "memory_store_rule": {"content": "Offer the secret tea"},
        "memory_store_batch": {"items": [{"type": "rule", "content": "Pour the secret tea"}]},
        "memory_search": {"query": "tea", "scope": "*"},
        "memory_recall": {"topic": "tea", "scope": "*"},
        "memory_get": address,
        "memory_confirm": address,
        "memory_mark_helpful": {"rule_id": rule},
        "memory_mark_harmful": {"rule_id": rule, "reason": "a secret reason"},
        "memory_stats": {},
        "memory_context": {"trigger_prompt": "tea", "butler": butler},
        "memory_links": address,
        "memory_history": address,
        "memory_undo": {"dry_run": True},
        "memory_consolidation_runs": {},
        "memory_proposals": {},
        "memory_restore": {"memory_type": "fact", "memory_id": forgotten},
        "memory_forget": address,
        "memory_run_consolidation": {"dry_run": True},
        "memory_run_episode_cleanup": {"dry_run": True},
        "memory_dead_letters": {"retry": True},
        "memory_sessions": {},
        "memory_hygiene": {},
        "memory_receipts": {"session_id": "00000000-0000-4000-8000-000000000002"},
        "memory_told": address,
        "memory_retract_from": {"episode_id": "00000000-0000-4000-8000-000000000001"},
        "entity_create": {"canonical_name": "The secret tea house", "entity_type": "place", "aliases": ["tea"]},
        "entity_get": {"entity_id": ada},
        "entity_update": {"entity_id": ada, "aliases": ["secret Ada"], "metadata": {"drinks": "tea"}},
        "entity_resolve": {"name": "ada", "enable_fuzzy": True},
        "entity_merge": {"source_entity_id": duplicate, "target_entity_id": ada},
    }


@dataclass(frozen=True)
class Tools:
    """Tools called as one tenant."""

    client: Client[Any]
    tenant: str

    async def __call__(self, tool: str, /, **arguments: Any) -> Any:
        """Return the answer of a tool."""
        answer = await self.client.call_tool(tool, arguments, raise_on_error=False)
        assert not answer.is_error, answer.content
        content = answer.structured_content
        assert content is not None
        return content["result"] if set(content) == {"result"} else content

    async def refusal(self, tool: str, /, **arguments: Any) -> str:
        """Return the error message of a tool."""
        answer = await self.client.call_tool(tool, arguments, raise_on_error=False)
        assert answer.is_error, answer.structured_content
        return str(answer.content[0].text)

    async def fact(self, content: str = "blue", subject: str = "user", predicate: str = "color", **more: Any) -> str:
        """Store a fact and return its id."""
        return str(
            (await self("memory_store_fact", subject=subject, predicate=predicate, content=content, **more))["id"]
        )

    async def rule(self, content: str = "Ask before sending", **more: Any) -> str:
        """Store a rule and return its id."""
        return str((await self("memory_store_rule", content=content, **more))["id"])

    async def entity(self, canonical_name: str = "Ada", entity_type: str = "person", **more: Any) -> str:
        """Create an entity and return its id."""
        created = await self("entity_create", canonical_name=canonical_name, entity_type=entity_type, **more)
        return str(created["id"])

    async def ids(self, tool: str, /, **arguments: Any) -> list[str]:
        """Return the ids a search or recall finds, in order."""
        return [each["id"] for each in await self(tool, **arguments)]


@dataclass(frozen=True)
class Archive:
    """Access to the rows of all tenants, as the administrator."""

    connection: "asyncpg.Connection[asyncpg.Record]"

    async def row(self, kind: str, row_id: str) -> Mapping[str, Any]:
        """Return a row with all its columns."""
        (row,) = await self.rows(f"select * from {TABLES[kind]} where id = $1", row_id)
        return row

    async def rows(self, statement: str, *arguments: Any) -> list[Mapping[str, Any]]:
        """Return the rows of a query."""
        return [dict(row) for row in await self.connection.fetch(statement, *arguments)]

    async def count(self, table: str, tenant: str, where: str = "true") -> int:
        """Return the number of a tenant's rows in a table."""
        counted: int = await self.connection.fetchval(
            f"select count(*) from {table} where tenant_id = $1 and {where}", tenant
        )
        return counted

    async def change(self, kind: str, row_id: str, **columns: str) -> None:
        """Set columns of a row to SQL expressions."""
        changes = ", ".join(f"{name} = {expression}" for name, expression in columns.items())
        assert (
            await self.connection.execute(f"update {TABLES[kind]} set {changes} where id = $1", row_id) == "UPDATE 1"
        )

    async def age(self, kind: str, row_id: str, days: float) -> None:
        """Move the times of a memory into the past."""
        moments = {
            "fact": ("created_at", "last_referenced_at", "last_confirmed_at"),
            "rule": ("created_at", "last_referenced_at", "last_confirmed_at"),
            "episode": ("created_at", "expires_at"),
        }[kind]
        await self.change(kind, row_id, **{name: f"{name} - interval '{days} days'" for name in moments})

    async def events(self, tenant: str) -> list[Mapping[str, Any]]:
        """Return a tenant's events, oldest first."""
        return await self.rows(
            "select event_type, entity_type, entity_id::text, actor, request_id, payload::text as payload"
            " from memory_events where tenant_id = $1 order by occurred_at, event_type desc",
            tenant,
        )

    async def everything(self, tenant: str) -> list[Mapping[str, Any]]:
        """Return hashes of all rows of a tenant, to check that nothing changed."""
        tables = ("episodes", "facts", "rules", "memory_links", "memory_events", "rule_applications", "entities")
        found = [
            await self.rows(f"select md5(t::text) as row from {table} t where tenant_id = $1 order by 1", tenant)
            for table in tables
        ]
        return [row for rows in found for row in rows]
