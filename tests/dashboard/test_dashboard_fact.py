"""Page of one fact."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from butlers.modules.memory.operations import context, receipts
from dashboard.full_tenant import link


def day(days: float) -> str:
    return f"{datetime.now(UTC) + timedelta(days=days):%-d %b %Y}"


async def test_a_fact_is_shown_as_text_whatever_it_contains(site, page, tools):
    hostile = "<script>document.title = 'owned'</script> \u202egnp.exe"
    fact = await tools.fact(hostile, subject="Ada", predicate="diet")
    await page.goto(f"{site.url}/facts/{fact}")
    assert await page.title() == f"Ada · diet · {(await page.locator('.butler').inner_text())}"
    shown = await page.locator(".content").inner_text()
    assert shown == "<script>document.title = 'owned'</script> \\u202egnp.exe has hidden characters"


async def test_the_dates_and_the_arithmetic_of_the_confidence_are_told(site, page, tools, archive):
    fact = await tools.fact("eats no meat", subject="Ada", predicate="diet", permanence="stable")
    await archive.age("fact", fact, 47)
    await page.goto(f"{site.url}/facts/{fact}")
    text = await page.locator("main").inner_text()
    assert "Confidence 0.91 today" in text
    assert f"Fades {day(804.72 - 47)}, expires {day(1497.87 - 47)} if nobody confirms it." in text
    assert "47 days ago; it decays by 0.002 a day (stable)" in text
    instead = datetime.now(UTC) + timedelta(days=(201.18 - 47 * 0.25))
    assert f"standard instead: fades in {instead:%B %Y}" in text
    assert "permanent instead: never fades" in text


async def test_the_numbers_of_the_curve_are_in_a_table(site, page_without_script, tools, archive):
    fact = await tools.fact("eats no meat")
    await archive.age("fact", fact, 100)
    await tools("memory_confirm", memory_type="fact", memory_id=fact)
    page = page_without_script
    await page.goto(f"{site.url}/facts/{fact}")
    await page.get_by_text("The numbers").click()
    rows = await page.locator("details.numbers tbody tr").all_inner_texts()
    assert [re.split(r"\s*\t\s*", row)[1:] for row in rows] == [
        ["stored", "1.00"], ["confirmed", "1.00"], ["today", "1.00"], ["fades", "0.20"], ["expires", "0.05"],
    ]  # fmt: skip
    assert rows[0].startswith(day(-100))
    assert rows[3].startswith(day(201.18))


async def test_a_permanent_fact_never_fades(site, tools):
    fact = await tools.fact("born in 1815", permanence="permanent")
    text = (await site.get(f"/facts/{fact}")).text
    assert "Fades <strong>never</strong>, expires <strong>never</strong>." in text
    assert "it does not decay" in text


async def test_the_versions_of_a_fact_are_shown_as_a_word_diff_in_both_directions(site, page, tools):
    first = await tools.fact("lives in Porto", predicate="lives_in")
    second = await tools.fact("lives in Lisbon", predicate="lives_in")
    third = await tools.fact("lives in Lisbon near the river", predicate="lives_in")
    await page.goto(f"{site.url}/facts/{second}")
    assert await page.locator(".diff").all_inner_texts() == [
        "lives in Lisbon near the river", "lives in PortoLisbon",
    ]  # fmt: skip
    assert await page.locator(".diff del").all_inner_texts() == ["Porto"]
    assert await page.locator(".diff ins").all_inner_texts() == ["near the river", "Lisbon"]
    links = await page.locator("#versions ~ svg a").evaluate_all("all => all.map(each => each.getAttribute('href'))")
    assert links == [f"/facts/{each}" for each in (first, second, third)]
    assert "Another fact replaced it" in await page.locator("main").inner_text()
    assert await page.get_by_role("button", name="Still true").count() == 0


async def test_a_fact_that_superseded_another_in_a_merge_names_it(site, tools):
    ada, twin = await tools.entity("Ada Lovelace"), await tools.entity("A. Lovelace")
    await tools.fact("lives in Porto", predicate="lives_in", entity_id=twin)
    await tools.fact("lives in Faro", predicate="lives_in", entity_id=ada)
    kept = await tools.fact("lives in Lisbon", predicate="lives_in", entity_id=ada)
    await tools("entity_merge", source_entity_id=twin, target_entity_id=ada)
    text = (await site.get(f"/facts/{kept}")).text
    assert "replaced when two entities were merged" in text
    assert "<del>lives in Porto</del>" in text
    assert f"/entities/{ada}" in text


async def test_the_evidence_quotes_the_closest_sentence_and_names_deleted_episodes(
    site, page, tools, archive, butler
):
    fact = await tools.fact("eats no meat", subject="Ada", predicate="diet")
    said = "We met at noon. Ada eats no meat, she said. Then we left."
    episode = (await tools("memory_store_episode", content=said, butler=butler.config.butler.name))["id"]
    await link(archive, tools.tenant, ("fact", fact), ("episode", episode), "derived_from")
    gone, unknown = str(uuid4()), str(uuid4())
    await archive.connection.execute(
        "insert into memory_events (tenant_id, event_type, entity_type, entity_id, actor, payload)"
        " values ($1, 'episode_expired', 'episode', $2, 'cleanup', '{\"episode_of\": \"general\"}')",
        tools.tenant, gone,
    )  # fmt: skip
    await link(archive, tools.tenant, ("episode", gone), ("fact", fact), "supports")
    await link(archive, tools.tenant, ("episode", unknown), ("fact", fact), "supports")
    await page.goto(f"{site.url}/facts/{fact}")
    assert await page.locator(".evidence q").all_inner_texts() == ["Ada eats no meat, she said."]
    text = await page.locator(".evidence").inner_text()
    assert "An episode of general, deleted" in text
    assert "An episode that is gone." in text
    await page.locator(".evidence a").click()
    assert page.url == f"{site.url}/episodes/{episode}"


async def test_the_run_that_learned_a_fact_is_named(site, tools, archive):
    run = str(uuid4())
    await archive.connection.execute(
        "insert into consolidation_runs (tenant_id, id, butler, lease_token, status, episodes)"
        " values ($1, $2, 'general', $3, 'succeeded', 3)",
        tools.tenant, run, str(uuid4()),
    )  # fmt: skip
    fact = await tools.fact("eats no meat")
    await archive.connection.execute(
        "insert into memory_events (tenant_id, event_type, entity_type, entity_id, actor, request_id, occurred_at)"
        " values ($1, 'fact_created', 'fact', $2, 'consolidation', $3, now() + interval '1 second')",
        tools.tenant, fact, run,
    )  # fmt: skip
    text = (await site.get(f"/facts/{fact}")).text
    assert f"/audit?request={run}" in text
    assert "which read 3 episodes" in text
    assert "consolidation learned" in text


async def test_the_acts_of_a_live_fact_are_forms_with_a_key_each(site, page, tools):
    fact = await tools.fact("eats no meat", subject="Ada", predicate="diet", tags=["food"], importance=9)
    await page.goto(f"{site.url}/facts/{fact}")
    forms = await page.locator("main form").evaluate_all(
        "all => all.map(each => [new URL(each.action).pathname, Object.fromEntries(new FormData(each))])"
    )
    for _, fields in forms:
        assert len(fields.pop("key")) == 36
        assert fields.pop("back") == f"/facts/{fact}"
    assert forms[:5] == [
        ["/acts/confirm", {"type": "fact", "id": fact}],
        ["/acts/forget", {"type": "fact", "id": fact}],
        ["/acts/correct", {"id": fact, "content": "eats no meat"}],
        ["/acts/edit", {"type": "fact", "id": fact, "importance": "9", "permanence": "standard", "tags": "food"}],
        ["/acts/move", {"id": fact, "entity": ""}],
    ]
    permanences = {fields["permanence"] for path, fields in forms[5:]}
    assert permanences == {"permanent", "stable", "volatile", "ephemeral"}
    assert await page.locator("[data-act]").evaluate_all("all => all.map(each => each.dataset.act)") == [
        "y",
        "n",
        "e",
    ]
    await page.keyboard.press("e")
    assert await page.get_by_label("The right content").is_visible()


async def test_a_forgotten_fact_can_be_restored_and_not_confirmed(site, tools):
    fact = await tools.fact("eats no meat")
    await tools("memory_forget", memory_type="fact", memory_id=fact)
    text = (await site.get(f"/facts/{fact}")).text
    assert "/acts/restore" in text
    assert "/acts/confirm" not in text
    assert "It can be restored" in text


async def test_a_very_long_content_is_shown_in_part(site, tools):
    fact = await tools.fact("word " * 5_000)
    text = (await site.get(f"/facts/{fact}")).text
    assert "20,000 of 24,999 characters" in text
    assert f"butlers memory get DIR fact {fact}" in text


async def test_the_fact_of_another_tenant_is_not_found(site, stranger):
    fact = await stranger.fact("secret of a stranger")
    response = await site.get(f"/facts/{fact}")
    assert response.status_code == 404
    assert "secret" not in response.text


async def test_a_correction_shows_what_it_removes_and_adds_while_it_is_written(site, page, tools):
    fact = await tools.fact("eats no meat and drinks tea", "Ada", "diet")
    await page.goto(f"{site.url}/facts/{fact}")
    await page.keyboard.press("e")
    await page.fill("#correction", "eats no fish, no meat and drinks tea")
    shown = page.locator("output.diff")
    assert (await shown.inner_text()).split() == ["eats", "no", "fish,", "no", "meat", "and", "drinks", "tea"]
    assert await shown.locator("ins").inner_text() == "fish, no "
    assert await shown.locator("del").inner_text() == ""
    await page.fill("#correction", "eats <b>meat</b>")
    assert await shown.locator("ins").inner_text() == "<b>meat</b>"
    assert await shown.locator("del").inner_text() == "no meat and drinks tea"
    assert await shown.locator("b").count() == 0


async def test_the_sessions_that_were_told_a_fact_are_named(site, page, tools, memory, caller):
    fact = await tools.fact("eats no meat", subject="Ada", predicate="diet")
    await page.goto(f"{site.url}/facts/{fact}")
    assert "No session was told it in the last 90 days." in await page.locator("main").inner_text()
    session = replace(caller, session_id=str(uuid4()), details={"agent": "codex"})
    await context.build_context(memory, session, "diet", memory.butler, None)
    await receipts.settle(memory)
    await page.goto(f"{site.url}/facts/{fact}")
    told = await page.locator("section[aria-labelledby=told]").inner_text()
    assert "1 session in the last 90 days" in told
    assert f"{session.session_id[:8]} codex at its start, rank 1 of 1 told, score 0." in told
