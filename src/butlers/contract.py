"""The interface between host and modules: Module, Tool, Job, Spawner, Check."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol
from uuid import UUID

from butlers.caller import Caller
from butlers.config import ModuleConfig
from butlers.db import Database
from butlers.migrate import Branch

Toolset = Literal["core", "full"]
"""core: shown to every agent; full: additional tools that the configuration enables."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that agents call; the first two arguments, state and caller, are not in its schema."""

    function: Callable[..., Awaitable[Any]]
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    toolset: Toolset = "core"
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Accepted alternative names of arguments; they are not in the schema."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Defaults that the configuration sets, by argument; the schema shows them."""
    open_to_readers: bool = False
    """Whether the tool, though not read-only, changes nothing for a caller with the role reader."""

    def is_allowed(self, caller: Caller) -> bool:
        """Whether the roles of the caller allow the tool: a reader may only read."""
        return self.read_only or self.open_to_readers or not caller.is_reader

    @property
    def name(self) -> str:
        """The name that agents use."""
        return self.function.__name__


def tool(
    *,
    read_only: bool = False,
    destructive: bool = False,
    idempotent: bool = False,
    toolset: Toolset = "core",
    aliases: Mapping[str, str] | None = None,
    open_to_readers: bool = False,
) -> Callable[[Callable[..., Awaitable[Any]]], Tool]:
    """Declare a tool: its docstring is the description, its arguments follow the state and the caller."""
    return lambda function: Tool(
        function,
        read_only=read_only,
        destructive=destructive,
        idempotent=idempotent,
        toolset=toolset,
        aliases=aliases or {},
        open_to_readers=open_to_readers,
    )


@dataclass(slots=True)
class RowCount:
    """Rows that a call requested and received; a gap between them shows a search that misses rows."""

    asked: int = 0
    returned: int = 0


current_row_count: ContextVar[RowCount] = ContextVar("current_row_count")


def count_rows(*, asked: int, returned: int) -> None:
    """Add to the rows that the current call requested and received."""
    row_count = current_row_count.get(None)
    if row_count is not None:
        row_count.asked += asked
        row_count.returned += returned


current_notes: ContextVar[list[str]] = ContextVar("current_notes")


def add_note(note: str) -> None:
    """Add a sentence to the current call's answer that tells its reader how far to rely on it."""
    notes = current_notes.get(None)
    if notes is not None:
        notes.append(note)


JobResult = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """Scheduled work that runs in one process at a time; the run's record stores its result."""

    name: str
    cron: str
    run: Callable[[Caller], Awaitable[JobResult]]
    shared: bool = True
    """Whether the butlers of a database share the job; otherwise each butler runs its own."""
    is_due_early: Callable[[Caller], Awaitable[bool]] | None = None
    """Whether the job has work that should not wait for its time; asked every few seconds, so it has to be cheap."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens that a session used."""

    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class SessionResult:
    """The answer of a session, and its usage if the runtime reports it."""

    session_id: UUID
    text: str
    usage: Usage | None = None


StartCallback = Callable[[], Awaitable[None]]


class Spawner(Protocol):
    """The service that starts sessions of the butler's runtime."""

    def check(self) -> None:
        """Raise `Unavailable`, naming what is missing, if no session can be started."""

    async def spawn(
        self,
        caller: Caller,
        prompt: str,
        *,
        trigger_source: str,
        internal: bool = False,
        on_start: StartCallback | None = None,
    ) -> SessionResult:
        """Run one session and return its result; an internal one neither reads nor stores memories.

        `on_start` is awaited when the session's turn has come, before the runtime is called.

        Raises `SessionFailed` or `TimedOut` if the session ran, `Overloaded` or `Unavailable` if it did not.
        Cancelling it ends every process that it started.
        """


@dataclass(frozen=True, slots=True)
class Check:
    """One line of `butlers doctor`: the thing checked, its state, and the fix."""

    name: str
    state: Literal["ok", "warn", "fail"]
    found: str
    fix: str = ""


class Module(Protocol):
    """A capability that a butler can load; `host` uses modules through this protocol only."""

    name: ClassVar[str]
    dependencies: ClassVar[tuple[str, ...]]
    config_model: ClassVar[type[ModuleConfig]]
    branch: ClassVar[Branch | None]

    @property
    def state(self) -> Any:
        """The first argument of each of its tools."""

    async def on_startup(self, config: ModuleConfig, database: Database, butler: str, spawner: Spawner) -> None:
        """Start the module; an exception keeps the butler from starting."""

    async def on_shutdown(self) -> None:
        """Release all resources; also called after this module, or a later one, failed to start."""

    def tools(self) -> Sequence[Tool]:
        """Return the tools that its configuration enables."""

    def jobs(self) -> Sequence[Job]:
        """Return the jobs that its configuration schedules."""

    async def gauges(self) -> Mapping[str, float]:
        """Return the numbers for /metrics; called for each request."""

    async def checks(self) -> Sequence[Check]:
        """Return the module's checks for `butlers doctor`."""
