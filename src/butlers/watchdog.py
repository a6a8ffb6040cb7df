"""Watch over connections in use: a host that stops answering loses all of them, so that calls go on with another."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator

import asyncpg

from butlers.connector import Connector, ServerConnection

log = logging.getLogger("butlers.database")


class Watchdog:
    """Asks the host of a connection that is busy for a while whether it still answers; ends them all if not.

    An idle butler asks nobody, so that a server that sleeps while nobody uses it may do so.
    """

    def __init__(self, connector: Connector, patience_seconds: float) -> None:
        self._connector = connector
        # A connection is suspect after one interval, and noticed in the second; the other three are for the answer.
        self._interval = patience_seconds / 5
        self._answer_seconds = 3 * self._interval
        self._busy: dict[object, tuple[str, float]] = {}
        self._probes: dict[str, ServerConnection] = {}
        self._task = asyncio.create_task(self._watch(), name="database watchdog")

    @contextlib.contextmanager
    def watch(self, host: str) -> Iterator[None]:
        """Watch a connection to a host until the block ends."""
        use = object()
        self._busy[use] = (host, time.monotonic())
        try:
            yield
        finally:
            del self._busy[use]

    async def stop(self) -> None:
        """Stop watching."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._close_probes()

    async def _watch(self) -> None:
        while True:
            slept_from = time.monotonic()
            await asyncio.sleep(self._interval)
            now = time.monotonic()
            # An event loop that was held up says nothing about the server: its answers wait to be read.
            suspects = {host for host, since in self._busy.values() if now - since > self._interval}
            if now - slept_from < 2 * self._interval:
                await asyncio.gather(*map(self._check, suspects))
            if not suspects:
                self._close_probes()

    async def _check(self, host: str) -> None:
        try:
            async with asyncio.timeout(self._answer_seconds):
                await self._ask(host)
        except TimeoutError:
            log.warning("a database host does not answer: its connections are ended")
            self._discard_probe(host)
            self._connector.leave_host(host)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
            # A refusal is an answer, and the connections in use notice for themselves.
            self._discard_probe(host)

    async def _ask(self, host: str) -> None:
        probe = self._probes.get(host)
        if probe is None or probe.is_closed():
            probe = await self._connector.connect_to(host, timeout=self._answer_seconds, statement_cache_size=0)
            self._probes[host] = probe
        await probe.execute("select 1")

    def _discard_probe(self, host: str) -> None:
        if probe := self._probes.pop(host, None):
            probe.terminate()

    def _close_probes(self) -> None:
        for host in list(self._probes):
            self._discard_probe(host)
