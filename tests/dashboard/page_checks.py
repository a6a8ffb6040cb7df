"""Checks that every page has to pass: accessibility, narrow screens, and content that is shown as text."""

from typing import Any

from axe_playwright_python.base import AXE_FILE_PATH
from playwright.async_api import Browser, Page

from dashboard.conftest import Site, open_page

HOSTILE = (
    "<script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\"> "
    "\"' {{ 7 * 7 }} &lt; javascript:alert(1) \u202egnp.exe\u200b"
)


RUN_AXE = """axe.run(document, {resultTypes: ["violations"]})
    .then(found => found.violations.map(each => [each.id, each.nodes[0].html]))"""
RUN_CONTRAST = RUN_AXE.replace("resultTypes", 'runOnly: ["color-contrast"], resultTypes')


async def check_axe(page: Page, path: str) -> None:
    """Check that a page has no axe violation in light, and none of contrast in dark."""
    await page.evaluate(AXE_FILE_PATH.read_text())
    for scheme, run in (("light", RUN_AXE), ("dark", RUN_CONTRAST)):
        await page.emulate_media(color_scheme=scheme)
        assert await page.evaluate(run) == [], (path, scheme)


async def check_access(browser: Browser, site: Site, *paths: str) -> None:
    """Check that pages have no axe violation in light and dark, and need no sideways scrolling at 320 px."""
    async with open_page(browser) as page:
        for path in paths:
            response = await page.goto(site.url + path)
            assert response is not None
            assert response.status == 200, path
            await check_axe(page, path)
            await page.set_viewport_size({"width": 320, "height": 800})
            assert await page.evaluate("document.documentElement.scrollWidth") <= 320, path
            await page.set_viewport_size({"width": 1280, "height": 800})


async def check_hostile(page: Page, site: Site, path: str) -> None:
    """Check that a page with hostile content runs none of it and asks no other origin."""
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    await page.goto(site.url + path)
    assert await page.title() != "owned"
    assert await page.locator("main script, main img, main iframe").count() == 0
    assert [each for each in requested if not each.startswith(site.url)] == []
    text = await page.locator("main").inner_text()
    assert "\u202e" not in text
    assert "\u200b" not in text


async def link(archive: Any, tenant: str, source: tuple[str, str], target: tuple[str, str], relation: str) -> None:
    """Store a link between two memories, as consolidation does."""
    await archive.connection.execute(
        "insert into memory_links (tenant_id, source_type, source_id, target_type, target_id, relation)"
        " values ($1, $2, $3, $4, $5, $6)",
        tenant, *source, *target, relation,
    )  # fmt: skip
