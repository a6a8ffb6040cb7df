"""Forms and addresses at their limits: repeated, reused, too large, too many, nested and unreadable ones."""

import asyncio
import json
from dataclasses import replace
from uuid import uuid4

import httpx2 as httpx
import pytest
from starlette.requests import Request

from butlers.dashboard import authentication
from butlers.dashboard.forms import MAX_BYTES, MAX_FIELDS, MAX_SHORT_BYTES
from butlers.dashboard.pages.live import LiveUpdates
from butlers.host import browser_sessions
from dashboard.conftest import Site, open_page, serve_site
from dashboard.full_tenant import fill_tenant
from dashboard.test_dashboard_every_act import ACTS, submit
from dashboard.test_dashboard_judge import act

NO_RATE = {"calls_per_second": 0.001, "burst": 4}


async def test_every_form_that_is_sent_again_later_acts_once(site, tools, archive, memory, browser):
    """The second submit comes after the first was answered: a reader goes back and sends the same form again."""
    full = await fill_tenant(tools, archive, memory)
    ids = {"facts": full.facts, "rules": full.rules, "episodes": full.episodes, "entities": full.entities}
    async with open_page(browser, java_script_enabled=False) as page:
        sent: list[str | None] = []
        page.on("request", lambda request: sent.append(request.post_data) if request.method == "POST" else None)
        for name, (path, fields, button, said) in ACTS.items():
            if name == "undo":
                continue
            await page.goto(site.url + path.format(**ids))
            first = await submit(page, f"/acts/{name}", fields, button=button)
            assert first.startswith(said), name
            before = await archive.everything(tools.tenant)
            headers = {"Origin": site.url, "Content-Type": "application/x-www-form-urlencoded"}
            again = await site.client.post(f"{site.url}/acts/{name}", content=sent[-1], headers=headers)
            assert again.status_code == 303, (name, again.text)
            assert (await site.get(again.headers["location"])).text.count('class="done"') == 1, name
            assert await archive.everything(tools.tenant) == before, name


async def test_all_that_match_are_forgotten_once_by_two_submits(site, tools, archive):
    for number in range(3):
        await tools.fact(f"fact {number}", subject="Ada", predicate=f"p{number}")
    key = str(uuid4())
    fields = {"type": "fact", "act": "forget", "all": "1", "filter": "subject=Ada"}
    answers = [await act(site, "bulk", key, **fields) for _ in range(2)]
    assert [each.status_code for each in answers] == [303, 303]
    assert await archive.count("facts", tools.tenant, "validity = 'retracted'") == 3


async def test_a_first_fact_that_is_sent_twice_has_one_message_and_an_undo(site, archive, caller):
    key = str(uuid4())
    fields = {"subject": "Ada", "predicate": "diet", "content": "no meat", "key": key}
    answers = [await site.post("/acts/store", **fields) for _ in range(2)]
    for each in answers:
        text = (await site.get(each.headers["location"])).text
        assert "Stored Ada · diet" in text
        assert f'name="request" value="{key}"' in text
    assert len(await archive.events(caller.tenant)) == 1


async def test_a_form_can_not_take_the_id_of_another_call(site, tools, archive):
    fact = await tools.fact("eats no meat")
    (event,) = await archive.events(tools.tenant)
    answer = await act(site, "confirm", event["request_id"], type="fact", id=fact)
    assert answer.status_code == 409
    assert len(await archive.events(tools.tenant)) == 1


@pytest.mark.parametrize(
    "path",
    [
        "/facts?done=%00", "/facts?done=%ed%a0%80", "/review?skip=" + "9" * 5_000, "/review?skip=" + "٣" * 5_000,
        "/search?q=%00&scope=%00", "/audit?request=%00&actor=%00", "/facts?subject=%00", "/entities?name=%00",
    ],
)  # fmt: skip
async def test_an_unreadable_address_is_answered(site, tools, path):
    await tools.fact("eats no meat")
    assert (await site.get(path)).status_code == 200


async def test_a_form_with_unreadable_fields_is_refused(site, tools):
    entity, rule = await tools.entity(), await tools.rule()
    for name, fields, status in (
        ("undo", {"request": "a\x00b"}, 404),
        ("harmful", {"id": rule, "reason": "\x00"}, 303),
        ("confirm", {"type": "fact\x00", "id": str(uuid4())}, 404),
        ("move", {"id": str(uuid4()), "entity": "\x00"}, 400),
        ("entity", {"id": entity, "metadata": '{"a":' * 20_000}, 400),
    ):
        answer = await act(site, name, **fields)
        assert answer.status_code == status, (name, answer.text)
    for depth in (50, 200, 400, 600, 800, 900, 950, 50_000):
        metadata = '{"a":' + "[" * depth + "]" * depth + "}"
        answer = await act(site, "entity", id=entity, metadata=metadata)
        assert answer.status_code in {303, 400}, depth
        assert (await site.get(f"/entities/{entity}")).status_code == 200, depth


def encoded(site: Site) -> dict[str, str]:
    return {"Origin": site.url, "Content-Type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"id=1&" * MAX_FIELDS + b"id=1", 400, "more than 1,000 fields"),
        (b"content=" + b"x" * MAX_BYTES, 413, "more than 1,048,576 bytes"),
        (b"content=" + b"%ff" * 100_000, 400, "no key"),
        (b"\xff\xfe=\xff", 400, "no key"),
    ],
)
async def test_a_form_beyond_its_limits_is_answered_with_a_page(site, body, status, words):
    async def in_parts():
        yield body[: len(body) // 2]
        yield body[len(body) // 2 :]

    for content in (body, in_parts()):
        answer = await site.client.post(f"{site.url}/acts/correct", content=content, headers=encoded(site))
        assert answer.status_code == status, answer.text
        assert words in answer.text
        assert "content-security-policy" in answer.headers


async def test_a_form_in_another_encoding_has_no_fields(site):
    files = {"key": (None, str(uuid4()))}
    answer = await site.client.post(f"{site.url}/acts/confirm", files=files, headers={"Origin": site.url})
    assert answer.status_code == 400


async def test_a_login_is_small(butler, memory, caller):
    async with serve_site(butler, memory, caller.tenant, mode="keys") as site:
        answer = await site.post("/login", credential="x" * MAX_SHORT_BYTES)
        assert answer.status_code == 413
        assert (await site.post("/login", credential="\x00")).status_code == 401


async def test_a_large_form_counts_as_several_calls(butler, memory, caller):
    async with serve_site(butler, memory, caller.tenant, limits=NO_RATE) as site:
        fields = {"id": str(uuid4()), "content": "x" * 70_000}
        assert (await act(site, "correct", **fields)).status_code == 404
        assert (await site.get("/facts")).status_code == 429


async def test_a_form_of_unknown_length_counts_as_the_longest(butler, memory, caller):
    async def in_parts():
        yield b"id=1"

    async with serve_site(butler, memory, caller.tenant, limits=NO_RATE) as site:
        answer = await site.client.post(f"{site.url}/acts/correct", content=in_parts(), headers=encoded(site))
        assert answer.status_code == 400
        assert (await site.get("/facts")).status_code == 429


async def test_requests_without_a_login_have_a_rate_for_each_address(butler, memory, caller):
    async with serve_site(butler, memory, caller.tenant, mode="keys", limits=NO_RATE) as site:
        statuses = [(await site.get(path)).status_code for path in ("/facts", "/login", "/facts", "/none", "/facts")]
        assert statuses == [303, 200, 303, 404, 429]
        # The loopback network has more addresses than one.
        transport = httpx.AsyncHTTPTransport(local_address="127.0.0.2")
        async with httpx.AsyncClient(transport=transport) as other:
            assert (await other.get(f"{site.url}/login")).status_code == 200


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.7", "::ffff:192.0.2.7"),
        ("unknown", "unknown"),
    ],
)
def test_a_client_is_known_by_its_network(host, network):
    assert authentication.client_network(Request({"type": "http", "client": (host, 1)})) == network


async def test_one_tenant_can_not_take_every_place_of_the_live_updates(butler, memory, caller, stranger):
    updates = LiveUpdates(asyncio.Event())
    streams = []

    async def listen(tenant) -> bool:
        if not updates.has_room(tenant):
            return False
        stream = updates.changes(memory, replace(caller, tenant=tenant))
        await anext(stream)
        streams.append(stream)
        return True

    try:
        opened = [await listen(caller.tenant) for _ in range(120)]
        assert sum(opened) == 100
        assert sum([await listen(stranger.tenant) for _ in range(120)]) == 50
    finally:
        await asyncio.gather(*(each.aclose() for each in streams))


async def test_ending_a_session_is_an_event(site, butler, caller, archive):
    token = await browser_sessions.open_session(butler.database, caller, None, None)
    session = await browser_sessions.find_session(butler.database, caller.butler, token)
    answer = await site.post("/acts/end-session", id=str(session.id))
    assert answer.status_code == 303
    (event,) = await archive.events(caller.tenant)
    assert (event["event_type"], event["entity_id"]) == ("browser_session_ended", str(session.id))
    assert json.loads(event["payload"])["via"] == "dashboard"
    assert "ended a browser session" in " ".join((await site.get("/audit")).text.split())
