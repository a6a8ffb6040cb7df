"""Access to the pages: tokens, https, readers, the headers of refusals, and the pages around a login and a visit."""

import re
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import uuid4

import httpx2 as httpx
import pytest

from butlers import db
from butlers.dashboard import LazyDashboard
from butlers.dashboard.security import CONTENT_SECURITY_POLICY
from butlers.host import api_keys
from butlers.host.api_keys import NewKey
from butlers.modules.memory import MemoryModule
from dashboard.conftest import Site, open_page, serve_site
from dashboard.full_tenant import HOSTILE, all_pages
from dashboard.page_checks import check_axe, check_page, check_text
from dashboard.test_dashboard_safety import log_in
from database.butler_processes import connected
from host.test_host_tokens import AUDIENCE, ISSUER, PUBLIC, token
from memory.memory_fixtures import build_tenant_server, serve_http

TEXT = " ".join(HOSTILE[1:])


async def make_key(butler, tenant, **options) -> str:
    async with connected(butler.location.admin_dsn) as owner:
        return (await api_keys.create_key(owner, NewKey(tenant=tenant, actor="grace", **options)))[1]


@pytest.fixture
async def by_token(butler, memory, caller) -> AsyncIterator[Site]:
    """The pages of a butler that needs a token."""
    auth = {"mode": "jwt", "issuer": ISSUER, "audience": AUDIENCE, "public_key": PUBLIC}
    async with serve_site(butler, memory, caller.tenant, **auth) as served:
        yield served


async def test_a_token_logs_in_as_whom_it_names_until_it_ends(by_token, tools, archive, page):
    fact = await tools.fact("eats no meat")
    ends_at = int(time.time()) + 60
    await page.goto(f"{by_token.url}/facts/{fact}")
    await page.fill("#credential", token(tenant_id=tools.tenant, exp=ends_at))
    await page.click("main button")
    await page.wait_for_url(f"{by_token.url}/facts/{fact}")
    assert f"{tools.tenant} · ada" in await page.locator(".who").inner_text()
    (session,) = await archive.rows("select expires_at from browser_sessions where tenant_id = $1", tools.tenant)
    assert session["expires_at"].timestamp() == ends_at
    await archive.connection.execute(
        "update browser_sessions set expires_at = now() where tenant_id = $1", tools.tenant
    )
    await page.goto(f"{by_token.url}/facts/{fact}")
    assert "/login" in page.url


async def test_the_token_of_a_proxy_is_taken_and_a_bad_one_is_not(by_token, tools):
    fact = await tools.fact("eats no meat")
    good, expired = token(tenant_id=tools.tenant), token(tenant_id=tools.tenant, exp=int(time.time()) - 120)
    other = token(tenant_id="another")
    for credential, status in ((good, 200), (expired, 303), (other, 404), (token(aud="else"), 303)):
        answer = await by_token.get(f"/facts/{fact}", headers={"Authorization": f"Bearer {credential}"})
        assert answer.status_code == status
    for credential in (expired, token(aud="else"), "no token"):
        assert (await by_token.post("/login", credential=credential)).status_code == 401


async def test_over_https_the_cookie_is_secure_and_bound_to_the_host(butler, memory, caller):
    key = await make_key(butler, caller.tenant)
    async with serve_site(butler, memory, caller.tenant, mode="keys") as site:
        headers = {"X-Forwarded-Proto": "https", "Origin": site.url.replace("http:", "https:")}
        answer = await site.client.post(f"{site.url}/login", data={"credential": key}, headers=headers)
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"__Host-butlers-{butler.config.butler.name}=")
    parts = {each.strip().lower() for each in cookie.split(";")[1:]}
    assert parts == {"httponly", "secure", "path=/", "samesite=lax"}


async def test_a_reader_sees_every_page_without_an_act_and_can_send_none(butler, memory, archive, full):
    tenant = full.tenant
    key = await make_key(butler, tenant, roles=("reader",))
    async with serve_site(butler, memory, tenant, mode="keys") as site:
        _, cookie = await log_in(site, key)
        before = await archive.everything(tenant)
        for path in all_pages(full):
            text = (await site.get(path, headers=cookie)).text
            assert "only reads" in text, path
            assert re.findall(r'action="[^"]*/acts/[^"]*"', text) == [], path
            assert re.findall(r"<button[^>]*data-(?:act|count)", text) == [], path
        headers = {"Origin": site.url, **cookie}
        for name in ("confirm", "forget", "take-back", "correct", "bulk", "merge", "undo", "store", "run-job"):
            fields = {"key": str(uuid4()), "type": "fact", "id": full.facts["live"], "content": "x", "act": "forget"}
            answer = await site.client.post(f"{site.url}/acts/{name}", data=fields, headers=headers)
            assert answer.status_code == 403, name
        assert await archive.everything(tenant) == before


def check_headers(response: httpx.Response, status: int) -> None:
    assert response.status_code == status
    assert response.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert response.headers["x-frame-options"] == "DENY"
    assert response.headers["permissions-policy"]
    assert response.headers["cache-control"] == "no-store"


async def test_every_refusal_has_the_security_headers(butler, memory, caller):
    key = await make_key(butler, caller.tenant, roles=("reader",))
    rate = {"calls_per_second": 0.001, "burst": 3}
    async with serve_site(butler, memory, caller.tenant, limits=rate, mode="keys") as site:
        headers = {"Authorization": f"Bearer {key}", "Origin": site.url}
        check_headers(await site.client.post(f"{site.url}/acts/forget", headers=headers), 403)
        check_headers(await site.client.post(f"{site.url}/acts/forget", headers={"Cookie": "x=y"}), 403)
        check_headers(await site.post("/acts/forget"), 401)
        check_headers(await site.post("/login", credential="x" * 70_000), 413)
        check_headers(await site.post("/login", credential="x"), 429)


async def test_pages_of_a_fault_have_the_security_headers(butler, memory, caller):
    database = await db.connect(butler.location.dsn, 1)
    await database.close()
    module = MemoryModule()
    server = build_tenant_server(butler, memory, caller.tenant)
    pages = LazyDashboard(replace(butler, modules=[module]), server)
    async with serve_http(server, pages) as address, httpx.AsyncClient() as client:
        for broken, status in ((database, 503), (None, 500)):
            module._memory = replace(memory, database=broken)
            check_headers(await client.get(address.removesuffix("/mcp") + "/facts"), status)


async def test_the_pages_around_a_login_and_a_visit_are_accessible_and_run_nothing(
    butler, memory, caller, stranger, browser
):
    fact = await stranger.fact(TEXT, subject=TEXT[:200], predicate=TEXT[:200])
    key = await make_key(butler, caller.tenant, roles=("admin",), elevated=True)
    async with serve_site(butler, memory, caller.tenant, mode="keys") as site, open_page(browser) as page:
        await page.goto(f"{site.url}/login?next=/facts%3Fsubject=%3Cscript%3E%22%27%E2%80%AE")
        await check_page(page)
        await page.fill("#credential", key)
        await page.click("main button")
        await page.wait_for_selector("nav")
        await page.goto(f"{site.url}/tenants")
        await check_page(page)
        await page.goto(f"{site.url}/t/{stranger.tenant}/facts/{fact}?next=%22%3E%3Cscript%3E")
        assert await page.locator("#reason").is_visible()
        await check_page(page)
        await page.fill("#reason", TEXT[:150])
        await page.click("main button")
        await page.wait_for_selector(".content")
        await check_axe(page)
        await check_text(page)
        await page.click("text=Correct")
        await page.fill("#correction", TEXT)
        await page.click(".stacked button:has-text('Correct')")
        await page.wait_for_selector("text=Change a memory of")
        assert await page.input_value("main [name=content]") == TEXT
        await check_page(page)


async def test_error_pages_are_accessible_and_run_nothing(site, browser):
    # Not open_page: a status of 400 or 404 is an error in the console.
    context = await browser.new_context(reduced_motion="reduce")
    try:
        page = await context.new_page()
        for path, status in (
            (f"/facts?state={TEXT[:150].replace('#', '')}", 400),
            ("/no/such/page/%3Cscript%3E", 404),
        ):
            response = await page.goto(site.url + path)
            assert response.status == status
            await check_page(page)
    finally:
        await context.close()
