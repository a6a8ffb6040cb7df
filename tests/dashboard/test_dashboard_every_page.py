"""Every page: hostile text, looking, accessibility, no script, keys, narrow screens, tenants, proxies, emptiness."""

import ast
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from html import unescape
from pathlib import Path
from urllib.parse import parse_qsl, urlencode
from uuid import uuid4

import httpx2 as httpx
import pytest
from fastmcp import Client

from butlers import db
from butlers.dashboard import LazyDashboard
from butlers.dashboard.pages import ROUTES, entity_list, episode_list, fact_list, rule_list
from butlers.modules.memory import MemoryModule
from butlers.visible_text import escape_control_characters
from dashboard.conftest import Site, open_page, serve_site
from dashboard.full_tenant import HOSTILE, NOT_PAGES, PAGES, FullTenant, all_pages, fill_tenant
from dashboard.page_checks import check_axe
from dashboard.stripping_proxy import serve_proxy
from memory.memory_fixtures import Tools, build_tenant_server, serve_http

LINKS = re.compile(r'(?<![\w-])(?:href|action|src|data-href|data-live)="([^"]*)"')


@asynccontextmanager
async def tools_of(butler, memory, tenant: str) -> AsyncIterator[Tools]:
    async with Client(build_tenant_server(butler, memory, tenant).mcp) as client:
        yield Tools(client, tenant)


@pytest.fixture(scope="module")
async def full(butler, memory, archive) -> FullTenant:
    """A tenant with every kind of memory in every state. Tests only look at it."""
    async with tools_of(butler, memory, f"t-{uuid4().hex}") as tools:
        return await fill_tenant(tools, archive, memory)


@pytest.fixture(scope="module")
async def look(butler, memory, full) -> AsyncIterator[Site]:
    """The pages of the full tenant."""
    async with serve_site(butler, memory, full.tenant) as served:
        yield served


def test_every_route_of_a_page_is_visited_by_these_tests():
    assert {route.path for route in ROUTES if route.method == "GET"} == set(PAGES) | set(NOT_PAGES)


def different_pages(full: FullTenant) -> list[str]:
    """Return each page once, and the states of it whose markup differs most."""
    firsts = [paths(full)[0] for route, paths in PAGES.items() if "uuid" not in route]
    return [
        *firsts,
        "/search?q=tea&type=fact",
        "/search?q=zzzzqqqq&mode=keyword",
        "/facts?state=all",
        "/facts?subject=Nobody&tag=none",
        "/entities?merged=yes",
        f"/entities/merge?source={full.entities['hostile 1']}&target={full.entities['hostile 2']}",
        "/review?of=twins",
        "/review?of=dead-letters",
        *(f"/facts/{full.facts[name]}" for name in ("hostile 0", "successor", "retracted")),
        *(f"/rules/{full.rules[name]}" for name in ("hostile 0", "warning")),
        *(f"/episodes/{full.episodes[name]}" for name in ("hostile 0", "dead_letter")),
        *(f"/entities/{full.entities[name]}" for name in ("hostile 0", "merged")),
    ]


async def test_hostile_text_is_text_on_every_page_and_looking_changes_nothing(look, browser, full, archive):
    before = await archive.everything(full.tenant)
    shown: list[str] = []
    requested: list[str] = []
    dialogs: list[str] = []
    async with open_page(browser) as page:
        page.on("request", lambda request: requested.append(request.url))
        page.on("dialog", lambda dialog: dialogs.append(dialog.message))
        for path in all_pages(full):
            response = await page.goto(look.url + path)
            assert response.status == 200, path
            assert await page.title() != "owned", path
            assert await page.locator("h1").count() == 1, path
            assert await page.locator("footer summary").count() == 1, path
            injected = "script:not([src]), main img, main iframe, main script, [onload], [onerror], [style]"
            assert await page.locator(injected).count() == 0, path
            shown.append(await page.locator("main").inner_text())
    assert [each for each in requested if not each.startswith(look.url)] == []
    assert dialogs == []
    everything = "\n".join(shown)
    assert [text for text in HOSTILE if escape_control_characters(text) not in everything] == []
    assert [each for each in "\u202e\u2066\u200b\u00ad\ufeff\x07\x1b" if each in everything] == []
    assert await archive.everything(full.tenant) == before


async def test_every_page_is_accessible_in_light_and_dark(look, browser, full):
    async with open_page(browser) as page:
        for path in different_pages(full):
            await page.goto(look.url + path)
            await check_axe(page, path)


async def test_every_page_fits_a_narrow_screen_without_javascript(look, browser, full):
    async with open_page(browser, java_script_enabled=False, viewport={"width": 320, "height": 640}) as page:
        for path in all_pages(full):
            await page.goto(look.url + path)
            assert await page.locator("main h1").is_visible(), path
            assert await page.evaluate("document.documentElement.scrollWidth") <= 320, path


async def test_every_link_leads_to_a_page(look, full):
    """Every address on a page is one of the site; a filter or a pile that does not exist is answered with 400."""
    links: dict[str, str] = {}
    for path in different_pages(full):
        for address in LINKS.findall((await look.get(path)).text):
            links.setdefault(unescape(address), path)
    links = {
        address: path for address, path in links.items() if not address.startswith("#") and "/acts/" not in address
    }
    for address, path in links.items():
        if not address.endswith(("/live", "/logout")):
            assert (await look.get(address)).status_code in {200, 303}, (address, path)
    wrong = [address for address, path in links.items() if unknown_filters(address)]
    assert wrong == []


def unknown_filters(address: str) -> set[str]:
    """Return the parameters of an address that its page does not read."""
    path, _, query = address.partition("?")
    read = {
        "/facts": {*fact_list.LABELS, "before", "after"}, "/rules": {*rule_list.LABELS, "before", "after"},
        "/episodes": {*episode_list.LABELS, "before", "after"}, "/review": {"of", "skip"},
        "/entities": {*entity_list.LABELS, "before", "after"},
    }  # fmt: skip
    return {name for name, _ in parse_qsl(query)} - read[path] if path in read else set()


def test_the_bench_measures_pages_with_filters_that_they_read():
    tree = ast.parse((Path(__file__).parents[2] / "bench" / "dashboard.py").read_text())
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call)]
    measured = [
        [ast.literal_eval(argument) for argument in each.args] for each in calls if named(each) == "BenchPage"
    ]
    assert len(measured) > 40
    pages = [(path, *query) for _, path, *query in measured]
    assert [page for page in pages if page[1:] and unknown_filters(f"{page[0]}?{urlencode(page[1])}")] == []


def named(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


FOCUS = """() => {
    const e = document.activeElement, s = getComputedStyle(e);
    return [e.id || e.name || e.textContent.trim().slice(0, 40) || e.tagName,
            s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 1, e.closest('main') !== null, e.tagName];
}"""


async def tab_through(page, stops: int) -> list[tuple[str, bool, bool, str]]:
    found = []
    for _ in range(stops):
        await page.keyboard.press("Tab")
        found.append(tuple(await page.evaluate(FOCUS)))
        if found[-1][-1] == "BODY":
            return found[:-1]
    return found


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/facts?subject=Bob", {"A", "INPUT", "SELECT", "BUTTON"}),
        ("/facts/{live}", {"A", "BUTTON", "SUMMARY"}),
        ("/review?of=fading", {"A", "BUTTON", "SUMMARY"}),
    ],
)
async def test_tab_reaches_everything_with_a_visible_focus(look, browser, full, path, wanted):
    async with open_page(browser) as page:
        await page.goto(look.url + path.format(live=full.facts["live"]))
        focusable = (
            "main a[href], main button, main input:not([type=hidden]), main select, main summary, main textarea"
        )
        in_main = sum([await each.is_visible() for each in await page.locator(focusable).all()])
        stops = await tab_through(page, 16 + in_main)
    assert stops[0][0] == "Skip to the content"
    assert "find" in {name for name, _, _, _ in stops}
    assert [name for name, is_visible, _, _ in stops if not is_visible] == []
    inside = [tag for _, _, is_inside, tag in stops if is_inside]
    assert len(inside) >= in_main - 1
    assert wanted <= set(inside)


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


async def test_pages_show_nothing_of_another_tenant(look, full, butler, memory, archive):
    async with tools_of(butler, memory, f"t-{uuid4().hex}") as tools:
        other = await fill_tenant(tools, archive, memory, word="zanzibar")
    before = await archive.everything(other.tenant)
    names = [*other.ids, other.session, other.tenant, "zanzibar"]
    for path in [*all_pages(full), "/audit.csv", "/search?q=zanzibar"]:
        text = (await look.get(path)).text.replace("zanzibar</", "").replace('"zanzibar"', "")
        if "zanzibar" not in path:
            assert [each for each in names if each in text] == [], path
    results = (await look.get("/search?q=zanzibar")).text
    assert [each for each in [*other.ids, "drinks zanzibar"] if each in results] == []
    for path in (*(f"/{folder}/{each}" for folder, ids in _folders(other) for each in ids),
                 f"/entities/merge?source={other.entities['live']}",
                 f"/entities/merge?source={full.entities['live']}&target={other.entities['live']}"):  # fmt: skip
        assert (await look.get(path)).status_code == 404, path
    for act, fields in acts_on(other, full):
        response = await look.post(f"/acts/{act}", key=str(uuid4()), back="/", **fields)
        assert response.status_code == 404, (act, fields, response.text)
        assert [each for each in names if each in response.text and each not in fields.values()] == [], act
    assert await archive.everything(other.tenant) == before


def _folders(full: FullTenant):
    return (
        ("facts", full.facts.values()), ("rules", full.rules.values()),
        ("episodes", full.episodes.values()), ("entities", full.entities.values()),
    )  # fmt: skip


def acts_on(other: FullTenant, own: FullTenant):
    """Return every act on a memory of another tenant."""
    fact, rule, episode = other.facts["live"], other.rules["candidate"], other.episodes["dead_letter"]
    for kind, memory_id in (("fact", fact), ("rule", rule)):
        for name in ("confirm", "forget", "take-back", "looked"):
            yield name, {"type": kind, "id": memory_id}
        yield "edit", {"type": kind, "id": memory_id, "tags": "mine"}
        yield "bulk", {"act": "confirm", "type": kind, "id": memory_id}
    yield "forget", {"type": "episode", "id": episode}
    yield "restore", {"type": "fact", "id": other.facts["retracted"]}
    yield "restore", {"type": "rule", "id": other.rules["forgotten"]}
    yield "restore", {"type": "episode", "id": other.episodes["forgotten"]}
    yield "correct", {"id": fact, "content": "mine"}
    yield "helpful", {"id": rule}
    yield "harmful", {"id": rule, "reason": "mine"}
    yield "move", {"id": fact, "entity": own.entities["live"]}
    yield "move", {"id": own.facts["permanent"], "entity": other.entities["live"]}
    yield "entity", {"id": other.entities["live"], "name": "mine"}
    yield "retry", {"id": episode}
    yield "both-hold", {"type": "fact", "id": own.facts["live"], "other": fact}
    yield "merge", {"source": other.entities["bare"], "target": own.entities["live"], "name": "Nobody of zanzibar"}
    yield "merge", {"source": own.entities["bare"], "target": other.entities["live"], "name": "Nobody of tea"}
    yield "retract", {"episode": other.episodes["consolidated"]}
    yield "retract", {"session": other.session}
    yield "undo", {"request": other.request}
    yield "end-session", {"id": str(uuid4())}


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


async def test_behind_a_proxy_that_strips_a_prefix_everything_stays_under_it(butler, memory, full, browser, archive):
    server = build_tenant_server(butler, memory, full.tenant)
    dashboard = server.config.dashboard.model_copy(update={"base_path": "/memory"})
    server = replace(server, config=server.config.model_copy(update={"dashboard": dashboard}))
    pages = LazyDashboard(replace(butler, config=replace(butler.config, butler=server.config)), server)
    async with (
        serve_http(server, pages) as address,
        serve_proxy(address.removesuffix("/mcp"), "/memory") as outside,
        httpx.AsyncClient() as client,
    ):
        for path in all_pages(full):
            response = await client.get(f"{outside}/memory{path}")
            assert response.status_code == 200, path
            wrong = [each for each in LINKS.findall(response.text) if not each.startswith(("/memory/", "#"))]
            assert wrong == [], path
        fact = full.facts["permanent"]
        async with open_page(browser) as page:
            await page.goto(f"{outside}/memory/facts/{fact}")
            await page.keyboard.press("y")
            await page.wait_for_selector(".done")
            assert page.url.startswith(f"{outside}/memory/facts/{fact}?done=")
            await page.click("text=Undo")
            await page.wait_for_selector("text=Undone")
            assert page.url.startswith(f"{outside}/memory/facts/{fact}")


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
            text = await page.locator("main").inner_text()
            assert [each for each in sentences if each not in text] == [], path


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
