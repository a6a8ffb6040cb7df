"""Loopback MCP server for sessions, with a credential for each session while it runs."""

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from uuid import UUID

from fastmcp.server.auth import AccessToken, TokenVerifier

from butlers.caller import Caller
from butlers.host import auth, http
from butlers.host.api_keys import hash_secret
from butlers.host.connections import limits_for_sessions
from butlers.host.runtimes.runtime import McpAccess
from butlers.host.server import Server, http_app

HOST = "127.0.0.1"


@dataclass(slots=True)
class SessionGrant:
    """Access of one session: its caller, and the number of its calls by tool."""

    caller: Caller
    calls: Counter[str] = field(default_factory=Counter)


class SessionGateway(TokenVerifier):
    """Grants sessions access to the butler's tools. The server is started for the first session."""

    def __init__(self, build: Callable[["SessionGateway"], Server]) -> None:
        super().__init__()
        self._build = build
        self._grants: dict[bytes, SessionGrant] = {}
        self._start_lock = asyncio.Lock()
        self._stack = contextlib.AsyncExitStack()
        self._url: str | None = None

    @contextlib.asynccontextmanager
    async def grant(self, caller: Caller, session_id: UUID) -> AsyncIterator[tuple[McpAccess, SessionGrant]]:
        """Yield a session's access, valid until the block ends. A session never has its caller's roles."""
        url = await self._start()
        session_caller = replace(
            caller, actor="session", roles=frozenset(), elevated=False, session_id=str(session_id)
        )
        credential, grant = secrets.token_urlsafe(32), SessionGrant(session_caller)
        key = hash_secret(credential)
        self._grants[key] = grant
        try:
            yield McpAccess(url, {"Authorization": f"Bearer {credential}"}), grant
        finally:
            del self._grants[key]

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the token of a running session, or None."""
        grant = self._grants.get(hash_secret(token))
        return auth.token_for(grant.caller) if grant else None

    def count_call(self, caller: Caller, tool: str) -> None:
        """Add one call to the session's count."""
        for grant in self._grants.values():
            if grant.caller.session_id == caller.session_id:
                grant.calls[tool] += 1

    async def close(self) -> None:
        """Stop the server."""
        await self._stack.aclose()

    async def _start(self) -> str:
        """Start the server if it is not running; return its URL."""
        async with self._start_lock:
            if self._url is None:
                listener = self._stack.enter_context(http.bind_socket(HOST, 0))
                server = self._build(self)
                limits = limits_for_sessions(server.config)
                serving = http.serve_in_background(http_app(server), listener, limits)
                await self._stack.enter_async_context(serving)
                self._url = f"http://{HOST}:{listener.getsockname()[1]}/mcp"
            return self._url
