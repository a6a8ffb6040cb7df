"""What host and modules promise each other: Module, Tool, Job, Spawner, Branch."""

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
"""core: what every agent sees; full: the further tools that configuration turns on."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function an agent may call; its first two arguments, the module's state and the caller, stay hidden."""

    function: Callable[..., Awaitable[Any]]
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    toolset: Toolset = "core"
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Other names an argument is understood by, without standing in the schema."""

    @property
    def name(self) -> str:
        """The name agents call it by."""
        return self.function.__name__


def tool(
    *,
    read_only: bool = False,
    destructive: bool = False,
    idempotent: bool = False,
    toolset: Toolset = "core",
    aliases: Mapping[str, str] | None = None,
) -> Callable[[Callable[..., Awaitable[Any]]], Tool]:
    """Declare a tool: its wording is the docstring, its arguments are everything after state and caller."""

    def declare(function: Callable[..., Awaitable[Any]]) -> Tool:
        return Tool(function, read_only, destructive, idempotent, toolset, aliases or {})

    return declare


@dataclass(slots=True)
class RowCount:
    """Rows a call asked for and got; the two drift apart when a search loses rows it should have found."""

    asked: int = 0
    returned: int = 0


current_row_count: ContextVar[RowCount] = ContextVar("current_tally")


def count_rows(*, asked: int, returned: int) -> None:
    """Note how many rows the call being served asked for and got."""
    tally = current_row_count.get(None)
    if tally is not None:
        tally.asked += asked
        tally.returned += returned


JobResult = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """Work that runs on a schedule, on one process at a time; its result is kept in the run's record."""

    name: str
    cron: str
    run: Callable[[Caller], Awaitable[JobResult]]
    shared: bool = True
    """Whether it is one job for all butlers of a database, or each butler's own."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens a session took."""

    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class SessionResult:
    """A session that came to its end: what it said, and what it took where the runtime tells."""

    session_id: UUID
    text: str
    usage: Usage | None = None


class Spawner(Protocol):
    """Starts sessions of the butler's runtime."""

    def check(self) -> None:
        """Return when sessions can be started; raise `Unavailable` with what is missing."""

    async def spawn(
        self, caller: Caller, prompt: str, *, trigger_source: str, internal: bool = False
    ) -> SessionResult:
        """Run one session to its end. An internal one is the system's own: without memory before or after it.

        Raises `SessionFailed` or `TimedOut` when it came to nothing; cancelled, it ends with all it started.
        """


@dataclass(frozen=True, slots=True)
class Check:
    """One line of `butlers doctor`: what was looked at, how it is, and how to mend it."""

    name: str
    state: Literal["ok", "warn", "fail"]
    found: str
    fix: str = ""


class Module(Protocol):
    """A capability a butler can load. `host` knows it through this alone."""

    name: ClassVar[str]
    dependencies: ClassVar[tuple[str, ...]]
    config_model: ClassVar[type[ModuleConfig]]
    branch: ClassVar[Branch | None]

    @property
    def state(self) -> Any:
        """What each of its tools receives first."""

    async def on_startup(self, config: ModuleConfig, database: Database, butler: str, spawner: Spawner) -> None:
        """Take configuration, database and what starts sessions; raise to stop the butler from starting."""

    async def on_shutdown(self) -> None:
        """Let go of everything; called also when this module, or a later one, failed to start."""

    def tools(self) -> Sequence[Tool]:
        """The tools its configuration turns on."""

    def jobs(self) -> Sequence[Job]:
        """The jobs its configuration schedules."""

    async def gauges(self) -> Mapping[str, float]:
        """Numbers for /metrics, read when somebody asks."""

    async def checks(self) -> Sequence[Check]:
        """What it can say about its own health, for `butlers doctor`."""
