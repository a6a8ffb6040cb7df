"""Safety of the dashboard: login, sessions, cross-origin posts, headers, tenants, prefix, logs and shutdown."""

import asyncio
import logging
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from butlers.dashboard import LazyDashboard
from butlers.dashboard.pages import ROUTES
from butlers.dashboard.pages.login import local_path
from butlers.dashboard.security import CONTENT_SECURITY_POLICY
from butlers.host import api_keys, browser_sessions
from butlers.host.api_keys import NewKey
from dashboard.conftest import Site, open_page, serve_site
from database.butler_processes import connected
from memory.memory_fixtures import build_tenant_server, serve_http


@pytest.fixture
async def owner(butler):
    """A connection of the tables' owner."""
    async with connected(butler.location.admin_dsn) as connection:
        yield connection


@pytest.fixture
async def key_of(owner):
    """Make an API key; returns its id and text."""

    async def make(tenant, **options):
        return await api_keys.create_key(owner, NewKey(tenant=tenant, actor="grace", **options))

    return make


@pytest.fixture
async def guarded(butler, memory, caller):
    """The pages of a butler that needs a key."""
    async with serve_site(butler, memory, caller.tenant, mode="keys") as served:
        yield served


async def log_in(site: Site, credential: str, **fields: str):
    response = await site.post("/login", credential=credential, **fields)
    name, _, rest = response.headers.get("set-cookie", "").partition("=")
    return response, {"Cookie": f"{name}={rest.split(';')[0]}"} if name else {}


async def test_every_answer_has_the_security_headers(site):
    for path in ("/", "/facts", "/no-such-page", f"/facts/{uuid4()}", "/static/0/app.css"):
        response = await site.get(path)
        assert response.headers["content-security-policy"] == CONTENT_SECURITY_POLICY, path
        assert response.headers["x-frame-options"] == "DENY"
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "same-origin"
        assert response.headers["cross-origin-opener-policy"] == "same-origin"
        assert response.headers["cross-origin-resource-policy"] == "same-origin"
        assert response.headers["permissions-policy"].startswith("camera=(), geolocation=(), microphone=()")
        assert "access-control-allow-origin" not in response.headers
        assert response.headers["cache-control"] == "no-store"


async def test_static_files_are_kept_for_good_under_their_digest(site):
    text = (await site.get("/facts/none")).text
    for name in ("app.css", "app.js", "icon.svg"):
        start = text.index("/static/")
        path = next(part for part in text[start - 1 :].split('"') if part.endswith(name))
        response = await site.get(path)
        assert response.status_code == 200
        assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert (await site.get("/static/000000000000/app.css")).status_code == 404
    assert (await site.get("/static/000000000000/..%2f..%2fpage.py")).status_code == 404


async def test_mode_local_needs_no_login_and_says_who_you_are(site, caller):
    assert f"{caller.tenant} · local" in (await site.get("/facts/none")).text
    assert (await site.get("/login")).headers["location"] == "/"


async def test_without_a_login_every_page_leads_to_it_and_no_form_is_taken(guarded, tools):
    fact = await tools.fact("a secret")
    response = await guarded.get(f"/facts/{fact}?from=mail")
    assert response.status_code == 303
    assert response.headers["location"] == f"/login?next=%2Ffacts%2F{fact}%3Ffrom%3Dmail"
    assert (await guarded.post("/acts/end-session", id=str(uuid4()))).status_code == 401
    assert "secret" not in (await guarded.get("/login")).text


async def test_a_key_opens_a_session_and_leads_back_to_the_page(guarded, tools, key_of, caller, page):
    _, key = await key_of(caller.tenant)
    fact = await tools.fact("eats no meat")
    await page.goto(f"{guarded.url}/facts/{fact}")
    await page.fill("#credential", key)
    await page.click("main button")
    await page.wait_for_url(f"{guarded.url}/facts/{fact}")
    assert await page.locator(".content").inner_text() == "eats no meat"
    (cookie,) = await page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"], cookie["secure"]) == (True, "Lax", "/", False)
    assert key.split("_")[2] not in cookie["value"]
    await page.click("text=Log out")
    await page.wait_for_url(f"{guarded.url}/login")
    await page.goto(f"{guarded.url}/facts/{fact}")
    assert "/login" in page.url


async def test_revoking_the_key_ends_its_sessions_at_once(guarded, tools, key_of, owner, caller):
    key_id, key = await key_of(caller.tenant)
    fact = await tools.fact("eats no meat")
    _, cookie = await log_in(guarded, key)
    assert (await guarded.get(f"/facts/{fact}", headers=cookie)).status_code == 200
    await api_keys.revoke_key(owner, key_id)
    assert (await guarded.get(f"/facts/{fact}", headers=cookie)).status_code == 303


async def test_a_session_ends_when_it_is_idle_and_after_a_week(guarded, tools, key_of, archive, caller):
    _, key = await key_of(caller.tenant)
    fact = await tools.fact("eats no meat")
    for column, age in (("last_seen_at", "13 hours"), ("expires_at", "1 second")):
        _, cookie = await log_in(guarded, key)
        assert (await guarded.get(f"/facts/{fact}", headers=cookie)).status_code == 200
        await archive.connection.execute(
            f"update browser_sessions set {column} = now() - interval '{age}' where tenant_id = $1",  # noqa: S608
            caller.tenant,
        )
        assert (await guarded.get(f"/facts/{fact}", headers=cookie)).status_code == 303


async def test_wrong_credentials_get_one_answer_and_then_a_pause(butler, memory, caller, key_of):
    key_id, key = await key_of(caller.tenant)
    wrong = ["", "no key", f"butlers_{uuid4().hex}_x", key[:-1] + "x", f"butlers_{key_id.hex}_"]
    async with serve_site(butler, memory, caller.tenant, mode="keys") as site:
        responses = [await site.post("/login", credential=each or " ") for each in wrong]
        assert {response.status_code for response in responses} == {401}
        assert len({response.text for response in responses}) == 1
        response = await site.post("/login", credential=key)
        assert response.status_code == 429
        assert "Wait a minute" in response.text
        assert "set-cookie" not in response.headers


async def test_a_ticket_opens_one_session_and_then_nothing(guarded, tools, owner, caller, browser):
    fact = await tools.fact("eats no meat")
    ticket = await browser_sessions.make_ticket(owner, caller)
    async with open_page(browser) as page:
        await page.goto(f"{guarded.url}/login?next=/facts/{fact}#ticket={ticket}")
        await page.wait_for_selector(".content")
        assert page.url == f"{guarded.url}/facts/{fact}"
    responses = await asyncio.gather(*(guarded.post("/login", credential=ticket) for _ in range(3)))
    assert {response.status_code for response in responses} == {401}


async def test_of_many_that_redeem_a_ticket_at_once_one_gets_in(guarded, owner, caller):
    ticket = await browser_sessions.make_ticket(owner, caller)
    responses = await asyncio.gather(*(guarded.post("/login", credential=ticket) for _ in range(4)))
    assert sorted(response.status_code for response in responses) == [303, 401, 401, 401]


async def test_a_ticket_is_valid_for_a_minute(guarded, owner, caller, archive):
    ticket = await browser_sessions.make_ticket(owner, caller)
    await archive.connection.execute(
        "update browser_sessions set expires_at = now() where tenant_id = $1", caller.tenant
    )
    assert (await guarded.post("/login", credential=ticket)).status_code == 401
    assert timedelta(seconds=60) == browser_sessions.TICKET_LIFETIME


async def test_a_session_token_is_no_ticket_and_a_ticket_no_session(guarded, tools, owner, caller, butler):
    fact = await tools.fact("eats no meat")
    ticket = await browser_sessions.make_ticket(owner, caller)
    cookie = {"Cookie": f"butlers-{butler.config.butler.name}={ticket.removeprefix('ticket_')}"}
    assert (await guarded.get(f"/facts/{fact}", headers=cookie)).status_code == 303
    token = await browser_sessions.open_session(butler.database, caller, None, None)
    assert (await guarded.post("/login", credential=f"ticket_{token}")).status_code == 401


async def test_a_bearer_credential_of_a_proxy_is_taken(guarded, tools, key_of, caller):
    _, key = await key_of(caller.tenant)
    fact = await tools.fact("eats no meat")
    headers = {"Authorization": f"Bearer {key}"}
    assert (await guarded.get(f"/facts/{fact}", headers=headers)).status_code == 200
    headers = {"Authorization": "Bearer nonsense"}
    assert (await guarded.get(f"/facts/{fact}", headers=headers)).status_code == 303


@pytest.mark.parametrize(
    "path",
    ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "", "facts", "/a\nb"],
)
def test_a_login_leads_nowhere_else(path):
    assert local_path(path) == "/"


async def test_a_login_leads_back_to_the_page_and_its_query(guarded, key_of, caller, browser):
    _, key = await key_of(caller.tenant)
    for path in ("/facts?subject=a%20b&tag=%C3%A9%26%3D%3F&state=all", "/review?of=twins&skip=1", "/"):
        async with open_page(browser) as page:
            await page.goto(guarded.url + path)
            await page.fill("#credential", key)
            await page.click("main button")
            await page.wait_for_selector("nav")
            assert page.url == guarded.url + path
    wrong = await guarded.post("/login", credential="wrong", next="/review?of=twins&skip=1")
    assert 'name="next" value="/review?of=twins&amp;skip=1"' in wrong.text


async def test_every_form_from_elsewhere_or_from_nowhere_is_refused(site, tools, archive):
    await tools.fact("eats no meat")
    before = await archive.everything(tools.tenant)
    elsewhere = {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}
    for path in {route.path for route in ROUTES if route.method == "POST"}:
        for headers in (None, *elsewhere):
            response = await site.client.post(site.url + path, data={"id": "x"}, headers=headers)
            assert response.status_code == 403, (path, headers)
    for headers in ({"Origin": site.url}, {"Sec-Fetch-Site": "same-origin"}):
        response = await site.client.post(f"{site.url}/acts/end-session", data={"id": "x"}, headers=headers)
        assert response.status_code == 400, headers
    assert await archive.everything(tools.tenant) == before


async def test_a_foreign_page_in_the_browser_can_not_post(site, browser):
    async def answer(route):
        form = f'<form method="post" action="{site.url}/acts/end-session"><button>win</button></form>'
        await route.fulfill(status=200, content_type="text/html", body=form)

    context = await browser.new_context()
    try:
        page = await context.new_page()
        await context.route("http://evil.example/", answer)
        await page.goto("http://evil.example/")
        async with page.expect_response("**/acts/end-session") as sent:
            await page.click("text=win")
        assert (await sent.value).status == 403
    finally:
        await context.close()


async def test_the_pages_can_not_be_framed_or_read_by_another_page(site):
    response = await site.get("/facts/none", headers={"Origin": "https://evil.example"})
    assert response.status_code == 403
    response = await site.client.get(f"{site.url}/", headers={"Host": "evil.example"})
    assert response.status_code == 421


async def test_a_key_that_only_reads_can_not_act(guarded, key_of, caller):
    _, key = await key_of(caller.tenant, roles=("reader",))
    _, cookie = await log_in(guarded, key)
    response = await guarded.client.post(
        f"{guarded.url}/acts/end-session", data={"id": str(uuid4())}, headers={"Origin": guarded.url, **cookie}
    )
    assert response.status_code == 403
    assert "may only read" in response.text


async def test_another_tenant_is_not_found_for_everybody_but_elevated_admins(guarded, stranger, key_of, caller):
    fact = await stranger.fact("a secret of a stranger")
    for options in ({}, {"roles": ("admin",)}):
        _, key = await key_of(caller.tenant, **options)
        _, cookie = await log_in(guarded, key)
        for path in (f"/t/{stranger.tenant}/facts/{fact}", f"/t/{stranger.tenant}/enter", "/tenants"):
            response = await guarded.get(path, headers=cookie)
            assert response.status_code == 404, path
            assert "secret" not in response.text


async def test_an_elevated_admin_enters_with_a_reason_that_stands_on_the_trail(
    guarded, stranger, key_of, caller, archive, browser
):
    fact = await stranger.fact("a secret of a stranger")
    _, key = await key_of(caller.tenant, roles=("admin",), elevated=True)
    async with open_page(browser) as page:
        await page.goto(f"{guarded.url}/login")
        await page.fill("#credential", key)
        await page.click("main button")
        await page.wait_for_url(lambda url: "/login" not in url)
        await page.goto(f"{guarded.url}/t/{stranger.tenant}/facts/{fact}?x=1&y=a%20b")
        assert "/enter" in page.url
        await page.fill("#reason", "ticket 42")
        await page.click("main button")
        await page.wait_for_url(f"**/t/{stranger.tenant}/facts/{fact}?x=1&y=a%20b")
        assert "a secret of a stranger" in await page.locator(".content").inner_text()
        assert f"You are in {stranger.tenant}, from {caller.tenant}." in await page.locator(".band").inner_text()
        links = await page.eval_on_selector_all("nav a", "links => links.map(each => each.getAttribute('href'))")
        assert all(link.startswith(f"/t/{stranger.tenant}/") for link in links)
    (event,) = [
        dict(row)
        for row in await archive.connection.fetch(
            "select actor, payload from memory_events where tenant_id = $1 and event_type = 'tenant_entered'",
            stranger.tenant,
        )
    ]
    assert event["actor"] == "grace"
    payload = event["payload"] if isinstance(event["payload"], dict) else __import__("json").loads(event["payload"])
    assert payload["reason"] == "ticket 42"
    assert payload["elevated_from"] == caller.tenant
    assert payload["via"] == "dashboard"


async def test_an_act_in_another_tenant_asks_once_more(guarded, stranger, key_of, caller):
    _, key = await key_of(caller.tenant, roles=("admin",), elevated=True)
    _, cookie = await log_in(guarded, key)
    headers = {"Origin": guarded.url, **cookie}
    base = f"{guarded.url}/t/{stranger.tenant}"
    await guarded.client.post(f"{base}/enter", data={"reason": "looking"}, headers=headers)
    fields = {"id": str(uuid4())}
    response = await guarded.client.post(f"{base}/acts/end-session", data=fields, headers=headers)
    assert response.status_code == 200
    assert f"Change a memory of {stranger.tenant}?" in response.text
    assert fields["id"] in response.text
    response = await guarded.client.post(
        f"{base}/acts/end-session", data={**fields, "confirmed": "1"}, headers=headers
    )
    assert response.status_code == 404


async def test_a_visit_ends_after_half_an_hour(guarded, stranger, key_of, caller, archive):
    fact = await stranger.fact("a secret of a stranger")
    _, key = await key_of(caller.tenant, roles=("admin",), elevated=True)
    _, cookie = await log_in(guarded, key)
    path = f"/t/{stranger.tenant}/facts/{fact}"
    for minutes, actor, status in ((31, "grace", 303), (29, "another", 303), (29, "grace", 200)):
        await archive.connection.execute(
            "insert into memory_events (tenant_id, event_type, entity_type, entity_id, actor, occurred_at)"
            " values ($1, 'tenant_entered', 'tenant', gen_random_uuid(), $2, now() - make_interval(mins => $3))",
            stranger.tenant, actor, minutes,
        )  # fmt: skip
        assert (await guarded.get(path, headers=cookie)).status_code == status, (minutes, actor)


@asynccontextmanager
async def prefixed(butler, memory, tenant, base_path):
    server = build_tenant_server(butler, memory, tenant)
    dashboard = server.config.dashboard.model_copy(update={"base_path": base_path})
    server = replace(server, config=server.config.model_copy(update={"dashboard": dashboard}))
    pages = LazyDashboard(replace(butler, config=replace(butler.config, butler=server.config)), server)
    async with serve_http(server, pages) as address:
        yield address.removesuffix("/mcp")


async def test_behind_a_proxy_every_link_starts_with_its_path(butler, memory, caller, tools, page):
    fact = await tools.fact("eats no meat")
    async with prefixed(butler, memory, caller.tenant, "/memory") as url:
        for path in (f"/memory/facts/{fact}", f"/facts/{fact}"):
            await page.goto(url + path)
            assert await page.locator(".content").inner_text() == "eats no meat"
            links = await page.eval_on_selector_all(
                "[href], [action], [src]",
                "all => all.map(e => e.getAttribute('href') ?? e.getAttribute('action') ?? e.getAttribute('src'))",
            )
            assert all(link.startswith(("/memory/", "#")) for link in links), links


async def test_the_log_has_the_pattern_of_a_path_and_no_query(site, tools, caplog):
    caplog.set_level(logging.INFO, logger="butlers.dashboard")
    fact = await tools.fact("eats no meat")
    await site.get(f"/facts/{fact}?q=secret-words")
    (record,) = [each for each in caplog.records if each.name == "butlers.dashboard"]
    assert (record.path, record.status, record.method) == ("/facts/{id:uuid}", 200, "GET")
    assert "secret-words" not in str(record.__dict__)


async def test_pages_and_tools_share_a_tenants_rate(butler, memory, caller):
    server = build_tenant_server(butler, memory, caller.tenant)
    pages = LazyDashboard(replace(butler, config=replace(butler.config, butler=server.config)), server)
    server.rate._rate, server.rate._burst = 0.001, 2.0
    async with serve_http(server, pages) as address:
        import httpx2

        async with httpx2.AsyncClient() as client:
            site = Site(address.removesuffix("/mcp"), client)
            statuses = [(await site.get("/facts/none")).status_code for _ in range(3)]
    assert statuses == [404, 404, 429]


async def test_a_session_of_a_token_ends_with_it(butler, caller):
    soon = datetime.now(UTC) + timedelta(seconds=0.3)
    token = await browser_sessions.open_session(butler.database, caller, None, soon)
    assert await browser_sessions.find_session(butler.database, caller.butler, token)
    await asyncio.sleep(0.5)
    assert await browser_sessions.find_session(butler.database, caller.butler, token) is None
