"""Where sessions reach the butler's tools: a loopback address of their own, and a credential that ends with each."""

import asyncio
import contextlib
import hashlib
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from uuid import UUID

from fastmcp.server.auth import AccessToken, AuthProvider, TokenVerifier

from butlers.caller import Caller
from butlers.host import auth, http
from butlers.host.runtimes.runtime import McpAccess
from butlers.host.server import Server, http_app

HOST = "127.0.0.1"


@dataclass(slots=True)
class SessionGrant:
    """A session at the desk: on whose behalf it calls, and which tools it called how often."""

    caller: Caller
    calls: Counter[str] = field(default_factory=Counter)


class SessionGateway:
    """Admits sessions, each for as long as it runs. The address is opened with the first of them."""

    def __init__(self, build: Callable[[AuthProvider, "SessionGateway"], Server]) -> None:
        self._build = build
        self._visits: dict[bytes, SessionGrant] = {}
        self._opening = asyncio.Lock()
        self._open = contextlib.AsyncExitStack()
        self._url: str | None = None

    @contextlib.asynccontextmanager
    async def admitted(self, caller: Caller, session_id: UUID) -> AsyncIterator[tuple[McpAccess, SessionGrant]]:
        """How a session reaches the tools, until the block ends. It is nobody's admin, whoever it is for."""
        url = await self._opened()
        who = replace(caller, actor="session", roles=frozenset(), elevated=False, session_id=str(session_id))
        credential, visit = secrets.token_urlsafe(32), SessionGrant(who)
        key = _hash_credential(credential)
        self._visits[key] = visit
        try:
            yield McpAccess(url, {"Authorization": f"Bearer {credential}"}), visit
        finally:
            del self._visits[key]

    def known(self, credential: str) -> Caller | None:
        """The caller behind a credential of a session that runs."""
        visit = self._visits.get(_hash_credential(credential))
        return visit.caller if visit else None

    def note(self, caller: Caller, tool: str) -> None:
        """Count one more call of a session."""
        for visit in self._visits.values():
            if visit.caller.session_id == caller.session_id:
                visit.calls[tool] += 1

    async def close(self) -> None:
        """Let nobody in any more."""
        await self._open.aclose()

    async def _opened(self) -> str:
        async with self._opening:
            if self._url is None:
                server = self._build(SessionVerifier(self), self)
                listener = self._open.enter_context(http.bind_socket(HOST, 0))
                await self._open.enter_async_context(http.serve_in_background(http_app(server), listener))
                self._url = f"http://{HOST}:{listener.getsockname()[1]}/mcp"
            return self._url


class SessionVerifier(TokenVerifier):
    """Credentials of sessions that run."""

    def __init__(self, desk: SessionGateway) -> None:
        super().__init__()
        self._desk = desk

    async def verify_token(self, token: str) -> AccessToken | None:
        """The session behind a credential, while it runs."""
        caller = self._desk.known(token)
        return auth.token_for(caller) if caller else None


def _hash_credential(credential: str) -> bytes:
    return hashlib.sha256(credential.encode()).digest()
