"""Starts sessions of the butler's runtime and keeps the record of each."""

import asyncio
import logging
from uuid import uuid4

from butlers.caller import Caller
from butlers.contract import Answered
from butlers.db import Database
from butlers.errors import Fault, SessionFailed, TimedOut
from butlers.host import sessions
from butlers.host.runtimes.runtime import Outcome, Runtime, Task
from butlers.host.sessions import Ending, NewSession

log = logging.getLogger("butlers.sessions")
_ERROR_CHARACTERS = 500


class Sessions:
    """The spawner of one butler."""

    def __init__(self, runtime: Runtime, database: Database, seconds: float) -> None:
        self._runtime = runtime
        self._database = database
        self._seconds = seconds

    def check(self) -> None:
        """Return when sessions can be started; raise `Unavailable` with what is missing."""
        self._runtime.check()

    async def spawn(self, caller: Caller, prompt: str, *, trigger_source: str, internal: bool = False) -> Answered:
        """Run one session to its end."""
        session = NewSession(uuid4(), trigger_source, prompt, self._runtime.name, internal)
        await sessions.begin(self._database, caller, session)
        task = Task(session.id, prompt, self._seconds)
        try:
            outcome = await self._runtime.run(task)
        except asyncio.CancelledError:
            await asyncio.shield(self._end(caller, session, "cancelled", "it was cancelled"))
            raise
        except Fault as fault:
            ending: Ending = "timed_out" if isinstance(fault, TimedOut) else "failed"
            await self._end(caller, session, ending, fault.message)
            raise
        except Exception as error:
            await self._end(caller, session, "failed", type(error).__name__)
            raise SessionFailed(f"the session broke off: {type(error).__name__}") from error
        await self._end(caller, session, "succeeded", outcome=outcome)
        return Answered(session.id, outcome.text, outcome.usage)

    async def _end(
        self,
        caller: Caller,
        session: NewSession,
        ending: Ending,
        error: str | None = None,
        outcome: Outcome | None = None,
    ) -> None:
        """Write down how it ended; that it can't be written must not take the answer away."""
        try:
            await sessions.finish(
                self._database,
                caller,
                session.id,
                ending,
                runtime_session_id=outcome.session_id if outcome else None,
                usage=outcome.usage if outcome else None,
                error=error and error[:_ERROR_CHARACTERS],
            )
        except Fault as fault:
            log.warning("the end of a session could not be recorded: %s", fault.message)
        log.info(
            "session",
            extra={"session": str(session.id), "source": session.trigger_source, "outcome": ending},
        )
