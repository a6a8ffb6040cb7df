"""Queue of a butler's sessions, in which tenants take turns."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from butlers.errors import Overloaded


@dataclass(eq=False, slots=True)
class QueueSlot:
    """A session's position in the queue: whether it has to wait, and the event of its start."""

    waits: bool
    start: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class _TenantQueue:
    """A tenant's running and waiting sessions, and the number of its last start."""

    running: int = 0
    waiting: deque[QueueSlot] = field(default_factory=deque)
    last_start: int = 0


class SessionQueue:
    """Starts at most `max_concurrent` sessions at once and lets at most `max_queued` wait.

    The next session is of the tenant with the fewest running sessions; among those, of the tenant whose last start is
    longest ago. Sessions of one tenant start in the order of their requests.
    """

    def __init__(self, max_concurrent: int, max_queued: int) -> None:
        self._max_concurrent = max_concurrent
        self._max_queued = max_queued
        self._tenants: dict[str, _TenantQueue] = {}
        self._starts = 0

    @contextlib.contextmanager
    def slot(self, tenant: str) -> Iterator[QueueSlot]:
        """Yield the tenant's next slot, held until the block ends. Raises `Overloaded` if the tenant may not wait."""
        slot = self._enter(tenant)
        try:
            yield slot
        finally:
            self._leave(tenant, slot)

    def _enter(self, tenant: str) -> QueueSlot:
        slot = QueueSlot(waits=self._running() >= self._max_concurrent)
        if slot.waits:
            self._check_share(tenant)
        self._tenants.setdefault(tenant, _TenantQueue()).waiting.append(slot)
        self._start_next()
        return slot

    def _leave(self, tenant: str, slot: QueueSlot) -> None:
        queue = self._tenants[tenant]
        if slot.start.is_set():
            queue.running -= 1
        else:
            queue.waiting.remove(slot)
        if not queue.running and not queue.waiting:
            del self._tenants[tenant]
        self._start_next()

    def _start_next(self) -> None:
        """Start a waiting session if one more may run."""
        waiting = [queue for queue in self._tenants.values() if queue.waiting]
        if not waiting or self._running() >= self._max_concurrent:
            return
        queue = min(waiting, key=lambda queue: (queue.running, queue.last_start))
        self._starts += 1
        queue.running, queue.last_start = queue.running + 1, self._starts
        queue.waiting.popleft().start.set()

    def _check_share(self, tenant: str) -> None:
        """Raise `Overloaded` if no place is left, or the tenant has half of the places that the others leave."""
        waiting = {name: len(queue.waiting) for name, queue in self._tenants.items()}
        own = waiting.pop(tenant, 0)
        left_by_others = self._max_queued - sum(waiting.values())
        hint = "Retry later, or raise butler.sessions.max_queued."
        if left_by_others <= 0:
            raise Overloaded(f"{sum(waiting.values())} sessions are waiting already", hint=hint)
        if own >= (left_by_others + 1) // 2:
            raise Overloaded(f"{own} sessions of this tenant are waiting, which is its share of the queue", hint=hint)

    def _running(self) -> int:
        return sum(queue.running for queue in self._tenants.values())
