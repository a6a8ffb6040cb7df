"""Starts sessions of the butler's runtime, with memory around each: what it should know before, what it did after."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from butlers.caller import Caller
from butlers.config import SessionsConfig
from butlers.contract import SessionResult
from butlers.db import Database
from butlers.errors import Fault, Overloaded, SessionFailed, TimedOut
from butlers.host import session_records
from butlers.host.runtimes.runtime import Runtime, RuntimeResult, SessionTask
from butlers.host.session_records import NewSession, SessionOutcome
from butlers.host.session_summary import summarize_session

if TYPE_CHECKING:
    from butlers.host.local_client import LocalToolClient
    from butlers.host.session_gateway import SessionGateway

log = logging.getLogger("butlers.sessions")
MANUAL_FILE = "CLAUDE.md"
MAX_WAIT_SECONDS = 20.0
_CONTEXT_TOOL, _EPISODE_TOOL = "memory_context", "memory_store_episode"


@dataclass(slots=True)
class SessionRun:
    """How a session went so far."""

    session: NewSession
    caller: Caller
    recorded: bool = False
    injected: str = ""
    tools: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueueSlot:
    """A session's place among those that were asked for."""

    waits: bool
    turn: "asyncio.Future[Any]"


class SessionSpawner:
    """The spawner of one butler."""

    def __init__(
        self,
        runtime: Runtime,
        database: Database,
        seconds: float,
        *,
        folder: Path | None = None,
        config: SessionsConfig | None = None,
        patience: float = MAX_WAIT_SECONDS,
    ) -> None:
        self._runtime = runtime
        self._database = database
        self._seconds = seconds
        self._folder = folder
        self.patience = min(patience, MAX_WAIT_SECONDS)
        self._config = config = config or SessionsConfig()
        self.own: LocalToolClient | None = None
        self.desk: SessionGateway | None = None
        self._turns = asyncio.Semaphore(config.most_at_once)
        self._asked_for = 0
        self._instance = uuid4()
        self._counting = asyncio.Lock()
        self._under_way = 0
        self._lock: contextlib.AsyncExitStack | None = None
        self._running: set[asyncio.Task[SessionResult]] = set()

    def attach(self, own: "LocalToolClient", desk: "SessionGateway") -> None:
        """From now on sessions have the butler's tools, and memory around them."""
        self.own, self.desk = own, desk

    def check(self) -> None:
        """Return when sessions can be started; raise `Unavailable` with what is missing."""
        self._runtime.check()

    async def recover(self, caller: Caller) -> None:
        """Mark the sessions of processes that were killed."""
        try:
            if lost := await session_records.mark_lost_sessions(self._database, caller):
                log.warning("%d sessions of a butler that was killed are marked as lost", lost)
        except Fault as fault:
            log.warning("sessions of earlier butlers could not be looked at: %s", fault.message)

    def background(self, running: "asyncio.Task[SessionResult]") -> None:
        """Keep a session whose caller does not wait for it; whatever becomes of it is in its record."""
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        running.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def stop(self) -> None:
        """End the sessions nobody waits for."""
        running = list(self._running)
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def spawn(
        self,
        caller: Caller,
        prompt: str,
        *,
        trigger_source: str,
        internal: bool = False,
        session_id: UUID | None = None,
    ) -> SessionResult:
        """Run one session to its end, after those that were asked for before it."""
        session = NewSession(session_id or uuid4(), trigger_source, prompt, self._runtime.name, internal)
        course = SessionRun(session, caller)
        # The place is taken before anything is awaited: several may ask in the same moment.
        with self._placed() as place:
            async with self._alive(course):
                return await self._ran(course, place)

    async def get(self, caller: Caller, session_id: UUID) -> dict[str, Any]:
        """The record of one session."""
        return await session_records.get_session(self._database, caller, session_id)

    @contextlib.contextmanager
    def _placed(self) -> Iterator[QueueSlot]:
        """A place in the order the sessions are asked for, where there is one."""
        waiting = max(0, self._asked_for - self._config.most_at_once)
        waits = self._asked_for >= self._config.most_at_once
        if waits and waiting >= self._config.most_waiting:
            raise Overloaded(
                f"{waiting} sessions wait already", hint="Retry later, or raise butler.sessions.most_waiting."
            )
        self._asked_for += 1
        turn = asyncio.ensure_future(self._turns.acquire())
        try:
            yield QueueSlot(waits, turn)
        finally:
            self._asked_for -= 1
            if not turn.cancel() and not turn.cancelled():
                self._turns.release()

    async def _wait(self, course: SessionRun, place: QueueSlot) -> None:
        """Write down that the session was asked for, and return when there is room for it."""
        await self._begin(course, waiting=place.waits)
        await place.turn
        if place.waits and course.recorded:
            await self._noted(session_records.start_session(self._database, course.caller, course.session.id))

    async def _ran(self, course: SessionRun, place: QueueSlot) -> SessionResult:
        try:
            await self._wait(course, place)
            outcome = await self._answered(course)
        except asyncio.CancelledError:
            await asyncio.shield(self._end(course, "cancelled", error="it was cancelled"))
            raise
        except (SessionFailed, TimedOut) as fault:
            ending: SessionOutcome = "timed_out" if isinstance(fault, TimedOut) else "failed"
            await self._end(course, ending, error=fault.message)
            await self._remember(course, ending, error=fault.message)
            raise
        except Fault as fault:
            # It could not even start: nothing happened that could be remembered.
            await self._end(course, "failed", error=fault.message)
            raise
        except Exception as error:
            await self._end(course, "failed", error=type(error).__name__)
            raise SessionFailed(f"the session broke off: {type(error).__name__}") from error
        await self._end(course, "succeeded", outcome=outcome)
        await self._remember(course, "succeeded", answer=outcome.text)
        return SessionResult(course.session.id, outcome.text, outcome.usage)

    async def _answered(self, course: SessionRun) -> RuntimeResult:
        """The runtime's outcome, with the butler's manual, its memories and its tools where the session has them."""
        session = course.session
        task = SessionTask(session.id, session.prompt, self._seconds)
        if session.internal:
            return await self._runtime.run(task)
        course.injected = await self._context(course)
        task = replace(task, system_prompt="\n\n".join(filter(None, (self._manual(), course.injected))))
        if self.desk is None:
            return await self._runtime.run(task)
        async with self.desk.admitted(course.caller, session.id) as (access, visit):
            try:
                return await self._runtime.run(replace(task, mcp=access))
            finally:
                course.tools = dict(visit.calls)

    def _manual(self) -> str:
        if self._folder is None:
            return ""
        try:
            return (self._folder / MANUAL_FILE).read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return ""
        except (OSError, UnicodeDecodeError) as error:
            log.warning("%s can't be read, the session starts without it: %s", MANUAL_FILE, type(error).__name__)
            return ""

    async def _context(self, course: SessionRun) -> str:
        """What memory has for the prompt; a session starts whatever becomes of this."""
        if self.own is None or not self.own.has(_CONTEXT_TOOL):
            return ""
        asked = {"trigger_prompt": course.session.prompt, "butler": course.caller.butler}
        try:
            async with asyncio.timeout(self._config.memory_seconds):
                block = await self.own.call(course.caller, _CONTEXT_TOOL, asked)
        except Exception as error:  # noqa: BLE001 — memory around a session must never be in its way
            _missed("the session starts without its memories", course, error)
            return ""
        if not isinstance(block, str):
            _missed("the session starts without its memories", course, TypeError(type(block).__name__))
            return ""
        return block.strip()

    async def _remember(
        self, course: SessionRun, ending: SessionOutcome, *, answer: str = "", error: str = ""
    ) -> None:
        """Keep what happened; a session has ended whatever becomes of this."""
        session = course.session
        if session.internal or self.own is None or not self.own.has(_EPISODE_TOOL):
            return
        told = {"outcome": ending, "trigger_source": session.trigger_source}
        who = replace(course.caller, session_id=str(session.id), details=told)
        episode = {
            "content": summarize_session(session.prompt, course.tools, course.injected, answer=answer, error=error),
            "butler": course.caller.butler,
            "session_id": str(session.id),
            "idempotency_key": f"session {session.id}",
        }
        try:
            async with asyncio.timeout(self._config.memory_seconds):
                await self.own.call(who, _EPISODE_TOOL, episode)
        except Exception as failure:  # noqa: BLE001 — as above
            _missed("the session ends without an episode", course, failure)

    @contextlib.asynccontextmanager
    async def _alive(self, course: SessionRun) -> AsyncIterator[None]:
        """Hold, while sessions are under way, the lock that shows that the process they belong to lives."""
        self._under_way += 1
        try:
            async with self._counting:
                if self._lock is None:
                    await self._recording(course, self._take_lock())
            yield
        finally:
            await asyncio.shield(self._left())

    async def _take_lock(self) -> None:
        lock = contextlib.AsyncExitStack()
        await lock.enter_async_context(self._database.try_lock(session_records.instance_lock_name(self._instance)))
        self._lock = lock

    async def _left(self) -> None:
        async with self._counting:
            self._under_way -= 1
            if not self._under_way and self._lock is not None:
                lock, self._lock = self._lock, None
                await lock.aclose()

    async def _begin(self, course: SessionRun, *, waiting: bool) -> None:
        """Write down that it begins."""
        if self._lock is None:
            return
        writing = session_records.begin_session(
            self._database, course.caller, course.session, self._instance, waiting=waiting
        )
        course.recorded = await self._recording(course, writing)

    async def _recording(self, course: SessionRun, writing: Awaitable[None]) -> bool:
        """Whether it was written; only what the system does for itself depends on that."""
        try:
            await writing
        except Fault as fault:
            if course.session.internal:
                raise
            _missed("the session goes on without a record", course, fault)
            return False
        return True

    async def _end(
        self,
        course: SessionRun,
        ending: SessionOutcome,
        *,
        error: str | None = None,
        outcome: RuntimeResult | None = None,
    ) -> None:
        """Write down how it ended; that it can't be written must not take the answer away."""
        if course.recorded:
            await self._noted(
                session_records.finish_session(
                    self._database,
                    course.caller,
                    course.session,
                    ending,
                    runtime_session_id=outcome.session_id if outcome else None,
                    usage=outcome.usage if outcome else None,
                    answer=outcome.text if outcome else None,
                    error=error,
                )
            )
        source = course.session.trigger_source
        log.info("session", extra={"session": str(course.session.id), "source": source, "outcome": ending})

    async def _noted(self, writing: Any) -> None:
        try:
            await writing
        except Fault as fault:
            log.warning("a session's record could not be kept up to date: %s", fault.message)


def _missed(what: str, course: SessionRun, error: Exception) -> None:
    """One line of warning: what is missing, and the kind of reason."""
    reason = error.message if isinstance(error, Fault) else type(error).__name__
    log.warning(what, extra={"session": str(course.session.id), "reason": reason})
