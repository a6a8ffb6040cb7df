"""Accessibility of every page: axe in light and dark, the keyboard alone, back and forward, and empty pages."""

from uuid import uuid4

from dashboard.conftest import open_page
from dashboard.full_tenant import different_pages
from dashboard.page_checks import check_axe, check_text


async def test_every_page_is_accessible_in_light_and_dark(look, browser, full):
    async with open_page(browser) as page:
        for path in different_pages(full):
            await page.goto(look.url + path)
            await check_axe(page)


WATCH_FOCUS = """() => {
    window.stops = [];
    window.reached = new Set();
    document.addEventListener("focusin", ({ target: e }) => {
        const style = getComputedStyle(e);
        reached.add(e);
        stops.push([e.id || e.name || e.textContent.trim().slice(0, 40) || e.tagName,
                    style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1]);
    });
}"""
WANTED = "main a[href], main button, main input:not([type=hidden]), main select, main summary, main textarea"
LEFT_OUT = """wanted => [...document.querySelectorAll(wanted)].filter(e => e.checkVisibility() && !reached.has(e))
    .map(e => e.outerHTML.slice(0, 100))"""
KINDS = "tags => tags.filter(tag => [...reached].some(e => e.tagName === tag))"


async def test_tab_reaches_everything_on_every_page_with_a_visible_focus(look, browser, full):
    seen: set[str] = set()
    async with open_page(browser) as page:
        for path in (
            "/", "/review?of=fading", "/search?q=owned&type=fact", "/facts?subject=Bob",
            f"/facts/{full.facts['live']}", "/rules?group=proven",
            f"/rules/{full.rules['warning']}", f"/episodes?session={full.session}",
            f"/episodes/{full.episodes['dead_letter']}", "/entities?type=place", f"/entities/{full.entities['live']}",
            f"/entities/merge?source={full.entities['live']}&target={full.entities['target']}",
            f"/retract?episode={full.episodes['consolidated']}", f"/audit?memory={full.facts['live']}", "/system",
        ):  # fmt: skip
            await page.goto(look.url + path)
            await page.evaluate(WATCH_FOCUS)
            number = await page.locator("a[href], button, input, select, summary, textarea").count()
            # The parts of a date are stops too.
            for _ in range(number + 8):
                await page.keyboard.press("Tab")
            stops = await page.evaluate("stops")
            assert stops[0][0] == "Skip to the content", path
            assert "find" in {name for name, _ in stops}, path
            assert [name for name, is_visible in stops if not is_visible] == [], path
            assert await page.evaluate(LEFT_OUT, WANTED) == [], path
            seen |= set(await page.evaluate(KINDS, ["A", "BUTTON", "INPUT", "SELECT", "SUMMARY"]))
    assert seen == {"A", "BUTTON", "INPUT", "SELECT", "SUMMARY"}


async def test_keys_lead_everywhere(look, browser, full):
    async with open_page(browser) as page:
        await page.goto(look.url + "/system")
        keys = await page.eval_on_selector_all("nav a[data-key]", "all => all.map(e => [e.dataset.key, e.href])")
        assert {"o", "v", "f", "r", "e", "n", "a", "y"} <= {key for key, _ in keys}
        for key, address in keys:
            await page.keyboard.press("g")
            await page.keyboard.press(key)
            await page.wait_for_url(address)
        await page.keyboard.press("?")
        assert await page.locator("#keys").is_visible()
        listed = await page.locator("#keys").inner_text()
        assert all(f"g {key}" in listed for key, _ in keys)
        await page.keyboard.press("Escape")
        assert not await page.locator("#keys").is_visible()
        await page.keyboard.press("/")
        await page.keyboard.type("tea")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/search?q=tea")
        for path, folder in (
            ("/facts", "facts"),
            ("/rules", "rules"),
            ("/episodes", "episodes"),
            ("/entities", "entities"),
        ):
            await page.goto(look.url + path)
            for key in ("j", "j", "k"):
                await page.keyboard.press(key)
            first = await page.get_attribute("main [data-href]", "data-href")
            assert await page.get_attribute("main [aria-selected=true]", "data-href") == first
            if folder != "entities":
                await page.keyboard.press("x")
                assert await page.locator("input[name=id]:checked").count() == 1
                assert "1" in await page.locator("[data-count]").first.inner_text()
                await page.keyboard.press("x")
                assert await page.locator("input[name=id]:checked").count() == 0
            await page.keyboard.press("Enter")
            await page.wait_for_url(f"**/{folder}/*-*")


FIELD_VALUES = "all => all.map(e => e.type === 'checkbox' ? e.checked : e.value)"


async def test_back_and_forward_restore_each_state(look, browser, full):
    async with open_page(browser) as page:
        states = []

        async def remember() -> None:
            await page.wait_for_load_state()
            shown = await page.eval_on_selector_all("main select, main input:not([type=hidden])", FIELD_VALUES)
            states.append((page.url, await page.locator("h1").inner_text(), shown))

        await page.goto(look.url + "/facts")
        await remember()
        await page.select_option("[name=sort]", "used")
        await page.wait_for_url("**sort=used*")
        await remember()
        await page.click(".facets a:has-text('all')")
        await page.wait_for_url("**state=all*")
        await remember()
        await page.click("main tbody a >> nth=0")
        await page.wait_for_url("**/facts/*-*")
        await remember()
        await page.click("text=All of it in the audit trail")
        await page.wait_for_url("**/audit?memory=*")
        await remember()
        forward = states[:]
        for expected in reversed(forward[:-1]):
            states.clear()
            await page.go_back()
            await remember()
            assert states == [expected]
        for expected in forward[1:]:
            states.clear()
            await page.go_forward()
            await remember()
            assert states == [expected]


EMPTY = {
    "/": ("Nothing is remembered yet.", "Connect an agent", "claude mcp add"),
    "/search": ("Type words or a question.",),
    "/search?q=tea": ("Nothing was found.",),
    "/facts": ("No fact is stored yet.", "butlers memory store-fact"),
    "/facts?tag=food": ("None with these filters", "Remove all filters"),
    "/rules": ("No rule is stored yet.", "butlers memory store-rule"),
    "/episodes": ("No episode is stored.", "butlers memory store-episode"),
    "/entities": ("No entity is known yet.", "butlers memory entity create"),
    "/audit": ("Nothing has changed yet.",),
    "/system": ("No episode waits.", "Unknown: the job index_upkeep has not measured them yet."),
    "/review": ("Nothing fades soon.",),
    "/review?of=distilled": ("Everything that consolidation learned has been looked at.",),
    "/review?of=harmful": ("No rule did harm.",),
    "/review?of=twins": ("No two memories say nearly the same.",),
    "/review?of=dead-letters": ("Consolidation gave up on no episode.",),
    f"/retract?session={uuid4()}": ("Nothing comes from it",),
}


async def test_the_pages_of_a_new_tenant_say_why_they_are_empty_and_what_to_do(site, browser):
    async with open_page(browser) as page:
        for path, sentences in EMPTY.items():
            response = await page.goto(site.url + path)
            assert response.status == 200, path
            text = await check_text(page)
            assert [each for each in sentences if each not in text] == [], path
            if "?" not in path:
                await check_axe(page)
