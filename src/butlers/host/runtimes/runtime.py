"""Runtime protocol, and the task and result of a session."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from butlers.contract import Usage
from butlers.errors import TimedOut

SERVER_NAME = "butler"
"""Name of the butler's MCP server in a session."""
MAX_ANSWER_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class McpAccess:
    """URL and headers with which a session reaches the butler's tools."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def configuration(self) -> dict[str, Any]:
        """Return the access in the configuration format of MCP clients."""
        server = {"type": "http", "url": self.url, "headers": dict(self.headers)}
        return {"mcpServers": {SERVER_NAME: server}}


@dataclass(frozen=True, slots=True)
class SessionTask:
    """A session's prompt, system prompt, tools and time limit."""

    session_id: UUID
    prompt: str
    seconds: float
    system_prompt: str = ""
    mcp: McpAccess | None = None


@dataclass(frozen=True, slots=True)
class RuntimeResult:
    """A session's answer, with the runtime's own id and token usage if the runtime reports them."""

    text: str
    session_id: str | None = None
    usage: Usage | None = None


class Runtime(Protocol):
    """A program or model that runs sessions."""

    @property
    def name(self) -> str:
        """The name in records: claude, command or openai."""

    def check(self) -> None:
        """Return if a session can be started; raise `Unavailable` with what is missing."""

    async def run(self, task: SessionTask) -> RuntimeResult:
        """Run a session; raise `Unavailable`, `SessionFailed` or `TimedOut`. Cancelling it ends all its processes."""


def session_timeout(seconds: float) -> TimedOut:
    """Return the fault of a session that exceeded its time limit."""
    return TimedOut(
        f"the session took longer than {seconds:g} s", hint="Raise butler.runtime.timeout_seconds for long work."
    )


def token_count(value: Any) -> int:
    """Return a reported number of tokens; 0 for anything that is not a positive integer."""
    return value if isinstance(value, int) and value > 0 else 0
