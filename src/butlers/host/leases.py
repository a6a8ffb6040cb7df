"""Leases in a table: one process at a time does a piece of work, also through a pooler of connections."""

import asyncio
import contextlib
import contextvars
import logging
import time
from collections.abc import AsyncIterator
from importlib import resources
from typing import Any
from uuid import UUID, uuid4

import aiosql

from butlers.caller import Caller
from butlers.db import Database, Fence, LeaseLost, current_fence
from butlers.errors import Fault

log = logging.getLogger("butlers.leases")
_queries: Any = aiosql.from_path(str(resources.files(__package__) / "sql" / "leases.sql"), "asyncpg")
LEASE_SECONDS = 10.0
_RENEWALS_IN_TIME = 4
# All leases are in one tenant: the work of a process may be for several.
_CALLER = Caller(tenant="default", butler="host", actor="host")


class Lease:
    """A lease that is held and renewed until it is released, or lost to another process."""

    def __init__(self, database: Database, name: str, seconds: float) -> None:
        self._database = database
        self._name = name
        self._seconds = seconds
        self.token: UUID = uuid4()
        self.lost = asyncio.Event()
        self._renewing: asyncio.Task[None] | None = None

    @property
    def fence(self) -> Fence:
        """What a transaction needs to check the lease."""
        return Fence(self._name, self.token)

    async def claim(self) -> bool:
        """Take the lease and renew it from now on; return False if another process holds it."""
        claimed_at = time.monotonic()
        if not await self._run(_queries.claim_lease, seconds=self._seconds):
            return False
        # In an empty context: the task must not check the lease of the work that it was started in.
        renewal = self._renew(claimed_at)
        self._renewing = asyncio.create_task(renewal, name="lease renewal", context=contextvars.Context())
        return True

    async def release(self) -> None:
        """Stop renewing, and let others take the lease at once; if that fails, it expires."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        with contextlib.suppress(Fault):
            await self._run(_queries.release_lease)

    async def _renew(self, renewed_at: float) -> None:
        pause = self._seconds / _RENEWALS_IN_TIME
        while True:
            await asyncio.sleep(pause)
            started_at = time.monotonic()
            try:
                is_mine = await self._run(_queries.renew_lease, seconds=self._seconds)
            except Fault as fault:
                # Without an answer, another process may have taken it over as soon as it has expired.
                is_mine = time.monotonic() - renewed_at < self._seconds
                log.warning("a lease could not be renewed: %s", fault.message)
            else:
                renewed_at = started_at
            if not is_mine:
                self.lost.set()
                return

    async def _run(self, query: Any, **arguments: object) -> bool:
        """Run a statement outside any fence; return whether it found a row."""
        fence = current_fence.set(None)
        try:
            async with self._database.transaction(_CALLER) as tx:
                row = await query(tx, tenant_id=_CALLER.tenant, name=self._name, token=self.token, **arguments)
                return row is not None
        finally:
            current_fence.reset(fence)


@contextlib.asynccontextmanager
async def hold_lease(database: Database, name: str, seconds: float = LEASE_SECONDS) -> AsyncIterator[bool]:
    """Yield whether this process got the lease; release it at the end. Work in the block is not interrupted."""
    lease = Lease(database, name, seconds)
    is_mine = await lease.claim()
    try:
        yield is_mine
    finally:
        if is_mine:
            await lease.release()


@contextlib.asynccontextmanager
async def work_exclusively(database: Database, name: str, seconds: float = LEASE_SECONDS) -> AsyncIterator[bool]:
    """Yield whether this process may do the work; hold its lease until the block ends.

    Every transaction of the block is fenced: it fails once another process has taken the lease over. The block is
    cancelled then, and `LeaseLost` raised.
    """
    lease = Lease(database, name, seconds)
    if not await lease.claim():
        yield False
        return
    fence = current_fence.set(lease.fence)
    try:
        async with _cancelled_when(lease.lost):
            yield True
    finally:
        current_fence.reset(fence)
        await lease.release()


@contextlib.asynccontextmanager
async def _cancelled_when(lost: asyncio.Event) -> AsyncIterator[None]:
    """Cancel the block when the lease is lost, and raise `LeaseLost`."""
    try:
        async with asyncio.timeout(None) as limit:

            async def watch() -> None:
                await lost.wait()
                limit.reschedule(asyncio.get_running_loop().time())

            watching = asyncio.create_task(watch(), context=contextvars.Context())
            try:
                yield
            finally:
                watching.cancel()
    except TimeoutError:
        if lost.is_set():
            raise LeaseLost("another process has taken the work over") from None
        raise
