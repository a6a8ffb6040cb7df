"""Review and take back: what waits in each pile, and what a judgement changes."""

import re
from uuid import uuid4

import pytest

from dashboard.list_checks import ids_on
from dashboard.test_dashboard_judge import act
from dashboard.test_dashboard_lists import fill_facts

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


async def test_what_fades_is_found_behind_older_facts_that_were_confirmed(site, tools, archive):
    """A confirmation starts the decay again, so the oldest facts are not those that fade first."""
    await fill_facts(archive, tools.tenant, 1_001)
    await archive.connection.execute(
        "update facts set created_at = now() - interval '2 years', importance = 9 where tenant_id = $1", tools.tenant
    )
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


async def test_all_that_match_are_found_behind_any_number_of_others(site, tools, archive):
    """A page looks at 10,000 rows; an act on all that match goes on until it has seen all of them."""
    await fill_facts(archive, tools.tenant, 10_050, tags="case when n > 10040 then '[\"old\"]'::jsonb else '[]' end")
    answer = await act(site, "bulk", key := str(uuid4()), type="fact", act="forget", all="1", filter="tag=old")
    assert answer.status_code == 303
    assert "Forgot 10 facts" in (await site.get(answer.headers["location"])).text
    gone = await archive.rows(
        "select predicate from facts where tenant_id = $1 and validity = 'retracted' order by created_at",
        tools.tenant,
    )
    assert [row["predicate"] for row in gone] == [f"note_{number}" for number in range(10_050, 10_040, -1)]
    assert (await act(site, "undo", request=key)).status_code == 303
    assert await archive.count("facts", tools.tenant, "validity = 'active'") == 10_050
    refused = await act(site, "bulk", type="fact", act="forget", all="1", filter="")
    assert refused.status_code == 400
    assert "One act changes 10,000 memories at most, so that it can be undone" in refused.text
    assert "Narrow the filter" in refused.text
    assert await archive.count("facts", tools.tenant, "validity = 'active'") == 10_050


async def fill_session(archive, tools, memory, number):
    """Store the episodes of one session."""
    session = uuid4()
    await archive.connection.execute(
        "insert into episodes (tenant_id, butler, session_id, content)"
        " select $1, $2, $3, 'talk ' || n from generate_series(1, $4) n",
        tools.tenant, memory.butler, session, number,
    )  # fmt: skip
    return session


async def test_all_episodes_that_match_are_found_behind_any_number_of_others(site, tools, archive, memory):
    session = await fill_session(archive, tools, memory, 10_050)
    await archive.connection.execute(
        "update episodes set consolidation_status = 'failed', created_at = now() - interval '1 day'"
        " where tenant_id = $1 and content in ('talk 1', 'talk 2')",
        tools.tenant,
    )
    for query in ("state=failed", f"session={session}&state=failed&gone=yes"):
        answer = await act(site, "bulk", type="episode", act="forget", all="1", filter=query)
        assert answer.status_code == (303 if "gone" not in query else 409), answer.text
    assert await archive.count("episodes", tools.tenant, "metadata ? 'forgotten_until'") == 2


async def test_the_review_shows_the_curve_and_what_the_fact_replaced(site, replaced, page):
    await page.goto(f"{site.url}/review?of=distilled")
    card = page.locator("article")
    assert await card.locator("svg title").first.text_content() == "Confidence over time"
    assert await card.locator("del").inner_text() == "Porto"
    assert await card.locator("ins").inner_text() == "Lisbon"


async def test_a_target_of_a_merge_is_found_by_its_name(site, tools, page):
    source = await tools.entity("Countess")
    for number in range(55):
        await tools.entity(f"Person {number:02}")
    last = await tools.entity("Zoe")
    await page.goto(f"{site.url}/entities/merge?source={source}")
    assert "Type the beginning of a name" in await page.locator("main").inner_text()
    await page.fill("main [name=name]", "zo")
    await page.click("text=Find")
    await page.wait_for_url("**name=zo*")
    await page.click("main a:has-text('Zoe')")
    await page.wait_for_url(f"**target={last}*")
    await page.goto(f"{site.url}/entities/merge?source={source}&name=nobody")
    assert "begins with nobody" in await page.locator("main").inner_text()


async def test_long_contents_are_cut_before_they_are_shown(site, tools, archive, memory):
    episode = (await tools("memory_store_episode", content="x" * 100_000, butler=memory.butler))["id"]
    answer = await tools("memory_retract_from", episode_id=episode, dry_run=True)
    assert len(answer["found"][0]["content"]) < 10_000
    rule = await tools.rule("A warning")
    await archive.connection.execute(
        "update rules set maturity = 'anti_pattern', metadata = jsonb_build_object('original_content', $2::text)"
        " where id = $1",
        rule, "word " * 100_000,
    )  # fmt: skip
    response = await site.get(f"/rules/{rule}")
    assert len(response.text) < 60_000
    assert "20,000 of 500,000 characters" in response.text


async def test_a_look_at_a_large_act_plans_no_undo(site, tools, archive):
    await fill_facts(archive, tools.tenant, 101)
    (first, *_) = await ids_on(site, "/facts")
    key = str(uuid4())
    for number, is_offered in ((100, False), (101, True)):
        fields = {"type": "fact", "act": "forget", "id": (await archive_ids(archive, tools.tenant))[:number]}
        data = {"key": f"{key}-{number}", "back": "/facts", **fields}
        answer = await site.client.post(f"{site.url}/acts/bulk", data=data, headers={"Origin": site.url})
        assert answer.status_code == 303
        await act(site, "restore", type="fact", id=first)
        text = (await site.get(answer.headers["location"])).text
        assert f"Forgot {number} facts" in text
        assert ('data-act="u"' in text) == is_offered
        assert (await act(site, "undo", request=f"{key}-{number}")).status_code == 409
        await archive.connection.execute("update facts set validity = 'active' where tenant_id = $1", tools.tenant)


async def archive_ids(archive, tenant):
    rows = await archive.rows("select id from facts where tenant_id = $1 order by created_at desc, id desc", tenant)
    return [str(row["id"]) for row in rows]


async def test_a_retraction_says_whether_it_can_be_undone(site, tools, archive, memory):
    small, large = [await fill_session(archive, tools, memory, number) for number in (2, 5_001)]
    assert "It can be undone." in (await site.get(f"/retract?session={small}")).text
    text = (await site.get(f"/retract?session={large}")).text
    assert "It can be undone." not in text
    assert "--undo ID" in text
    assert "The first 500 of 5,001." in text


async def test_an_act_that_can_not_be_undone_says_why(site, tools, archive, memory):
    episode = (await tools("memory_store_episode", content="We met.", butler=memory.butler))["id"]
    await archive.change("episode", episode, consolidation_status="'dead_letter'")
    answer = await act(site, "retry", key := str(uuid4()), back="/review", id=episode)
    text = (await site.get(answer.headers["location"])).text
    assert "be undone: consolidation may have read the episode by now" in text
    assert 'data-act="u"' not in text
    refused = await act(site, "undo", request=key)
    assert refused.status_code == 409
    assert "consolidation may have read the episode" in refused.text
