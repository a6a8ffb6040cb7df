"""Page of one rule."""

from dataclasses import replace
from uuid import UUID, uuid4

from butlers.modules.memory.operations import context, feedback, receipts, rule_inversion
from memory.memory_fixtures import REQUEST


async def test_the_track_record_shows_each_mark_and_what_comes_next(site, page, tools, archive):
    rule = await tools.rule("Ask before you book")
    await archive.age("rule", rule, 19)
    for _ in range(13):
        await tools("memory_mark_helpful", rule_id=rule)
    await page.goto(f"{site.url}/rules/{rule}")
    text = await page.locator("main").inner_text()
    assert "Track record: 13 helpful, 0 harmful, effectiveness 1.00" in text
    assert "Two more successes and 11 days make it proven." in text
    assert await page.locator("svg rect.good").count() == 13
    rows = await page.locator("#record ~ .table tbody tr").all_inner_texts()
    assert len(rows) == 13
    assert [row.split("\t")[4].strip() for row in rows] == ["established"] * 9 + ["candidate"] * 4


async def test_a_harm_shows_its_reason_and_the_effectiveness_after_it(site, page, tools):
    rule = await tools.rule("Book without asking")
    await tools("memory_mark_helpful", rule_id=rule)
    await tools("memory_mark_harmful", rule_id=rule, reason="Ada was asleep")
    await tools("memory_mark_harmful", rule_id=rule)
    await page.goto(f"{site.url}/rules/{rule}")
    rows = [
        [cell.strip() for cell in row.split("\t")]
        for row in await page.locator("#record ~ .table tbody tr").all_inner_texts()
    ]
    assert [row[1:5] for row in rows] == [
        ["harmful", "", "0.11", "candidate"],
        ["harmful", "Ada was asleep", "0.20", "candidate"],
        ["helpful", "", "1.00", "candidate"],
    ]
    assert await page.locator("svg rect.bad").count() == 2
    text = await page.locator("main").inner_text()
    assert "One more harm turns it into a warning." in text
    assert "Why it did harm" in text


async def test_a_warning_shows_what_it_was_and_becomes_it_again(site, page, tools, memory, caller):
    rule = await tools.rule("Book without asking")
    for _ in range(3):
        await tools("memory_mark_harmful", rule_id=rule, reason="it was wrong")
    await page.goto(f"{site.url}/rules/{rule}")
    assert "The next sweep turns it into a warning." in await page.locator("main").inner_text()
    await rule_inversion.invert_rules(memory, caller)
    await page.reload()
    assert await page.locator("h1").inner_text() == "Warning"
    assert await page.locator("#original ~ .content del").inner_text() == "Book without asking"
    warning = await page.locator(".content").first.inner_text()
    assert warning.startswith("ANTI-PATTERN: Do NOT Book without asking")
    await page.click("text=Undo the inversion")
    await page.wait_for_selector("h1:text-is('Rule')")
    assert await page.locator(".content").first.inner_text() == "Book without asking"
    assert "made it a rule again" in await page.locator(".trail").inner_text()
    assert "One more harm turns it into a warning." in await page.locator("main").inner_text()
    await page.keyboard.press("u")
    await page.wait_for_selector("h1:text-is('Warning')")
    assert await page.locator(".content").first.inner_text() == warning


async def test_only_the_latest_marks_are_shown_and_their_effectiveness_counts_all(site, tools, archive):
    rule = await tools.rule("Ask before you book")
    await tools("memory_mark_harmful", rule_id=rule)
    await archive.connection.execute(
        "insert into rule_applications (tenant_id, rule_id, outcome, applied_at)"
        " select $1, $2, 'helpful', now() + n * interval '1 minute' from generate_series(1, 120) n",
        tools.tenant, rule,
    )  # fmt: skip
    await archive.change("rule", rule, success_count="120", applied_count="121", effectiveness_score="120.0 / 121")
    text = (await site.get(f"/rules/{rule}")).text
    assert "The latest 100 of 121 marks." in text
    assert text.count('class="good"') == 2 * 100  # a bar and a row each
    assert ">0.99<" in text


async def test_an_unmarked_rule_says_how_it_is_marked(site, tools):
    rule = await tools.rule("Ask before you book")
    text = (await site.get(f"/rules/{rule}")).text
    assert "Nobody has marked it yet." in text
    assert "Five successes make it established." in text


async def test_the_acts_of_a_rule_are_forms(site, page_without_script, tools):
    rule = await tools.rule("Ask before you book")
    page = page_without_script
    await page.goto(f"{site.url}/rules/{rule}")
    paths = await page.locator("main form").evaluate_all("all => all.map(each => new URL(each.action).pathname)")
    assert paths[:5] == ["/acts/helpful", "/acts/confirm", "/acts/forget", "/acts/harmful", "/acts/edit"]
    await page.get_by_text("It did harm").click()
    assert await page.get_by_label("What went wrong").is_visible()
    await tools("memory_forget", memory_type="rule", memory_id=rule)
    await page.reload()
    assert await page.locator("main form").first.get_attribute("action") == "/acts/restore"


async def test_imported_metadata_and_events_of_any_shape_are_shown(site, tools, archive):
    rule = await tools.rule("Ask before you book")
    await archive.change(
        "rule", rule, metadata="""'{"harmful_reasons": 5, "original_content": {}, "provenance": []}'"""
    )
    payloads = ['{"before": "x", "confidence": "high"}', '{"before": {"decay_rate": []}, "confidence": 1e300}', "{}"]
    for payload in payloads:
        await archive.connection.execute(
            "insert into memory_events (tenant_id, event_type, entity_type, entity_id, payload, occurred_at)"
            " select $1, type, 'rule', $2, $3::text::jsonb, now() - interval '1 hour'"
            " from unnest(array['rule_confirmed', 'rule_edited', 'rule_marked_helpful', 'rule']) type",
            tools.tenant, rule, payload,
        )  # fmt: skip
    await archive.connection.execute(
        "insert into rule_applications (tenant_id, rule_id, outcome, applied_at) values ($1, $2, 'helpful', now())",
        tools.tenant, rule,
    )  # fmt: skip
    await archive.connection.execute(
        "insert into memory_events (tenant_id, event_type, entity_type, entity_id, payload, occurred_at)"
        " select $1, 'rule_marked_helpful', 'rule', $2, '{\"maturity\": \"ripe\"}', applied_at"
        " from rule_applications where rule_id = $2",
        tools.tenant, rule,
    )  # fmt: skip
    assert (await site.get(f"/rules/{rule}")).status_code == 200
    assert (await site.get("/")).status_code == 200


async def test_the_rule_of_another_tenant_is_not_found(site, stranger):
    rule = await stranger.rule("A secret of a stranger")
    response = await site.get(f"/rules/{rule}")
    assert response.status_code == 404
    assert "secret" not in response.text


async def test_a_rule_says_how_often_it_was_told_and_judged(site, tools, memory, caller):
    rule = await tools.rule("Mind the diet")
    for _ in range(3):
        session = replace(caller, session_id=str(uuid4()))
        await context.build_context(memory, session, "diet", memory.butler, None)
    await receipts.settle(memory)
    text = (await site.get(f"/rules/{rule}")).text
    assert "Told to 3 sessions, marked 0 times: it is given as advice, and nobody has judged it." in text
    await feedback.mark_helpful(memory, session, UUID(rule), REQUEST)
    assert "without evidence" not in (await site.get(f"/rules/{rule}")).text
    await tools("memory_mark_helpful", rule_id=rule)
    text = (await site.get(f"/rules/{rule}")).text
    assert "Told to 3 sessions, marked 2 times." in text
    assert text.count("without evidence: no receipt says that the session knew the rule") == 1
