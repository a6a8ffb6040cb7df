"""Live updates: one watcher a process looks for new events of the tenants whose pages are open."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from datetime import datetime

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

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

    def reserve(self, caller: Caller) -> "asyncio.Event | None":
        """Take a place for a page, to be released; None if its tenant has half of the places that others leave."""
        own = len(self._tenants[caller.tenant].pages) if caller.tenant in self._tenants else 0
        others = sum(len(each.pages) for each in self._tenants.values()) - own
        if own >= (_MAX_OPEN_PAGES - others) / 2:
            return None
        changed = asyncio.Event()
        self._tenants.setdefault(caller.tenant, _WatchedTenant(caller)).pages.add(changed)
        return changed

    def release(self, caller: Caller, changed: asyncio.Event) -> None:
        """Free the place of a page."""
        tenant = self._tenants[caller.tenant]
        tenant.pages.discard(changed)
        if not tenant.pages:
            del self._tenants[caller.tenant]

    async def changes(self, memory: Memory, changed: asyncio.Event) -> AsyncGenerator[str]:
        """Yield a server-sent event for each change of the tenant, until the butler stops."""
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.create_task(self._watch(memory))
        yield "retry: 5000\n\n"
        while not self._stopping.is_set():
            await self._wait(changed)
            if changed.is_set():
                changed.clear()
                yield "event: change\ndata: \n\n"

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


class _LiveResponse(StreamingResponse):
    """The stream of a page; its place is free again however the response ends, also before the stream begins."""

    def __init__(self, changes: AsyncGenerator[str], release: Callable[[], None]) -> None:
        super().__init__(changes, media_type="text/event-stream", headers=_HEADERS)
        self._release = release

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._release()


async def live(page: Page) -> Response:
    """Stream a signal for each change of the tenant's memories; it has no content."""
    memory, caller = page.memory, page.caller
    updates: LiveUpdates = page.request.app.state.live_updates
    changed = updates.reserve(caller)
    if changed is None:
        raise Overloaded("too many pages are open", hint="Reload this page to see changes.")
    # From here to the response's own `finally`, nothing waits and nothing raises.
    return _LiveResponse(updates.changes(memory, changed), lambda: updates.release(caller, changed))


ROUTES = (PageRoute("/live", live),)
