"""The memory module: its tools, jobs, gauges and checks."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import ClassVar

from butlers.caller import Caller
from butlers.config import ModuleConfig
from butlers.contract import Check, Job, JobResult, Spawner, Tool
from butlers.db import Database
from butlers.environment import read_environment
from butlers.errors import Unavailable
from butlers.migrate import Branch
from butlers.modules.memory.config import MemoryModuleConfig
from butlers.modules.memory.embedding import get_embedding_engine
from butlers.modules.memory.migrations import MEMORY
from butlers.modules.memory.operations import (
    cleanup,
    consolidation,
    decay_sweep,
    index_upkeep,
    receipts,
    reembedding,
)
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.tools import TOOLS, configured_defaults

_CHECK_TENANT = "default"
# The first use writes and loads the model, which takes seconds.
_MODEL_TIMEOUT_SECONDS = 60.0


class MemoryModule:
    """Episodes, facts and rules for the sessions of one butler."""

    name: ClassVar[str] = "memory"
    dependencies: ClassVar[tuple[str, ...]] = ()
    config_model: ClassVar[type[ModuleConfig]] = MemoryModuleConfig
    branch: ClassVar[Branch | None] = MEMORY

    def __init__(self) -> None:
        self._memory: Memory | None = None

    @property
    def state(self) -> Memory:
        """The running memory; raises Unavailable before startup and after shutdown."""
        if self._memory is None:
            raise Unavailable("memory is not running")
        return self._memory

    async def on_startup(self, config: ModuleConfig, database: Database, butler: str, spawner: Spawner) -> None:
        """Build the memory; the built-in embedding model is fetched in the background and loaded on first use."""
        if not isinstance(config, MemoryModuleConfig):
            raise TypeError(type(config).__name__)
        engine = get_embedding_engine(read_environment().home, config.embedding.onnx_folder)
        if config.embedding.onnx_folder is not None:
            # A configured model has to work before anything is stored with it.
            await engine.ready()
        engine.start_fetch()
        self._memory = Memory(database, engine, config, butler, spawner)

    async def on_shutdown(self) -> None:
        """Store the receipts that are pending, cancel the background tasks and drop the memory."""
        if self._memory is not None:
            await receipts.close(self._memory)
            tasks = list(self._memory.background)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self._memory = None

    def tools(self) -> Sequence[Tool]:
        """The tools of the configured toolset."""
        config = self.state.config
        toolsets = ("core", "full") if config.toolset == "full" else ("core",)
        defaults = configured_defaults(config)
        return [replace(tool, defaults=defaults.get(tool.name, {})) for tool in TOOLS if tool.toolset in toolsets]

    def jobs(self) -> Sequence[Job]:
        """The jobs of the configured schedule."""
        schedule = self.state.config.schedule
        return (
            Job("consolidate", schedule.consolidate, self._consolidate),
            Job("consolidation_retry", schedule.consolidation_retry, partial(self._consolidate, retries=True)),
            Job("decay_sweep", schedule.decay_sweep, self._for_all_tenants(decay_sweep.sweep, decay_sweep.ACTOR)),
            Job("episode_cleanup", schedule.episode_cleanup, self._for_all_tenants(cleanup.clean_up, cleanup.ACTOR)),
            Job("reembed", schedule.reembed, self._for_all_tenants(reembedding.reembed, reembedding.ACTOR)),
            Job(
                "index_upkeep",
                schedule.index_upkeep,
                partial(index_upkeep.maintain_indexes, self.state),
                is_due_early=partial(index_upkeep.has_outgrown, self.state)
                if self.state.database.has_owner
                else None,
            ),
        )

    def _for_all_tenants(
        self, operation: Callable[..., Awaitable[JobResult]], actor: str
    ) -> Callable[[Caller], Awaitable[JobResult]]:
        return lambda caller: operation(self.state, replace(caller, actor=actor), all_tenants=True)

    async def _consolidate(self, caller: Caller, *, retries: bool = False) -> JobResult:
        """Consolidate the episodes of all tenants; the result has counts only, no content."""
        worker = replace(caller, actor=consolidation.ACTOR)
        result = await consolidation.consolidate(self.state, worker, all_tenants=True, retries=retries)
        return {name: value for name, value in result.items() if name not in {"learned", "errors"}}

    async def gauges(self) -> Mapping[str, float]:
        """The consolidation backlog: pending, failed and dead-lettered episodes, and the age of the oldest."""
        [row] = await self.state.database.fetch_across_tenants("select * from memory_backlog()")
        oldest = row["oldest_pending"]
        return {
            "episodes_pending": row["pending"],
            "episodes_failed": row["failed"],
            "episodes_dead_letter": row["dead_letter"],
            "backlog_age_seconds": (datetime.now(UTC) - oldest).total_seconds() if oldest else 0.0,
        }

    async def checks(self) -> Sequence[Check]:
        """The checks of `butlers doctor`."""
        return [await self._check_model(), await self._check_backlog(), await self._check_indexes()]

    async def _check_model(self, seconds: float = _MODEL_TIMEOUT_SECONDS) -> Check:
        version = self.state.embedder.version
        try:
            async with asyncio.timeout(seconds):
                await self.state.embedder.embed("Is the model there?")
        except Unavailable as fault:
            return Check("model", "fail", fault.message, fault.hint)
        except TimeoutError:
            problem = f"the embedding model did not answer within {seconds:g} s"
            return Check("model", "fail", problem, "Check the load of the machine, then try again.")
        return Check("model", "ok", f"{version.model} {version.version}, {version.dimensions} dimensions")

    async def _check_backlog(self) -> Check:
        backlog = await self.gauges()
        pending = int(backlog["episodes_pending"] + backlog["episodes_failed"])
        dead, hours = int(backlog["episodes_dead_letter"]), backlog["backlog_age_seconds"] / 3600
        parts = [f"{pending} pending episodes, the oldest for {hours:.1f} h"] if pending else []
        return Check(
            "backlog",
            "warn" if dead else "ok",
            "; ".join([*parts, *([f"{dead} dead-lettered"] if dead else [])]) or "no pending episodes",
            "Run `butlers memory dead-letters DIR` to see why, and again with --retry to retry them." if dead else "",
        )

    async def _check_indexes(self) -> Check:
        """Check that no index waits for the owner: the job rebuilds it only in a process that knows the owner."""
        caller = Caller(tenant=_CHECK_TENANT, butler=self.state.butler, actor="doctor")
        outgrown = (await index_upkeep.report_outgrown(self.state, caller))["outgrown"]
        if outgrown and not self.state.database.has_owner:
            found = f"{', '.join(outgrown)} outgrew the vector index, and this process can't rebuild it"
            fix = "Run `butlers jobs run DIR index_upkeep` with BUTLERS_ADMIN_DATABASE_URL set to the owner."
            return Check("vector indexes", "warn", found, fix)
        waiting = f"index_upkeep rebuilds that of {', '.join(outgrown)}" if outgrown else "they fit their tables"
        return Check("vector indexes", "ok", waiting)
