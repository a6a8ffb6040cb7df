"""A small async client of a butler's memory, for scripts and adapters."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from butlers.errors import (
    AlreadyExists,
    Conflict,
    Fault,
    Forbidden,
    InvalidInput,
    NotFound,
    Overloaded,
    TimedOut,
    Unavailable,
)

if TYPE_CHECKING:
    import httpx2
    from fastmcp import Client

MemoryKind = Literal["episode", "fact", "rule"]
_FAULTS: Mapping[str, type[Fault]] = {
    each.code: each
    for each in (InvalidInput, NotFound, Conflict, AlreadyExists, Forbidden, Unavailable, Overloaded, TimedOut)
}
_TIMEOUT_SECONDS, _PROBE_SECONDS = 60.0, 5.0


class StoredMemory(TypedDict, total=False):
    """The answer of a store: the id, and what the store found."""

    id: str
    superseded_id: str
    confirmed_existing: bool
    similar: list[dict[str, Any]]
    redacted: dict[str, int]


class FoundMemory(TypedDict, total=False):
    """A memory as a search or a recall returns it; fields without a value are left out."""

    memory_type: MemoryKind
    id: str
    content: str
    score: float
    confidence: float
    subject: str
    predicate: str
    scope: str
    importance: float
    permanence: str
    tags: list[str]
    created_at: str


class MemoryClient:
    """The memory of one butler, in the tenant of the key. Every method raises the tool's error as a `Fault`."""

    def __init__(self, client: "Client[Any]", butler: str) -> None:
        self._client, self.butler = client, butler

    async def call(self, tool: str, **arguments: Any) -> Any:
        """Return the answer of any tool of the butler; arguments that are None are left out."""
        given = {name: value for name, value in arguments.items() if value is not None}
        try:
            result = await self._client.call_tool(tool, given, raise_on_error=False)
        except Fault:
            raise
        except Exception as error:
            raise Unavailable(f"the butler does not answer: {type(error).__name__}") from error
        text = "\n".join(block.text for block in result.content if hasattr(block, "text"))
        if result.is_error:
            raise _as_fault(text)
        content = result.structured_content
        return content.get("result", content) if isinstance(content, Mapping) else text

    async def recall(self, topic: str, *, scope: str | None = None, limit: int | None = None) -> list[FoundMemory]:
        """Return the facts and rules that matter for a topic, best first; they count as used."""
        found: list[FoundMemory] = await self.call("memory_recall", topic=topic, scope=scope, limit=limit)
        return found

    async def search(
        self,
        query: str,
        *,
        types: Sequence[MemoryKind] | None = None,
        scope: str | None = None,
        mode: str | None = None,
        limit: int | None = None,
        min_confidence: float | None = None,
    ) -> list[FoundMemory]:
        """Return the memories that match a query, best first; nothing counts as used."""
        chosen = {"scope": scope, "mode": mode, "limit": limit, "min_confidence": min_confidence}
        found: list[FoundMemory] = await self.call(
            "memory_search", query=query, types=list(types) if types else None, **chosen
        )
        return found

    async def context(self, prompt: str, *, token_budget: int | None = None) -> str:
        """Return the block of memories that a session with this prompt starts with."""
        text: str = await self.call(
            "memory_context", trigger_prompt=prompt, butler=self.butler, token_budget=token_budget
        )
        return text

    async def store_fact(
        self,
        subject: str,
        predicate: str,
        content: str,
        *,
        importance: float | None = None,
        permanence: str | None = None,
        scope: str | None = None,
        tags: Sequence[str] | None = None,
        entity_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> StoredMemory:
        """Store a fact; it supersedes the live one with the same subject and predicate."""
        stored: StoredMemory = await self.call(
            "memory_store_fact",
            subject=subject,
            predicate=predicate,
            content=content,
            importance=importance,
            permanence=permanence,
            scope=scope,
            tags=list(tags) if tags else None,
            entity_id=entity_id,
            idempotency_key=idempotency_key,
        )
        return stored

    async def store_rule(
        self,
        content: str,
        *,
        scope: str | None = None,
        tags: Sequence[str] | None = None,
        permanence: str | None = None,
        idempotency_key: str | None = None,
    ) -> StoredMemory:
        """Store a rule as a candidate."""
        stored: StoredMemory = await self.call(
            "memory_store_rule",
            content=content,
            scope=scope,
            tags=list(tags) if tags else None,
            permanence=permanence,
            idempotency_key=idempotency_key,
        )
        return stored

    async def store_episode(
        self,
        content: str,
        *,
        session_id: str | None = None,
        importance: float | None = None,
        idempotency_key: str | None = None,
    ) -> StoredMemory:
        """Store an episode of this butler."""
        stored: StoredMemory = await self.call(
            "memory_store_episode",
            content=content,
            butler=self.butler,
            session_id=session_id,
            importance=importance,
            idempotency_key=idempotency_key,
        )
        return stored

    async def get(self, memory_type: MemoryKind, memory_id: str) -> dict[str, Any]:
        """Return a memory with all its fields, in any state."""
        found: dict[str, Any] = await self.call("memory_get", memory_type=memory_type, memory_id=memory_id)
        return found

    async def confirm(self, memory_type: MemoryKind, memory_id: str) -> dict[str, Any]:
        """Confirm that a fact or rule still holds."""
        done: dict[str, Any] = await self.call("memory_confirm", memory_type=memory_type, memory_id=memory_id)
        return done

    async def forget(self, memory_type: MemoryKind, memory_id: str) -> dict[str, Any]:
        """Forget a memory: no search finds it, and it can be restored."""
        done: dict[str, Any] = await self.call("memory_forget", memory_type=memory_type, memory_id=memory_id)
        return done


@asynccontextmanager
async def connect(
    url: str, key: str | None = None, *, timeout_seconds: float = _TIMEOUT_SECONDS
) -> AsyncIterator[MemoryClient]:
    """Yield the memory of the butler at `url`, such as http://127.0.0.1:8101; `key` is an API key or a token.

    Raises `Unavailable` if no butler answers there, and `Forbidden` if it refuses the key.
    """
    from fastmcp import Client
    from fastmcp.client.transports import StreamableHttpTransport

    base = url.rstrip("/").removesuffix("/mcp")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with AsyncExitStack() as stack:
        try:
            name = await _butler_name(base, timeout_seconds)
            transport = StreamableHttpTransport(f"{base}/mcp", headers=headers, httpx_client_factory=_direct_client)
            client = await stack.enter_async_context(Client(transport, timeout=timeout_seconds))
        except Fault:
            raise
        except Exception as error:
            raise await _refusal(base, headers, error) from error
        yield MemoryClient(client, name)


async def _butler_name(base: str, timeout_seconds: float) -> str:
    """Return the name of the butler at an address, which a caller needs for episodes and contexts."""
    async with _direct_client(timeout=timeout_seconds) as http:
        answer = (await http.get(f"{base}/health")).json()
    name = answer.get("butler") if isinstance(answer, Mapping) else None
    if not isinstance(name, str):
        raise Unavailable(f"no butler answers at {base}", hint="Check the address; `butlers run DIR` prints it.")
    return name


def _direct_client(
    headers: dict[str, str] | None = None, timeout: Any = None, auth: Any = None, **_: Any
) -> "httpx2.AsyncClient":
    """Return an HTTP client that uses no proxy and follows no redirect: either would see the key."""
    import httpx2

    return httpx2.AsyncClient(headers=headers, timeout=timeout, auth=auth, trust_env=False, follow_redirects=False)


def _as_fault(text: str) -> Fault:
    """Return the fault of an error text `code: message. hint`."""
    code, _, message = text.partition(": ")
    fault = _FAULTS.get(code, Fault)(message if code in _FAULTS or code == Fault.code else text)
    fault.hint = ""
    return fault


async def _refusal(base: str, headers: Mapping[str, str], error: Exception) -> Fault:
    """Return why a butler can't be used: the library's error does not tell a refused key."""
    if await _is_refused(base, headers):
        return Forbidden(f"the butler at {base} refuses the key", hint="`butlers key create` makes one.")
    return Unavailable(
        f"no butler answers at {base}: {type(error).__name__}", hint="Start it with `butlers run DIR`."
    )


async def _is_refused(base: str, headers: Mapping[str, str]) -> bool:
    import httpx2

    try:
        async with _direct_client(headers=dict(headers), timeout=_PROBE_SECONDS) as http:
            answer = await http.post(f"{base}/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
    except httpx2.HTTPError:
        return False
    return answer.status_code in {401, 403}
