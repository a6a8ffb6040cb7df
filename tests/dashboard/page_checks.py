"""Checks that every page has to pass: accessibility, narrow screens, and content that is shown as text."""

from typing import Any

from axe_playwright_python.base import AXE_FILE_PATH
from playwright.async_api import Page

HIDDEN = "\u202e\u2066\u200b\u00ad\ufeff\x07\x1b"
"""Characters of hostile texts that no page may show as they are."""
_RUN_AXE = """axe.run(document, {resultTypes: ["violations"]})
    .then(found => found.violations.map(each => [each.id, each.nodes[0].html]))"""
_RUN_CONTRAST = _RUN_AXE.replace("resultTypes", 'runOnly: ["color-contrast"], resultTypes')
# All in one call: each call to the browser takes as long as the question itself.
_INSPECT = """() => ({
    title: document.title,
    headings: document.querySelectorAll("h1").length,
    shown: document.querySelector("h1").getBoundingClientRect().height,
    feet: document.querySelectorAll("footer summary").length,
    injected: document.querySelectorAll(
        "script:not([src]), main script, main img, main iframe, [onload], [onerror], [style]").length,
    width: document.documentElement.scrollWidth,
    text: document.body.innerText,
})"""


async def check_text(page: Page, *, width: int = 1280, feet: int = 1) -> str:
    """Check that a page that is open ran nothing of its content, and is no wider than the screen; return its text."""
    found: dict[str, Any] = await page.evaluate(_INSPECT)
    assert found["title"] != "owned", page.url
    assert (found["headings"], found["injected"], found["feet"]) == (1, 0, feet), page.url
    assert found["shown"] > 0, page.url
    assert found["width"] <= width, page.url
    assert [each for each in HIDDEN if each in found["text"]] == [], page.url
    return str(found["text"])


async def check_axe(page: Page) -> None:
    """Check that a page that is open has no axe violation in light, and none of contrast in dark."""
    await page.evaluate(AXE_FILE_PATH.read_text())
    for scheme, run in (("light", _RUN_AXE), ("dark", _RUN_CONTRAST)):
        await page.emulate_media(color_scheme=scheme)
        assert await page.evaluate(run) == [], (page.url, scheme)


async def check_page(page: Page) -> None:
    """Check a page outside of a memory that is open: accessible, narrow, and with hostile text as text."""
    await check_axe(page)
    await page.set_viewport_size({"width": 320, "height": 800})
    await check_text(page, width=320, feet=0)
    await page.set_viewport_size({"width": 1280, "height": 800})
