"""Forms and addresses at their limits: repeated, reused, too large, too many, nested and unreadable ones."""

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import replace
from uuid import uuid4

import httpx2 as httpx
import pytest
from starlette.requests import Request

from butlers.dashboard import authentication
from butlers.dashboard.forms import MAX_BYTES, MAX_FIELDS, MAX_SHORT_BYTES
from butlers.dashboard.pages.live import LiveUpdates
from butlers.host import browser_sessions
from dashboard.conftest import Site, serve_site
from dashboard.test_dashboard_judge import act
from database.butler_processes import connected

NO_RATE = {"calls_per_second": 0.001, "burst": 4}


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


async def test_invented_cookies_are_charged_before_they_are_looked_up(butler, memory, caller):
    token = await browser_sessions.open_session(butler.database, caller, None, None)
    async with serve_site(butler, memory, caller.tenant, mode="keys", limits=NO_RATE) as site:
        name = f"butlers-{butler.config.butler.name}"

        async def get(cookie: str) -> int:
            return (await site.get("/retract", headers={"Cookie": f"{name}={cookie}"})).status_code

        assert await get(token) == 400
        async with connected(butler.location.admin_dsn) as owner, owner.transaction():
            await owner.execute("lock table browser_sessions in access exclusive mode")
            requests = [asyncio.create_task(get(f"invented {number}")) for number in range(20)]
            refused, looking_up = await asyncio.wait(requests, timeout=2)
            assert [await each for each in refused] == [429] * 16
        assert [await each for each in looking_up] == [303] * 4
        # A cookie that is known does not share the rate of strangers, and has that of its tenant.
        assert [await get(token) for _ in range(4)] == [400, 400, 400, 429]


async def test_a_credential_that_is_not_valid_any_more_is_charged_as_a_strangers(butler, memory, caller, archive):
    token = await browser_sessions.open_session(butler.database, caller, None, None)
    async with serve_site(butler, memory, caller.tenant, mode="keys", limits=NO_RATE) as site:
        cookie = {"Cookie": f"butlers-{butler.config.butler.name}={token}"}
        assert (await site.get("/retract", headers=cookie)).status_code == 400
        await archive.connection.execute("delete from browser_sessions where tenant_id = $1", caller.tenant)
        statuses = [(await site.get("/retract", headers=cookie)).status_code for _ in range(6)]
        assert statuses == [303, 303, 303, 303, 303, 429]


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


def test_one_tenant_can_not_take_every_place_of_the_live_updates(caller, stranger):
    updates = LiveUpdates(asyncio.Event())
    other = replace(caller, tenant=stranger.tenant)
    places = [place for _ in range(120) if (place := updates.reserve(caller))]
    assert len(places) == 100
    assert sum(updates.reserve(other) is not None for _ in range(120)) == 50
    updates.release(caller, places.pop())
    assert updates.reserve(caller) is None
    for place in places[:50]:
        updates.release(caller, place)
    assert updates.reserve(caller)


async def test_pages_that_listen_at_once_get_no_more_places_than_there_are(butler, memory, caller):
    """Each place is taken before its answer begins, and is free again when the page is closed."""
    no_pool_limit = httpx.Limits(max_connections=None)
    async with (
        serve_site(butler, memory, caller.tenant, limits={"burst": 1_000}) as site,
        httpx.AsyncClient(limits=no_pool_limit, timeout=20) as client,
    ):

        async def listen(stack: AsyncExitStack) -> int:
            return (await stack.enter_async_context(client.stream("GET", f"{site.url}/live"))).status_code

        async with AsyncExitStack() as stack:
            statuses = await asyncio.gather(*(listen(stack) for _ in range(120)))
            assert Counter(statuses) == {200: 100, 429: 20}
        async with asyncio.timeout(10), AsyncExitStack() as stack:
            while await listen(stack) != 200:  # noqa: ASYNC110 — the server has no event to wait for
                await asyncio.sleep(0.05)


async def test_ending_a_session_is_an_event(site, butler, caller, archive):
    token = await browser_sessions.open_session(butler.database, caller, None, None)
    session = await browser_sessions.find_session(butler.database, caller.butler, token)
    answer = await site.post("/acts/end-session", id=str(session.id))
    assert answer.status_code == 303
    (event,) = await archive.events(caller.tenant)
    assert (event["event_type"], event["entity_id"]) == ("browser_session_ended", str(session.id))
    assert json.loads(event["payload"])["via"] == "dashboard"
    assert "ended a browser session" in " ".join((await site.get("/audit")).text.split())
