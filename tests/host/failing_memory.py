"""A module with memory's session tools that fail as configured."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field

from butlers import app
from butlers.caller import Caller
from butlers.config import ModuleConfig
from butlers.contract import Check, Job, Spawner, Tool, tool
from butlers.db import Database
from butlers.errors import Conflict, Unavailable
from butlers.migrate import Branch


class FailingMemoryConfig(ModuleConfig):
    """How each tool fails; by default it works."""

    context: str = "well"
    episode: str = "well"


class FailingMemory:
    """The configuration and the calls that were made."""

    def __init__(self, config: FailingMemoryConfig) -> None:
        self.config = config
        self.contexts: list[Mapping[str, Any]] = []
        self.episodes: list[Mapping[str, Any]] = []


ToolAnswer = str | int | list[str] | dict[str, Any] | None
ANSWERS: dict[str, ToolAnswer] = {
    "a number": 7,
    "nothing": None,
    "a list": ["# Memory Context"],
    "an object": {"block": "# Memory Context"},
    "an object named like an answer": {"result": 7},
}


async def _behave(how: str) -> ToolAnswer:
    if how == "conflict":
        raise Conflict("the memory is in use", hint="Wait.")
    if how == "unavailable":
        raise Unavailable("the database can't be reached")
    if how == "broken":
        raise KeyError("a private word")
    if how == "slow":
        await asyncio.sleep(60)
    if how == "deaf":
        # Delays its cancellation.
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.5)
            raise
    return ANSWERS.get(how, "# Memory Context\n\n## Key Facts\n- [user] [tea]: a private green tea\n")


@tool(read_only=True)
async def memory_context(
    state: FailingMemory, caller: Caller, trigger_prompt: str, butler: Annotated[str, Field(min_length=1)]
) -> ToolAnswer:
    """Return a context block, or fail."""
    state.contexts.append({"trigger_prompt": trigger_prompt, "butler": butler, "caller": caller})
    return await _behave(state.config.context)


@tool()
async def memory_store_episode(
    state: FailingMemory, caller: Caller, content: str, butler: str, session_id: str, idempotency_key: str
) -> ToolAnswer:
    """Record the episode, or fail."""
    episode = {"content": content, "butler": butler, "session_id": session_id, "idempotency_key": idempotency_key}
    state.episodes.append({**episode, "caller": caller})
    return await _behave(state.config.episode)


class FailingMemoryModule:
    """The module in place of memory."""

    name: ClassVar[str] = "failing_memory"
    dependencies: ClassVar[tuple[str, ...]] = ()
    config_model: ClassVar[type[ModuleConfig]] = FailingMemoryConfig
    branch: ClassVar[Branch | None] = None

    def __init__(self) -> None:
        self.state: Any = None

    async def on_startup(self, config: ModuleConfig, database: Database, butler: str, spawner: Spawner) -> None:
        assert isinstance(config, FailingMemoryConfig)
        self.state = FailingMemory(config)

    async def on_shutdown(self) -> None:
        pass

    def tools(self) -> Sequence[Tool]:
        return (memory_context, memory_store_episode)

    def jobs(self) -> Sequence[Job]:
        return ()

    async def gauges(self) -> Mapping[str, float]:
        return {}

    async def checks(self) -> Sequence[Check]:
        return ()


MODULES = (*app.MODULES, FailingMemoryModule)
