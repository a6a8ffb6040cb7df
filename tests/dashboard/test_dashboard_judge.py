"""Acts and review: each act once, undone from where it was done, by keyboard and without JavaScript."""

import asyncio
import json
from uuid import uuid4

import pytest

from memory.memory_fixtures import REQUEST


async def act(site, act_name, /, key=None, back="/review", **fields):
    return await site.post(f"/acts/{act_name}", key=key or str(uuid4()), back=back, **fields)


async def events_of(archive, tenant):
    rows = await archive.rows(
        "select event_type, actor, request_id, payload from memory_events where tenant_id = $1 order by occurred_at",
        tenant,
    )
    return [{**row, "payload": json.loads(row["payload"])} for row in rows]


async def test_an_act_sent_ten_times_is_one_event_with_its_way_in(site, tools, archive):
    fact = await tools.fact("eats no meat")
    before = len(await events_of(archive, tools.tenant))
    key = str(uuid4())
    responses = await asyncio.gather(
        *(act(site, "confirm", key, back=f"/facts/{fact}", type="fact", id=fact) for _ in range(10))
    )
    assert {response.status_code for response in responses} == {303}
    assert {response.headers["location"] for response in responses} == {f"/facts/{fact}?done={key}"}
    (event,) = (await events_of(archive, tools.tenant))[before:]
    assert event["event_type"] == "fact_confirmed"
    assert event["request_id"] == key
    assert event["payload"]["via"] == "dashboard"


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("confirm", {}),
        ("forget", {}),
        ("correct", {"content": "eats no meat and no fish"}),
        ("edit", {"importance": "9", "permanence": "stable", "tags": "food, health"}),
    ],
)
async def test_an_act_on_a_fact_is_undone_from_the_page_it_leads_to(site, tools, archive, page, name, fields):
    fact = await tools.fact("eats no meat", subject="Ada", predicate="diet")
    before = await archive.row("fact", fact)
    response = await act(site, name, back=f"/facts/{fact}", type="fact", id=fact, **fields)
    await page.goto(site.url + response.headers["location"])
    assert "Ada · diet" in await page.locator(".done").inner_text()
    await page.keyboard.press("u")
    await page.wait_for_url(lambda url: response.headers["location"] not in url)
    assert "Undone" in await page.locator(".done").inner_text()
    assert await archive.row("fact", fact) == before


async def test_marks_of_a_rule_count_and_can_be_undone(site, tools, archive):
    rule = await tools.rule("Ask before booking")
    before = await archive.row("rule", rule)
    for name, fields in (("helpful", {}), ("harmful", {"reason": "was late"})):
        key = str(uuid4())
        assert (await act(site, name, key, id=rule, **fields)).status_code == 303
        assert (await archive.row("rule", rule))["applied_count"] == 1
        assert (await act(site, "undo", request=key)).status_code == 303
        after = await archive.row("rule", rule)
        assert {name: after[name] for name in after if name != "last_evaluated_at"} == {
            name: before[name] for name in before if name != "last_evaluated_at"
        }


async def test_the_review_goes_from_first_to_last_by_keyboard_alone(site, tools, archive, page):
    for number in range(3):
        await tools.fact(f"fact {number}", subject="Ada", predicate=f"p{number}", permanence="ephemeral")
    await archive.connection.execute(
        "update facts set last_confirmed_at = now() - interval '15 days' where tenant_id = $1", tools.tenant
    )
    await page.goto(f"{site.url}/review")
    assert "1 of 3" in await page.locator("main").inner_text()
    await page.keyboard.press("y")
    await page.wait_for_selector("text=1 of 2")
    await page.keyboard.press("s")
    await page.wait_for_selector("text=2 of 2")
    await page.keyboard.press("n")
    await page.wait_for_selector("text=You left 1 for later")
    await page.keyboard.press("u")
    await page.wait_for_selector("text=2 of 2")
    confirmed = await archive.rows(
        "select id from facts where tenant_id = $1 and last_confirmed_at > now() - interval '1 hour'", tools.tenant
    )
    assert len(confirmed) == 1


async def test_every_act_of_the_review_works_without_javascript(site, tools, archive, page_without_script):
    page = page_without_script
    fact = await tools.fact("eats no meat", subject="Ada", predicate="diet", permanence="ephemeral")
    await archive.connection.execute(
        "update facts set last_confirmed_at = now() - interval '15 days' where tenant_id = $1", tools.tenant
    )
    await page.goto(f"{site.url}/review?of=fading")
    await page.click("text=Correct")
    await page.fill("#content", "eats no meat and no fish")
    await page.click("text=Replace it")
    await page.wait_for_selector(".done")
    assert "Ada · diet" in await page.locator(".done").inner_text()
    await page.click("text=Undo")
    await page.wait_for_selector("text=Undone")
    assert (await archive.row("fact", fact))["validity"] == "active"


async def test_a_merge_shows_both_sides_and_wants_the_name(site, tools, archive, page):
    ada, other = await tools.entity("Ada Lovelace"), await tools.entity("Countess Lovelace")
    await tools.fact("tea", entity_id=ada, predicate="drinks")
    await tools.fact("coffee", entity_id=other, predicate="drinks")
    await page.goto(f"{site.url}/entities/merge?source={other}&target={ada}")
    text = await page.locator("main").inner_text()
    assert "1 conflict: of two facts with one predicate the more certain one stays" in text
    assert "A merge can't be undone" in text
    await page.fill("#name", "Ada Lovelace")
    response = await act(site, "merge", source=other, target=ada, name="wrong")
    assert response.status_code == 400
    response = await act(site, "merge", back=f"/entities/{ada}", source=other, target=ada, name="Countess Lovelace")
    assert response.status_code == 303
    assert json.loads((await archive.row("entity", other))["metadata"])["merged_into"] == ada
    hidden = await tools.entity("Ada\u202e")
    response = await act(site, "merge", back="/", source=hidden, target=ada, name="Ada\\u202e")
    assert response.status_code == 303, "the name as it is shown"


async def test_taking_back_an_episode_is_shown_first_and_can_be_undone(site, tools, memory, archive):
    episode = await tools("memory_store_episode", content="Ada said she eats no meat", butler=memory.butler)
    before = await archive.everything(tools.tenant)
    response = await site.get(f"/retract?episode={episode['id']}")
    assert response.status_code == 200
    assert "is taken back" in response.text
    assert await archive.everything(tools.tenant) == before
    key = str(uuid4())
    responses = [await act(site, "retract", key, episode=episode["id"]) for _ in range(2)]
    assert {response.status_code for response in responses} == {303}
    assert "forgotten_until" in (await archive.row("episode", episode["id"]))["metadata"]
    assert (await act(site, "undo", request=key)).status_code == 303
    assert "forgotten_until" not in (await archive.row("episode", episode["id"]))["metadata"]


async def test_many_are_changed_in_one_act_and_undone_together(site, tools, archive):
    facts = [await tools.fact(f"fact {number}", predicate=f"p{number}") for number in range(5)]
    key = str(uuid4())
    response = await site.client.post(
        f"{site.url}/acts/bulk",
        data={"key": key, "back": "/facts", "type": "fact", "act": "forget", "id": facts},
        headers={"Origin": site.url},
    )
    assert response.status_code == 303
    states = {(await archive.row("fact", each))["validity"] for each in facts}
    assert states == {"retracted"}
    assert (await act(site, "undo", request=key)).status_code == 303
    assert {(await archive.row("fact", each))["validity"] for each in facts} == {"active"}


async def test_all_that_match_are_changed_and_no_others(site, tools, archive):
    for number in range(3):
        await tools.fact(f"fact {number}", subject="Ada", predicate=f"p{number}")
    other = await tools.fact("another", subject="Bob")
    key = str(uuid4())
    fields = {"type": "fact", "act": "tag", "tags": "checked, by hand", "all": "1", "filter": "subject=Ada&evil=1"}
    assert (await act(site, "bulk", key, **fields)).status_code == 303
    rows = await archive.rows("select tags from facts where tenant_id = $1 and subject = 'Ada'", tools.tenant)
    assert [json.loads(row["tags"]) for row in rows] == [["checked", "by hand"]] * 3
    assert json.loads((await archive.row("fact", other))["tags"]) == []
    assert (await act(site, "undo", request=key)).status_code == 303
    rows = await archive.rows("select tags from facts where tenant_id = $1", tools.tenant)
    assert {row["tags"] for row in rows} == {"[]"}


async def test_the_navigation_says_how_many_wait_and_counts_again_after_an_act(site, tools, archive):
    fact = await tools.fact("fades", permanence="ephemeral")
    await archive.connection.execute(
        "update facts set last_confirmed_at = now() - interval '15 days' where tenant_id = $1", tools.tenant
    )
    assert 'Review <span class="count">1</span>' in (await site.get("/facts")).text
    await act(site, "confirm", type="fact", id=fact)
    assert 'Review <span class="count">' not in (await site.get("/facts")).text


@pytest.mark.parametrize(
    ("name", "fields", "status"),
    [
        ("confirm", {"type": "fact", "id": "nonsense"}, 400),
        ("confirm", {"type": "idea", "id": str(uuid4())}, 400),
        ("confirm", {"type": "fact", "id": str(uuid4())}, 404),
        ("edit", {"type": "fact", "id": str(uuid4()), "importance": "much"}, 400),
        ("edit", {"type": "fact", "id": str(uuid4())}, 400),
        ("bulk", {"type": "fact", "act": "explode", "id": str(uuid4())}, 400),
        ("bulk", {"type": "fact", "act": "forget"}, 400),
        ("undo", {"request": "never-made"}, 404),
        ("retract", {}, 400),
    ],
)
async def test_a_bad_form_is_answered_with_a_way_out(site, name, fields, status):
    response = await act(site, name, **fields)
    assert response.status_code == status
    assert "internal" not in response.text.lower()


async def test_a_form_without_a_key_is_refused(site, tools):
    fact = await tools.fact("eats no meat")
    assert (await site.post("/acts/forget", type="fact", id=fact)).status_code == 400
    assert REQUEST.key is None


async def test_the_memory_of_another_tenant_can_not_be_acted_on(site, stranger, archive):
    fact = await stranger.fact("eats no meat")
    for name, fields in (
        ("forget", {}),
        ("confirm", {}),
        ("correct", {"content": "x"}),
        ("edit", {"importance": "1"}),
    ):
        assert (await act(site, name, type="fact", id=fact, **fields)).status_code == 404
    assert (await archive.row("fact", fact))["validity"] == "active"
