"""Every act by its form on a page, with JavaScript off: it does what it says, and says what it did."""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from fastmcp import Client
from playwright.async_api import Page

from butlers.caller import Caller
from butlers.contract import Job
from butlers.dashboard import LazyDashboard
from butlers.dashboard.pages import ROUTES
from butlers.host import api_keys
from butlers.host.api_keys import NewKey
from butlers.host.metrics import Metrics
from butlers.host.scheduler import Scheduler
from dashboard.conftest import Site, open_page, serve_site
from dashboard.full_tenant import HOSTILE, FullTenant, fill_tenant
from database.butler_processes import connected
from memory.memory_fixtures import Tools, build_tenant_server, serve_http

TESTED: set[str] = {
    "/login",
    "/logout",
    "/enter",
    "/acts/end-session",
    "/acts/run-job",
    "/acts/store",
    "/acts/store-rule",
}
"""The forms of the tests below, beside those of `ACTS`."""


@pytest.fixture(scope="module")
async def full(butler, memory, archive) -> FullTenant:
    """A tenant that the tests of this file change."""
    tenant = f"t-{uuid4().hex}"
    async with Client(build_tenant_server(butler, memory, tenant).mcp) as client:
        return await fill_tenant(Tools(client, tenant), archive, memory)


@pytest.fixture(scope="module")
async def acting(butler, memory, full) -> AsyncIterator[Site]:
    """The pages of that tenant."""
    async with serve_site(butler, memory, full.tenant) as served:
        yield served


async def submit(page: Page, action: str, fields: Mapping[str, str] | None = None, *, button: str = "") -> str:
    """Fill and send the first form of the page for an act; return what the next page says was done."""
    form = page.locator(f"form[action$='{action}']").first
    details = page.locator(f"details:has(form[action$='{action}'])")
    if await details.count():
        await details.first.locator("summary").click()
    for name, value in (fields or {}).items():
        field = form.locator(f"[name={name}]")
        if await field.first.get_attribute("type") == "checkbox":
            await field.nth(int(value)).check()
        elif await field.evaluate("e => e.tagName") == "SELECT":
            await field.select_option(value)
        else:
            await field.fill(value)
    async with page.expect_navigation() as navigation:
        await (form.locator(f"button{button}").first if button else form.locator("button").last).click()
    assert (await navigation.value).status == 200, await page.locator("main").inner_text()
    done = page.locator(".done p")
    return await done.inner_text() if await done.count() else ""


ACTS: dict[str, tuple[str, dict[str, str], str, str]] = {
    "confirm": ("/facts/{facts[live]}", {}, "", "Confirmed Ada · drink"),
    "edit": ("/facts/{facts[live]}", {"importance": "9", "tags": "food, and drink\nhealth"}, "", "Changed Ada"),
    "move": ("/facts/{facts[permanent]}", {"entity": "ada OF tea"}, "", "Moved Bob · always"),
    "correct": ("/facts/{facts[successor]}", {"content": "third\nline"}, "", "Replaced Bob · phone"),
    "forget": ("/facts/{facts[twin]}", {}, "", "Forgot Ada · drinks"),
    "take-back": ("/review?of=distilled", {}, "", "Forgot Bob · learned"),
    "restore": ("/facts/{facts[retracted]}", {}, "", "Restored Bob · wrong"),
    "helpful": ("/rules/{rules[candidate]}", {}, "", "Marked as helpful: A candidate rule"),
    "harmful": ("/rules/{rules[established]}", {"reason": HOSTILE[1]}, "", "Marked as harmful: A established rule"),
    "revert-inversion": ("/rules/{rules[warning]}", {}, "", "Made a rule again: A warning rule"),
    "retry": ("/episodes/{episodes[dead_letter]}", {}, "", "Queued again: A dead_letter talk"),
    "looked": ("/review?of=harmful", {}, "", "Looked at"),
    "both-hold": ("/review?of=twins", {}, "", "Both hold:"),
    "entity": (
        "/entities/{entities[bare]}", {"name": "Somebody", "aliases": "Body, Some\nSome", "metadata": '{"a": 1}'}, "",
        "Changed Somebody",
    ),
    "bulk": ("/facts?subject=Bob&state=live", {"id": "1", "tags": "one, two"}, "[value=tag]", "Changed Bob"),
    "merge": (
        "/entities/merge?source={entities[hostile 1]}&target={entities[hostile 2]}", {"name": HOSTILE[1]}, "",
        "Merged into",
    ),
    "retract": ("/retract?episode={episodes[consolidated]}", {}, "", "Forgot"),
    "accept-proposal": ("/review?of=proposals", {}, "", "Stored Ada · proposed"),
    "decline-proposal": ("/review?of=proposals", {}, "", "Declined"),
    "accept-run": ("/consolidation/{runs[succeeded]}", {}, "", "Looked at"),
    "take-back-run": ("/consolidation/{runs[succeeded]}/take-back?item={rules[hostile 0]}", {}, "", "Forgot"),
    "undo": ("/facts/{facts[long]}?done=", {}, "", ""),
}  # fmt: skip
"""Each act: its page, the fields to fill, the button, and what is said then."""


def test_every_form_of_the_pages_is_sent_by_these_tests():
    assert {route.path for route in ROUTES if route.method == "POST"} == TESTED | {f"/acts/{name}" for name in ACTS}


async def test_every_act_works_once_by_its_form_without_javascript(acting, full, browser, archive):
    """Each form is sent again after its answer, as by a reader who goes back: that changes nothing."""
    headers = {"Origin": acting.url, "Content-Type": "application/x-www-form-urlencoded"}
    async with open_page(browser, java_script_enabled=False) as page:
        sent: list[str | None] = []
        page.on("request", lambda request: sent.append(request.post_data) if request.method == "POST" else None)
        for name, (path, fields, button, expected) in ACTS.items():
            if name == "undo":
                continue
            address = path.format(
                facts=full.facts, rules=full.rules, episodes=full.episodes, entities=full.entities, runs=full.runs
            )
            await page.goto(acting.url + address)
            said = await submit(page, f"/acts/{name}", fields, button=button)
            assert said.startswith(expected), (name, said)
            before = await archive.everything(full.tenant)
            again = await acting.client.post(f"{acting.url}/acts/{name}", content=sent[-1], headers=headers)
            assert again.status_code == 303, (name, again.text)
            assert (await acting.get(again.headers["location"])).text.count('class="done"') == 1, name
            assert await archive.everything(full.tenant) == before, name
        await page.goto(f"{acting.url}/facts/{full.facts['long']}")
        assert (await submit(page, "/acts/forget")).startswith("Forgot Bob · long")
        assert (await submit(page, "/acts/undo")).startswith("Undone: Bob · long")
    fact = await archive.row("fact", full.facts["live"])
    assert (fact["importance"], json.loads(fact["tags"])) == (9.0, ["food, and drink", "health"])
    entity = await archive.row("entity", full.entities["bare"])
    assert sorted(json.loads(entity["aliases"]) if isinstance(entity["aliases"], str) else entity["aliases"]) == [
        "Body, Some", "Some",
    ]  # fmt: skip
    assert json.loads(entity["metadata"]) == {"a": 1}
    (successor,) = await archive.rows(
        "select content from facts where tenant_id = $1 and predicate = 'phone' and validity = 'active'", full.tenant
    )
    assert successor["content"] == "third\nline"
    assert (await archive.row("fact", full.facts["permanent"]))["entity_id"] == (
        await archive.row("entity", full.entities["live"])
    )["id"]


async def test_a_form_that_is_saved_without_a_change_changes_nothing(acting, full, browser, archive):
    """The forms hold the values themselves, hidden characters and commas included."""
    async with open_page(browser, java_script_enabled=False) as page:
        for number in range(5):
            name = f"hostile {number}"
            for folder, ids, act in (("facts", full.facts, "edit"), ("entities", full.entities, "entity")):
                kind = {"facts": "fact", "entities": "entity"}[folder]
                before = await archive.row(kind, ids[name])
                if kind == "entity" and "merged_into" in before["metadata"]:
                    continue
                await page.goto(f"{acting.url}/{folder}/{ids[name]}")
                await submit(page, f"/acts/{act}")
                after = await archive.row(kind, ids[name])
                changed = [key for key in before if before[key] != after[key] and key != "updated_at"]
                assert changed == [], (folder, name)


async def test_a_long_fact_is_not_cut_by_a_correction_in_the_review(site, tools, archive, page_without_script):
    page = page_without_script
    await tools.fact("word " * 3_000, subject="Ada", predicate="diet", permanence="ephemeral")
    await archive.connection.execute(
        "update facts set last_confirmed_at = now() - interval '15 days' where tenant_id = $1", tools.tenant
    )
    await page.goto(f"{site.url}/review?of=fading")
    assert "The first 10,000 characters." in await page.locator("main").inner_text()
    assert await page.locator("form[action$='/acts/correct']").count() == 0
    await page.click("text=Read and correct it on its page")
    assert len(await page.locator("#correction").input_value()) == len("word " * 3_000) - 1


async def test_a_first_fact_and_a_first_rule_are_stored_without_javascript(site, page_without_script):
    page = page_without_script
    await page.goto(site.url)
    said = await submit(page, "/acts/store", {"subject": "Ada", "predicate": "diet", "content": "no meat\nno fish"})
    assert said == "Stored Ada · diet"
    assert await page.locator(".content").inner_text() == "no meat\nno fish"
    await page.goto(f"{site.url}/rules")
    assert await submit(page, "/acts/store-rule", {"content": "Ask before booking"}) == "Stored Ask before booking"
    assert await page.locator("main tr[data-href]").count() == 1
    assert (await submit(page, "/acts/undo")).startswith("Undone: Ask before booking")


async def test_a_job_is_run_without_javascript(butler, memory, caller, page_without_script):
    ran = []

    async def tidy(_: Caller) -> dict[str, Any]:
        ran.append(1)
        return {}

    scheduler = Scheduler(
        butler.database, butler.caller(caller.tenant, "scheduler"), [Job("tidy", "0 3 * * *", tidy, shared=False)],
        Metrics(),
    )  # fmt: skip
    server = replace(
        build_tenant_server(butler, memory, caller.tenant), jobs=scheduler.job_statuses, run_job=scheduler.run_by_name
    )
    pages = LazyDashboard(replace(butler, config=replace(butler.config, butler=server.config)), server)
    async with serve_http(server, pages) as address:
        await page_without_script.goto(address.removesuffix("/mcp") + "/system")
        await submit(page_without_script, "/acts/run-job")
        await page_without_script.close()
    await scheduler.stop(1.0)
    assert ran == [1]


async def test_logging_in_and_out_visiting_and_ending_a_session_without_javascript(
    butler, memory, caller, stranger, browser
):
    await stranger.fact("a secret")
    async with connected(butler.location.admin_dsn) as owner:
        admin = NewKey(tenant=caller.tenant, actor="grace", roles=("admin",), elevated=True)
        _, key = await api_keys.create_key(owner, admin)
    async with (
        serve_site(butler, memory, caller.tenant, mode="keys") as site,
        open_page(browser, java_script_enabled=False) as page,
        open_page(browser, java_script_enabled=False) as other,
    ):
        for each in (page, other):
            await each.goto(f"{site.url}/system")
            await submit(each, "/login", {"credential": key})
            assert each.url == f"{site.url}/system"
        await page.click(".who a")
        await page.click(f"main a:has-text('{stranger.tenant}')")
        await submit(page, "/enter", {"reason": "ticket 42"})
        assert page.url == f"{site.url}/t/{stranger.tenant}/"
        await page.click(".who a")
        assert page.url == f"{site.url}/tenants"
        await page.go_back()
        await page.click("text=Leave")
        assert page.url == f"{site.url}/"
        await page.goto(f"{site.url}/system")
        sessions = page.locator("#sessions ~ .table tbody tr")
        assert await sessions.count() == 2
        assert await sessions.filter(has_text="this browser").locator("button").count() == 0
        await submit(page, "/acts/end-session")
        assert page.url == f"{site.url}/system"
        assert await sessions.count() == 1
        await other.goto(f"{site.url}/system")
        assert "/login" in other.url
        await submit(page, "/logout")
        assert page.url == f"{site.url}/login"
