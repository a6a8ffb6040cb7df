"""Live updates: one watcher a process looks for new events of the tenants whose pages are open."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from datetime import datetime

from starlette.responses import Response, StreamingResponse

from butlers.caller import Caller
from butlers.dashboard.page import Page
from butlers.dashboard.pages.route import PageRoute
from butlers.errors import Fault, Overloaded
from butlers.modules.memory.operations import viewing
from butlers.modules.memory.runtime import Memory

_INTERVAL_SECONDS = 2.0
_MAX_OPEN_PAGES = 200
_HEADERS = {"X-Accel-Buffering": "no"}


@dataclass(slots=True)
class _WatchedTenant:
    caller: Caller
    pages: "set[asyncio.Event]" = field(default_factory=set)
    latest: datetime | None = None
    is_known: bool = False


class LiveUpdates:
    """Wakes the open pages of a tenant when it has new events. It holds no database connection while it waits."""

    def __init__(self, stopping: asyncio.Event) -> None:
        self._stopping = stopping
        self._tenants: dict[str, _WatchedTenant] = {}
        self._watcher: asyncio.Task[None] | None = None

    async def changes(self, memory: Memory, caller: Caller) -> AsyncGenerator[str]:
        """Yield a server-sent event for each change of the tenant, until the butler stops."""
        tenant = self._tenants.setdefault(caller.tenant, _WatchedTenant(caller))
        changed = asyncio.Event()
        tenant.pages.add(changed)
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.create_task(self._watch(memory))
        try:
            yield "retry: 5000\n\n"
            while not self._stopping.is_set():
                await self._wait(changed)
                if changed.is_set():
                    changed.clear()
                    yield "event: change\ndata: \n\n"
        finally:
            tenant.pages.discard(changed)
            if not tenant.pages:
                self._tenants.pop(caller.tenant, None)

    def has_room(self, tenant: str) -> bool:
        """Return whether another page of a tenant may listen: it gets half of the places that others leave."""
        own = len(self._tenants[tenant].pages) if tenant in self._tenants else 0
        others = sum(len(each.pages) for each in self._tenants.values()) - own
        return own < (_MAX_OPEN_PAGES - others) / 2

    async def _wait(self, changed: asyncio.Event) -> None:
        """Return when the tenant changed or the butler stops."""
        waits = [asyncio.ensure_future(event.wait()) for event in (changed, self._stopping)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    async def _watch(self, memory: Memory) -> None:
        while self._tenants and not self._stopping.is_set():
            for tenant in list(self._tenants.values()):
                try:
                    latest = await viewing.latest_change(memory, tenant.caller)
                except Fault:
                    continue
                if tenant.is_known and latest != tenant.latest:
                    for page in tenant.pages:
                        page.set()
                tenant.latest, tenant.is_known = latest, True
            await asyncio.sleep(_INTERVAL_SECONDS)


async def live(page: Page) -> Response:
    """Stream a signal for each change of the tenant's memories; it has no content."""
    updates: LiveUpdates = page.request.app.state.live_updates
    if not updates.has_room(page.caller.tenant):
        raise Overloaded("too many pages are open", hint="Reload this page to see changes.")
    changes = updates.changes(page.memory, page.caller)
    return StreamingResponse(changes, media_type="text/event-stream", headers=_HEADERS)


ROUTES = (PageRoute("/live", live),)
