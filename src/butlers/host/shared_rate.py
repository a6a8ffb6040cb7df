"""Rate limit of each tenant across all processes of a butler: calls are leased from the database in blocks."""

import asyncio
import contextvars
import time
from collections import OrderedDict
from dataclasses import dataclass
from importlib import resources
from typing import Any

import aiosql

from butlers.caller import Caller
from butlers.db import Database
from butlers.errors import Fault, Overloaded
from butlers.host.limits import RateLimit

_queries: Any = aiosql.from_path(str(resources.files(__package__) / "sql" / "rate_budgets.sql"), "asyncpg")
_BLOCK_SECONDS = 0.25
"""A block is what the rate allows in this time: of two hundred calls a second, one in fifty leases."""
_MAX_WAIT_SECONDS = 0.25
_LOCAL_SECONDS = 1.0
"""How long a process counts for itself after the database did not answer."""
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.02, 1.0
_MAX_BLOCKS = 10_000


@dataclass(slots=True, eq=False)
class _Block:
    """Calls of one tenant that this process has leased and not used."""

    calls: float = 0.0
    leasing: "asyncio.Task[None] | None" = None
    ask_after: float = 0.0
    local_until: float = 0.0


class SharedRateLimit(RateLimit):
    """A token bucket for each tenant in the database, of which each process leases a block at a time.

    Where the database does not answer, each process applies the rate by itself.
    """

    def __init__(self, database: Database, butler: str, calls_per_second: float, burst: int) -> None:
        super().__init__(calls_per_second, burst)
        self._database = database
        self._butler = butler
        self._blocks: OrderedDict[str, _Block] = OrderedDict()

    async def prepare(self, tenant: str, *, calls: int = 1) -> None:
        """Lease the next block when half of one is left; wait for it only where none is."""
        block = self._block_of(tenant)
        while True:
            if block.calls - calls < self._block_calls / 2 and self._may_ask(block):
                # In an empty context: a lease is nobody's call.
                task = asyncio.create_task(self._lease_block(tenant, block), context=contextvars.Context())
                block.leasing = task
            if block.calls >= 1 or block.leasing is None:
                return
            if not (await asyncio.wait({block.leasing}, timeout=_MAX_WAIT_SECONDS))[0]:
                block.local_until = time.monotonic() + _LOCAL_SECONDS
                return

    def take(self, tenant: str, now: float | None = None, *, calls: int = 1) -> None:
        """Take calls from the leased block, or raise `Overloaded` if there is not one left."""
        block = self._block_of(tenant)
        if block.local_until > time.monotonic() or (block.leasing is None and not block.ask_after):
            super().take(tenant, now, calls=calls)
            return
        if block.calls < 1:
            raise Overloaded(f"more than {self._rate:g} calls a second")
        block.calls -= calls

    def give_back(self, tenant: str, *, calls: int = 1) -> None:
        """Return calls to the block; they are never more than a process may take at once."""
        block = self._block_of(tenant)
        block.calls = min(self._burst, block.calls + calls)

    @property
    def _block_calls(self) -> float:
        return max(1.0, min(self._burst, self._rate * _BLOCK_SECONDS))

    def _may_ask(self, block: _Block) -> bool:
        now = time.monotonic()
        return block.leasing is None and now >= block.ask_after and now >= block.local_until

    def _block_of(self, tenant: str) -> _Block:
        block = self._blocks.pop(tenant, None) or _Block()
        self._blocks[tenant] = block
        if len(self._blocks) > _MAX_BLOCKS:
            self._blocks.popitem(last=False)
        return block

    async def _lease_block(self, tenant: str, block: _Block) -> None:
        wanted = max(1.0, self._block_calls - block.calls)
        now = time.monotonic()
        try:
            granted = await self._lease(tenant, wanted)
        except Fault:
            block.local_until = now + _LOCAL_SECONDS
        else:
            block.calls += granted
            pause = min(max(1 / self._rate, _MIN_PAUSE_SECONDS), _MAX_PAUSE_SECONDS)
            block.ask_after = now if granted == wanted else now + pause
        finally:
            block.leasing = None

    async def _lease(self, tenant: str, wanted: float) -> float:
        caller = Caller(tenant=tenant, butler=self._butler, actor="host")
        async with self._database.transaction(caller, durable=False, reuse_plans=True) as tx:
            granted: float = await _queries.lease_calls(
                tx, butler=self._butler, wanted=wanted, rate=self._rate, burst=self._burst
            )
            return granted
