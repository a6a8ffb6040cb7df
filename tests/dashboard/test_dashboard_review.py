"""Review and take back: what waits in each pile, and what a judgement changes."""

import re
from uuid import uuid4

import pytest

from butlers.modules.memory.operations import overview, viewing_lists
from butlers.modules.memory.store import review as review_queries
from dashboard.list_checks import ids_on
from dashboard.test_dashboard_judge import act

DISTILLED = '\'{"provenance": "distilled"}\''


@pytest.fixture
async def replaced(tools, archive):
    """A fact, and a learned one that replaced it."""
    old = await tools.fact("Porto", subject="Ada", predicate="lives_in")
    new = await tools.fact("Lisbon", subject="Ada", predicate="lives_in")
    await archive.change("fact", new, metadata=DISTILLED)
    await archive.connection.execute(
        "insert into memory_events (tenant_id, event_type, entity_type, entity_id, actor, request_id, payload)"
        " values ($1, 'fact_created', 'fact', $2, 'consolidation', 'a run', '{}')",
        tools.tenant, new,
    )  # fmt: skip
    return old, new


async def validity(archive, *facts):
    return [(await archive.row("fact", each))["validity"] for each in facts]


@pytest.mark.parametrize("start", ["overview", "review"])
async def test_taking_back_a_learned_fact_brings_back_the_one_it_replaced(site, replaced, archive, page, start):
    await page.goto(site.url + ("/" if start == "overview" else "/review?of=distilled"))
    before = [await archive.row("fact", each) for each in replaced]
    if start == "overview":
        await page.click("text=Take back")
    else:
        await page.keyboard.press("n")
    await page.wait_for_selector(".done")
    assert await validity(archive, *replaced) == ["active", "retracted"]
    said = await page.locator(".done p").inner_text()
    assert said == "Forgot Ada · lives_in · the fact before it is live again"
    await page.keyboard.press("u")
    await page.wait_for_selector("text=Undone")
    assert [await archive.row("fact", each) for each in replaced] == before


async def test_taking_back_twice_is_one_act_and_leaves_a_newer_fact_alone(site, replaced, tools, archive):
    old, new = replaced
    newest = await tools.fact("Madrid", subject="Ada", predicate="lives_in")
    assert (await act(site, "take-back", type="fact", id=new)).status_code == 409
    key = str(uuid4())
    answers = [await act(site, "take-back", key, type="fact", id=newest) for _ in range(2)]
    assert {each.status_code for each in answers} == {303}
    assert await validity(archive, old, new, newest) == ["superseded", "active", "retracted"]
    assert (await act(site, "take-back", type="rule", id=await tools.rule())).status_code == 303


def item_ids(text: str) -> set[str]:
    return set(re.findall(r"/(?:facts|rules)/([0-9a-f-]{36})", text))


async def pile(site, name):
    """The ids of all items of a pile."""
    return item_ids("".join([(await site.get(f"/review?of={name}&skip={number}")).text for number in range(3)]))


async def test_a_rule_that_awaits_inversion_leaves_the_pile_once_it_was_looked_at(site, tools):
    rule = await tools.rule("Book trains without asking")
    for _ in range(3):
        await tools("memory_mark_harmful", rule_id=rule)
    text = (await site.get("/review?of=harmful")).text
    assert rule in item_ids(text)
    assert "Let it become a warning" in text
    key = str(uuid4())
    await act(site, "looked", key, type="rule", id=rule)
    assert await pile(site, "harmful") == set()
    await act(site, "undo", request=key)
    assert await pile(site, "harmful") == {rule}
    await act(site, "confirm", confirmed := str(uuid4()), type="rule", id=rule)
    assert await pile(site, "harmful") == set()
    await act(site, "undo", request=confirmed)
    assert await pile(site, "harmful") == {rule}


async def test_a_mark_that_was_undone_is_drawn_nowhere(site, tools):
    rule = await tools.rule("Ask before booking")
    await tools("memory_mark_helpful", rule_id=rule)
    key = str(uuid4())
    await act(site, "harmful", key, id=rule, reason="was late")
    assert await pile(site, "harmful") == {rule}
    for path in ("/rules", f"/rules/{rule}"):
        assert "bad" in (await site.get(path)).text, path
    await act(site, "undo", request=key)
    assert await pile(site, "harmful") == set()
    for path in ("/rules", f"/rules/{rule}"):
        assert 'class="bad"' not in (await site.get(path)).text, path
    assert "was late" not in (await site.get(f"/rules/{rule}")).text


async def test_the_overview_counts_no_forgotten_dead_letter(site, tools, archive, memory):
    await tools.fact("blue")
    episode = (await tools("memory_store_episode", content="We met.", butler=memory.butler))["id"]
    await archive.change("episode", episode, consolidation_status="'dead_letter'")
    assert "1 episode could not be consolidated" in (await site.get("/")).text
    await tools("memory_forget", memory_type="episode", memory_id=episode)
    assert "could not be consolidated" not in (await site.get("/")).text


async def test_the_overview_counts_everything_that_waits(site, tools, archive):
    for number in range(8):
        rule = await tools.rule(f"Take the {number}th train without asking anybody")
        await tools("memory_mark_harmful", rule_id=rule)
        await tools.fact("x", predicate=f"p{number}", importance=9, permanence="ephemeral")
    await archive.connection.execute(
        "update facts set last_confirmed_at = now() - interval '15 days' where tenant_id = $1", tools.tenant
    )
    text = (await site.get("/")).text
    assert "8 rules did harm" in text
    assert "8 vital facts fade this week" in text


async def test_facts_below_a_confidence_are_counted_and_stay_so_when_sorted(site, tools, archive, page):
    for number in range(3):
        await tools.fact(f"fact {number}", predicate=f"p{number}", permanence="ephemeral")
    await archive.connection.execute(
        "update facts set last_confirmed_at = now() - interval '15 days' where tenant_id = $1 and predicate <> 'p0'",
        tools.tenant,
    )
    await page.goto(f"{site.url}/facts?below=0.5")
    assert await page.locator("h1").inner_text() == "Facts 2"
    await page.select_option("[name=sort]", "used")
    await page.wait_for_url("**sort=used*")
    assert "below=0.5" in page.url
    assert await page.locator("main tbody tr").count() == 2


async def test_what_fades_is_found_behind_older_facts_that_were_confirmed(site, tools, archive, monkeypatch):
    """A confirmation starts the decay again, so the oldest facts are not those that fade first."""
    monkeypatch.setattr(review_queries, "MAX_OLDEST", 3)
    monkeypatch.setattr(overview, "_MAX_OLDEST", 3)
    monkeypatch.setattr(viewing_lists, "MAX_OLDEST", 3)
    for number in range(4):
        old = await tools.fact("confirmed", predicate=f"old{number}", importance=9)
        await archive.change("fact", old, created_at="created_at - interval '2 years'")
        rule = await tools.rule(f"An old rule of the year {number}, confirmed again and again")
        await archive.change("rule", rule, created_at="created_at - interval '2 years'")
    fading = await tools.fact("fading", subject="Ada", predicate="desk", importance=9)
    await archive.change("fact", fading, last_confirmed_at="now() - interval '200 days'")
    rule = await tools.rule("Use the side door")
    await archive.change("rule", rule, last_confirmed_at="now() - interval '200 days'")
    assert await pile(site, "fading") == {fading, rule}
    assert "1 vital fact fades this week" in (await site.get("/")).text
    assert (await ids_on(site, "/facts?sort=fading"))[0] == fading
    await archive.change("fact", fading, last_confirmed_at="now() - interval '100 days'")
    assert "The next fact to fade is" in (text := (await site.get("/review?of=distilled")).text)
    assert fading in text


async def test_all_that_match_is_refused_where_not_all_can_be_found(site, tools, archive, memory, monkeypatch):
    monkeypatch.setattr(viewing_lists, "MAX_SCANNED", 3)
    for number in range(4):
        await tools.fact(f"fact {number}", subject="Ada" if number else "Bob", predicate=f"p{number}")
        await tools("memory_store_episode", content=f"talk {number}", butler=memory.butler)
    for kind, words in (("fact", "more than 3 facts"), ("episode", "more than 3 episodes")):
        answer = await act(site, "bulk", type=kind, act="forget", all="1", filter="")
        assert answer.status_code == 400
        assert words in answer.text
        assert "Narrow the filter" in answer.text
    answer = await act(site, "bulk", type="fact", act="forget", all="1", filter="subject=Ada")
    assert answer.status_code == 303
    assert await archive.count("facts", tools.tenant, "validity = 'active'") == 1
