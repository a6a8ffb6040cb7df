"""Fixtures of the dashboard tests: a real browser, and a butler's pages over real HTTP in a new tenant."""

import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2 as httpx
import pytest
from fastmcp import Client
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from butlers.app import Butler
from butlers.caller import Caller
from butlers.contract import Job
from butlers.dashboard import LazyDashboard
from butlers.host.metrics import Metrics
from butlers.host.scheduler import Scheduler
from butlers.modules.memory.runtime import Memory
from dashboard.full_tenant import FullTenant, fill_tenant
from memory.conftest import archive, butler, caller, engine, loop, memory, place, stranger, tools
from memory.memory_fixtures import Archive, Tools, build_tenant_server, serve_http

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from browser import ADVICE, find_browser

__all__ = ["archive", "butler", "caller", "engine", "loop", "memory", "place", "stranger", "tools"]


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    """An installed Chromium, one for each worker."""
    path = find_browser()
    assert path, ADVICE
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=path)
        yield started
        await started.close()


@asynccontextmanager
async def open_page(browser: Browser, **options: Any) -> AsyncIterator[Page]:
    """Open a page in a context of its own. It must log no error and no warning: a policy violation is one."""
    # Without motion there is no view transition, which the next navigation of a fast test would interrupt.
    settings: dict[str, Any] = {"locale": "en-GB", "timezone_id": "Europe/Berlin", "reduced_motion": "reduce"}
    settings |= {"viewport": {"width": 1280, "height": 800}}
    context: BrowserContext = await browser.new_context(**(settings | options))
    page = await context.new_page()
    page.set_default_timeout(10_000)
    problems: list[str] = []
    page.on("console", lambda entry: problems.append(entry.text) if entry.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    yield page
    await context.close()
    assert problems == []


@pytest.fixture
async def page(browser: Browser) -> AsyncIterator[Page]:
    """A browser page."""
    async with open_page(browser) as opened:
        yield opened


@pytest.fixture
async def page_without_script(browser: Browser) -> AsyncIterator[Page]:
    """A browser page with JavaScript off."""
    async with open_page(browser, java_script_enabled=False) as opened:
        yield opened


@dataclass(frozen=True)
class Site:
    """The pages of a butler: their address, and a client that follows no redirect."""

    url: str
    client: httpx.AsyncClient

    async def get(self, path: str, **options: Any) -> httpx.Response:
        """Return the response to a GET."""
        return await self.client.get(self.url + path, **options)

    async def post(self, path: str, **fields: Any) -> httpx.Response:
        """Return the response to a form sent from the site itself."""
        return await self.client.post(self.url + path, data=fields, headers={"Origin": self.url})


@asynccontextmanager
async def serve_site(
    butler: Butler,
    memory: Memory,
    tenant: str,
    limits: Mapping[str, Any] | None = None,
    jobs: Sequence[Job] = (),
    **auth: Any,
) -> AsyncIterator[Site]:
    """Serve the tools and pages of a butler whose local callers belong to a tenant, with jobs that nothing starts."""
    if limits:
        changed = butler.config.butler.limits.model_copy(update=dict(limits))
        config = butler.config.butler.model_copy(update={"limits": changed})
        butler = replace(butler, config=replace(butler.config, butler=config))
    async with AsyncExitStack() as stack:
        server = build_tenant_server(butler, memory, tenant, **auth)
        if jobs:
            scheduler = Scheduler(butler.database, butler.caller(tenant, "scheduler"), jobs, Metrics())
            server = replace(server, jobs=scheduler.job_statuses, run_job=scheduler.run_by_name)
        configuration = replace(butler.config, butler=server.config)
        pages = LazyDashboard(replace(butler, config=configuration), server)
        address = await stack.enter_async_context(serve_http(server, pages))
        client = await stack.enter_async_context(httpx.AsyncClient(follow_redirects=False))
        yield Site(address.removesuffix("/mcp"), client)
        # Ends the live updates of pages that are still open.
        server.stop()


@asynccontextmanager
async def tools_of(butler: Butler, memory: Memory, tenant: str) -> AsyncIterator[Tools]:
    """The tools of a tenant."""
    async with Client(build_tenant_server(butler, memory, tenant).mcp) as client:
        yield Tools(client, tenant)


@pytest.fixture(scope="session")
async def full(butler: Butler, memory: Memory, archive: Archive) -> FullTenant:
    """A tenant with every kind of memory in every state. Tests only look at it."""
    async with tools_of(butler, memory, f"t-{uuid4().hex}") as tools:
        return await fill_tenant(tools, archive, memory)


async def _do_nothing(_: Caller) -> dict[str, Any]:
    return {}


@pytest.fixture(scope="session")
async def look(butler: Butler, memory: Memory, full: FullTenant) -> AsyncIterator[Site]:
    """The pages of the full tenant."""
    jobs = [Job("tidy_up_everything", "0 3 * * *", _do_nothing, shared=False)]
    async with serve_site(butler, memory, full.tenant, jobs=jobs) as served:
        yield served


@pytest.fixture
async def site(butler: Butler, memory: Memory, caller: Caller) -> AsyncIterator[Site]:
    """The pages in the tenant of `caller` and `tools`."""
    async with serve_site(butler, memory, caller.tenant) as served:
        yield served
