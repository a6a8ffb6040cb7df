"""Every page: hostile text, looking, no script, narrow screens, links, tenants and proxies."""

import ast
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from urllib.parse import parse_qsl, urlencode
from uuid import uuid4

import httpx2 as httpx

from butlers.dashboard import LazyDashboard
from butlers.dashboard.pages import ROUTES, entity_list, episode_list, fact_list, rule_list
from butlers.visible_text import escape_control_characters
from dashboard.conftest import open_page, tools_of
from dashboard.full_tenant import HOSTILE, NOT_PAGES, PAGES, FullTenant, all_pages, different_pages, fill_tenant
from dashboard.page_checks import check_text
from dashboard.stripping_proxy import serve_proxy
from memory.memory_fixtures import build_tenant_server, serve_http

LINKS = re.compile(r'(?<![\w-])(?:href|action|src|data-href|data-live)="([^"]*)"')


def test_every_route_of_a_page_is_visited_by_these_tests():
    assert {route.path for route in ROUTES if route.method == "GET"} == set(PAGES) | set(NOT_PAGES)


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
            shown.append(await check_text(page))
    assert [each for each in requested if not each.startswith(look.url)] == []
    assert dialogs == []
    everything = "\n".join(shown)
    for path in ("/facts", "/rules", "/episodes", "/entities", "/audit", "/search?q=tea"):
        assert "has hidden characters" in shown[all_pages(full).index(path)], path
    assert [text for text in HOSTILE if escape_control_characters(text) not in everything] == []
    assert await archive.everything(full.tenant) == before


async def test_every_page_fits_a_narrow_screen_without_javascript(look, browser, full):
    async with open_page(browser, java_script_enabled=False, viewport={"width": 320, "height": 640}) as page:
        for path in all_pages(full):
            await page.goto(look.url + path)
            await check_text(page, width=320)


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
    yield "revert-inversion", {"id": other.rules["warning"]}
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
