"""Spawner of sessions: memory before and after each session, and its record."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from butlers.caller import Caller
from butlers.config import SessionsConfig
from butlers.contract import SessionResult, StartCallback
from butlers.db import Database
from butlers.errors import Fault, SessionFailed, TimedOut
from butlers.host import session_records
from butlers.host.leases import hold_lease
from butlers.host.runtimes.runtime import Runtime, RuntimeResult, SessionTask
from butlers.host.session_queue import QueueSlot, SessionQueue
from butlers.host.session_records import NewSession, SessionOutcome
from butlers.session_summary import summarize_session

if TYPE_CHECKING:
    from butlers.host.local_client import LocalToolClient
    from butlers.host.metrics import Metrics
    from butlers.host.session_gateway import SessionGateway

log = logging.getLogger("butlers.sessions")
MANUAL_FILE = "CLAUDE.md"
MAX_REPLY_SECONDS = 20.0
_CONTEXT_TOOL, _EPISODE_TOOL = "memory_context", "memory_store_episode"


@dataclass(slots=True)
class SessionRun:
    """State of a running session."""

    session: NewSession
    caller: Caller
    on_start: StartCallback | None = None
    recorded: bool = False
    injected: str = ""
    tools: dict[str, int] = field(default_factory=dict)


class SessionSpawner:
    """Runs the sessions of one butler."""

    def __init__(
        self,
        runtime: Runtime,
        database: Database,
        seconds: float,
        *,
        folder: Path | None = None,
        config: SessionsConfig | None = None,
        reply_seconds: float = MAX_REPLY_SECONDS,
    ) -> None:
        self._runtime = runtime
        self._database = database
        self._seconds = seconds
        self._folder = folder
        self.reply_seconds = min(reply_seconds, MAX_REPLY_SECONDS)
        self._config = config = config or SessionsConfig()
        self.local_client: LocalToolClient | None = None
        self.gateway: SessionGateway | None = None
        self.metrics: Metrics | None = None
        self._queue = SessionQueue(config.max_concurrent, config.max_queued)
        self._instance = uuid4()
        self._instance_guard = asyncio.Lock()
        self._active = 0
        self._instance_lease: contextlib.AsyncExitStack | None = None
        self._background: set[asyncio.Task[SessionResult]] = set()

    def attach(self, local_client: "LocalToolClient", gateway: "SessionGateway", metrics: "Metrics") -> None:
        """Give later sessions the butler's tools, and memory before and after them; count their tokens."""
        self.local_client, self.gateway, self.metrics = local_client, gateway, metrics

    def check(self) -> None:
        """Return if sessions can be started; raise `Unavailable` with what is missing."""
        self._runtime.check()

    async def recover(self, caller: Caller) -> None:
        """Mark the unfinished sessions of killed processes as lost."""
        try:
            if lost := await session_records.mark_lost_sessions(self._database, caller):
                log.warning("%d sessions of a butler that was killed are marked as lost", lost)
        except Fault as fault:
            log.warning("sessions of killed butlers could not be marked as lost: %s", fault.message)

    @contextlib.asynccontextmanager
    async def recover_regularly(self, caller: Caller, seconds: float) -> AsyncIterator[None]:
        """Mark the sessions of killed processes as lost now and every `seconds`, until the block ends."""

        async def repeat() -> None:
            while True:
                await asyncio.sleep(seconds)
                await self.recover(caller)

        await self.recover(caller)
        repeating = asyncio.create_task(repeat())
        try:
            yield
        finally:
            repeating.cancel()
            await asyncio.gather(repeating, return_exceptions=True)

    def keep_in_background(self, task: "asyncio.Task[SessionResult]") -> None:
        """Let a session run without its caller; its outcome is in its record."""
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        task.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def stop(self) -> None:
        """Cancel the sessions in the background."""
        tasks = list(self._background)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def spawn(
        self,
        caller: Caller,
        prompt: str,
        *,
        trigger_source: str,
        internal: bool = False,
        on_start: StartCallback | None = None,
        session_id: UUID | None = None,
    ) -> SessionResult:
        """Run one session and return its result, when it is its tenant's turn.

        Raises `Overloaded`, `Unavailable`, `SessionFailed` or `TimedOut`.
        """
        session = NewSession(session_id or uuid4(), trigger_source, prompt, self._runtime.name, internal)
        run = SessionRun(session, caller, on_start)
        # The slot is taken before the first await, so that a tenant's sessions start in the order of their requests.
        with self._queue.slot(caller.tenant) as slot:
            async with self._hold_instance_lease(run):
                return await self._run(run, slot)

    async def get(self, caller: Caller, session_id: UUID) -> dict[str, Any]:
        """Return the record of a session. Raises `NotFound`."""
        return await session_records.get_session(self._database, caller, session_id)

    async def _wait_for_start(self, run: SessionRun, slot: QueueSlot) -> None:
        """Record the session, and return when it may start."""
        if self._instance_lease is not None:
            begin = session_records.begin_session(
                self._database, run.caller, run.session, self._instance, waiting=slot.waits
            )
            run.recorded = await self._try_record(run, begin)
        await slot.start.wait()
        if slot.waits and run.recorded:
            await _record_or_warn(session_records.start_session(self._database, run.caller, run.session.id))
        if run.on_start is not None:
            await run.on_start()

    async def _run(self, run: SessionRun, slot: QueueSlot) -> SessionResult:
        try:
            await self._wait_for_start(run, slot)
            result = await self._call_runtime(run)
        except asyncio.CancelledError:
            await asyncio.shield(self._finish(run, "cancelled", error="it was cancelled"))
            raise
        except Fault as fault:
            outcome: SessionOutcome = "timed_out" if isinstance(fault, TimedOut) else "failed"
            await self._finish(run, outcome, error=fault.message)
            # After another fault the session did not start, so there is nothing to remember.
            if isinstance(fault, (SessionFailed, TimedOut)):
                await self._store_episode(run, outcome, error=fault.message)
            raise
        except Exception as error:
            await self._finish(run, "failed", error=type(error).__name__)
            raise SessionFailed(f"the session failed with {type(error).__name__}") from error
        await self._finish(run, "succeeded", result)
        await self._store_episode(run, "succeeded", answer=result.text)
        return SessionResult(run.session.id, result.text, result.usage)

    async def _call_runtime(self, run: SessionRun) -> RuntimeResult:
        """Return the runtime's result; a session that is not internal gets the manual, memories and tools."""
        session = run.session
        task = SessionTask(session.id, session.prompt, self._seconds)
        if session.internal:
            return await self._runtime.run(task)
        run.injected = await self._memory_context(run)
        task = replace(task, system_prompt="\n\n".join(filter(None, (self._manual(), run.injected))))
        if self.gateway is None:
            return await self._runtime.run(task)
        async with self.gateway.grant(run.caller, session.id) as (access, grant):
            try:
                return await self._runtime.run(replace(task, mcp=access))
            finally:
                run.tools = dict(grant.calls)

    def _manual(self) -> str:
        try:
            return (self._folder / MANUAL_FILE).read_text(encoding="utf-8").strip() if self._folder else ""
        except FileNotFoundError:
            return ""
        except (OSError, UnicodeDecodeError) as error:
            log.warning("%s can't be read, the session starts without it: %s", MANUAL_FILE, type(error).__name__)
            return ""

    async def _memory_context(self, run: SessionRun) -> str:
        """Return the memories for the prompt; on any error, warn and return an empty text."""
        if self.local_client is None or not self.local_client.has(_CONTEXT_TOOL):
            return ""
        arguments = {"trigger_prompt": run.session.prompt, "butler": run.caller.butler}
        caller = replace(run.caller, session_id=str(run.session.id))
        try:
            async with asyncio.timeout(self._config.memory_timeout_seconds):
                return str.strip(await self.local_client.call(caller, _CONTEXT_TOOL, arguments))
        except Exception as error:  # noqa: BLE001 — an error of memory must not stop the session
            _warn("the session starts without its memories", run, error)
            return ""

    async def _store_episode(
        self, run: SessionRun, outcome: SessionOutcome, *, answer: str = "", error: str = ""
    ) -> None:
        """Store the session's summary as an episode; on any error, warn."""
        session = run.session
        if session.internal or self.local_client is None or not self.local_client.has(_EPISODE_TOOL):
            return
        details = {"outcome": outcome, "trigger_source": session.trigger_source}
        caller = replace(run.caller, session_id=str(session.id), details=details)
        episode = {
            "content": summarize_session(session.prompt, run.tools, run.injected, answer=answer, error=error),
            "butler": run.caller.butler,
            "session_id": str(session.id),
            "idempotency_key": f"session {session.id}",
        }
        try:
            async with asyncio.timeout(self._config.memory_timeout_seconds):
                await self.local_client.call(caller, _EPISODE_TOOL, episode)
        except Exception as failure:  # noqa: BLE001 — an error of memory must not fail the session
            _warn("the session ends without an episode", run, failure)

    @contextlib.asynccontextmanager
    async def _hold_instance_lease(self, run: SessionRun) -> AsyncIterator[None]:
        """Hold the lease that shows this process is alive, shared by all its active sessions."""
        self._active += 1
        try:
            async with self._instance_guard:
                if self._instance_lease is None:
                    await self._try_record(run, self._take_lease())
            yield
        finally:
            await asyncio.shield(self._release_lease())

    async def _take_lease(self) -> None:
        lease = contextlib.AsyncExitStack()
        await lease.enter_async_context(
            hold_lease(self._database, session_records.instance_lease_name(self._instance))
        )
        self._instance_lease = lease

    async def _release_lease(self) -> None:
        async with self._instance_guard:
            self._active -= 1
            if not self._active and self._instance_lease is not None:
                lease, self._instance_lease = self._instance_lease, None
                await lease.aclose()

    async def _try_record(self, run: SessionRun, write: Awaitable[None]) -> bool:
        """Return whether the write succeeded. Only an internal session raises its fault."""
        try:
            await write
        except Fault as fault:
            if run.session.internal:
                raise
            _warn("the session goes on without a record", run, fault)
            return False
        return True

    async def _finish(
        self, run: SessionRun, outcome: SessionOutcome, result: RuntimeResult | None = None, error: str | None = None
    ) -> None:
        """Record and log the outcome; a failed write must not lose the answer."""
        session = run.session
        if run.recorded:
            write = session_records.finish_session(
                self._database, run.caller, session, outcome, result, error, run.tools
            )
            await _record_or_warn(write)
        if self.metrics is not None:
            self.metrics.count_session(session.trigger_source, outcome, result.usage if result else None)
        extra = {"session": str(session.id), "source": session.trigger_source, "outcome": outcome}
        log.info("session", extra=extra)


async def _record_or_warn(write: Awaitable[None]) -> None:
    try:
        await write
    except Fault as fault:
        log.warning("a session's record could not be updated: %s", fault.message)


def _warn(message: str, run: SessionRun, error: Exception) -> None:
    """Log a warning with the session and a fault's message, or only the type of another error."""
    reason = error.message if isinstance(error, Fault) else type(error).__name__
    log.warning(message, extra={"session": str(run.session.id), "reason": reason})
