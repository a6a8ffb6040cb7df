"""Pages that update themselves: live signals, pages that nobody disturbs, and pages that wait for the database."""

import asyncio
from dataclasses import replace

import httpx2 as httpx
import pytest

from butlers import db
from butlers.dashboard import LazyDashboard
from butlers.modules.memory import MemoryModule
from dashboard.conftest import open_page
from memory.memory_fixtures import build_tenant_server, serve_http


async def test_live_signals_a_change_of_the_tenant_and_no_other_and_holds_no_connection(
    site, tools, stranger, memory
):
    async with site.client.stream("GET", f"{site.url}/live", timeout=20) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = response.aiter_lines()
        assert await anext(lines) == "retry: 5000"
        assert await anext(lines) == ""
        await asyncio.sleep(0.5)
        assert memory.database.usage().idle == memory.database.usage().size
        await stranger.fact("eats no meat")
        signal = asyncio.ensure_future(anext(lines))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(signal), 3)
        await tools.fact("eats no meat")
        assert await asyncio.wait_for(signal, 10) == "event: change"


async def test_open_pages_end_when_the_butler_stops(butler, memory, caller):
    server = build_tenant_server(butler, memory, caller.tenant)
    pages = LazyDashboard(replace(butler, config=replace(butler.config, butler=server.config)), server)
    async with (
        serve_http(server, pages) as address,
        httpx.AsyncClient() as client,
        client.stream("GET", address.removesuffix("mcp") + "live", timeout=20) as response,
    ):
        lines = response.aiter_lines()
        await anext(lines)
        server.stop()
        async with asyncio.timeout(5):
            assert [line async for line in lines] == [""]


async def test_a_page_without_its_database_comes_back_by_itself(butler, memory, caller, browser):
    database = await db.connect(butler.location.dsn, 1)
    await database.close()
    module = MemoryModule()
    module._memory = replace(memory, database=database)
    server = build_tenant_server(butler, memory, caller.tenant)
    pages = LazyDashboard(replace(butler, modules=[module]), server)
    context = await browser.new_context(java_script_enabled=False)
    try:
        async with serve_http(server, pages) as address:
            page = await context.new_page()
            response = await page.goto(address.removesuffix("/mcp") + "/facts")
            assert response.status == 503
            text = await page.locator("main").inner_text()
            assert "This page tries again by itself." in text
            module._memory = memory
            await page.wait_for_selector("text=No fact is stored yet.", timeout=9_000)
            assert page.url == address.removesuffix("/mcp") + "/facts"
            await page.close()
    finally:
        await context.close()


async def test_a_new_butler_shows_its_first_memory_by_itself_and_disturbs_no_reader(site, tools, archive, browser):
    async with open_page(browser) as page, open_page(browser) as typing, open_page(browser) as judging:
        for each in (page, typing):
            await each.goto(site.url)
            await each.wait_for_selector("text=Nothing is remembered yet.")
        await typing.fill("#subject", "Ada")
        await typing.evaluate("document.activeElement.blur()")
        await judging.goto(f"{site.url}/review?of=fading")
        await page.wait_for_timeout(2_500)
        await tools.fact("eats no meat", "Ada", "diet", permanence="ephemeral")
        await page.wait_for_selector("text=Everything runs.")
        assert await page.locator("nav a[href='/facts'] .count").inner_text() == "1"
        assert await typing.input_value("#subject") == "Ada"
        await archive.connection.execute(
            "update facts set last_confirmed_at = now() - interval '15 days' where tenant_id = $1", tools.tenant
        )
        await judging.reload()
        await judging.wait_for_selector("text=1 of 1")
        await tools.fact("vital", "Bob", "diet", permanence="ephemeral", importance=10)
        await archive.connection.execute(
            "update facts set last_confirmed_at = now() - interval '16 days' where tenant_id = $1", tools.tenant
        )
        await tools.fact("another", "Eve", "diet")
        await page.wait_for_selector("nav a[href='/facts'] .count:text('3')")
        assert "Ada · diet" in await judging.locator("article").inner_text()
