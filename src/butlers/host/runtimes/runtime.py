"""What thinks in a session: a prompt goes in, an answer comes out, whatever stands behind it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from butlers.contract import Usage
from butlers.errors import TimedOut

SERVER_NAME = "butler"
"""What a session calls the butler's own MCP server."""
MOST_ANSWER_BYTES = 8 * 1024 * 1024
"""An answer longer than this is no answer."""


@dataclass(frozen=True, slots=True)
class McpAccess:
    """How a session reaches the butler's own tools, and no others."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def configuration(self) -> dict[str, Any]:
        """The same as MCP clients read it."""
        server = {"type": "http", "url": self.url, "headers": dict(self.headers)}
        return {"mcpServers": {SERVER_NAME: server}}


@dataclass(frozen=True, slots=True)
class SessionTask:
    """What a session is asked, what it should know, which tools it has and how long it may take."""

    session_id: UUID
    prompt: str
    seconds: float
    system_prompt: str = ""
    mcp: McpAccess | None = None


@dataclass(frozen=True, slots=True)
class RuntimeResult:
    """What a session answered, the runtime's own id for it, and the tokens it took where the runtime tells."""

    text: str
    session_id: str | None = None
    usage: Usage | None = None


class Runtime(Protocol):
    """Whatever can run a session."""

    @property
    def name(self) -> str:
        """Its name in records: claude, command or openai."""

    def check(self) -> None:
        """Return when a session can be started; raise `Unavailable` with what is missing."""

    async def run(self, task: SessionTask) -> RuntimeResult:
        """One session; raises `Unavailable`, `SessionFailed` or `TimedOut`. Cancelled, it leaves nothing running."""


def session_timeout(seconds: float) -> TimedOut:
    """The fault of a session over its time."""
    return TimedOut(
        f"the session took longer than {seconds:g} s", hint="Raise butler.runtime.timeout_seconds for long work."
    )
