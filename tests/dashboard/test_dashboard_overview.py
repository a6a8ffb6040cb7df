"""The overview: its verdict by value, and its page."""

from typing import Any
from uuid import uuid4

import pytest

from butlers.dashboard.verdict import Health, judge

WORST_FIRST = [
    (Health(failing_jobs=[("decay_sweep", "unavailable")]), "The job decay_sweep fails.", "/system"),
    (Health(dead_letters=2), "2 episodes could not be consolidated.", "/review"),
    (Health(backlog=3, backlog_hours=13, reading_hours=6), "3 episodes wait for consolidation.", "/system"),
    (Health(tokens=5, token_limit=5), "Consolidation has used its tokens of the day.", "/system"),
    (Health(lossy_indexes=[("facts", 0.8)]), "The index of facts misses memories.", "/system"),
    (Health(harmful_rules=[("Book trains", 2)]), "Everything runs. One thing waits for you.", "/review"),
    (Health(vital_fading=["Ada · diet"]), "Everything runs. One thing waits for you.", "/review"),
    (Health(unseen_distilled=5), "Everything runs. One thing waits for you.", "/review"),
]


@pytest.mark.parametrize(("health", "sentence", "remedy"), WORST_FIRST)
def test_each_finding_has_its_sentence_and_its_remedy(health, sentence, remedy):
    verdict = judge(health)
    assert verdict.sentence == sentence
    assert [each.path for each in verdict.findings] == [remedy]
    assert verdict.more == 0


def test_nothing_waits_when_nothing_is_wrong():
    verdict = judge(Health(backlog=5, backlog_hours=11, reading_hours=6, tokens=4, token_limit=5))
    assert verdict.sentence == "Everything runs. Nothing waits for you."
    assert verdict.findings == []
    assert judge(Health(tokens=10**9, token_limit=0)).findings == []


def test_the_worst_finding_gives_the_sentence_and_at_most_five_are_listed():
    everything: dict[str, Any] = {}
    for health, *_ in WORST_FIRST:
        changed = {name: getattr(health, name) for name in health.__slots__}
        everything |= {name: value for name, value in changed.items() if value != getattr(Health(), name)}
    verdict = judge(Health(**everything))
    assert verdict.sentence == "The job decay_sweep fails. Seven more things wait."
    assert [each.text for each in verdict.findings] == [
        "The job decay_sweep fails",
        "2 episodes could not be consolidated",
        "3 episodes wait for consolidation",
        "Consolidation has used its tokens of the day",
        "The index of facts misses memories",
    ]
    assert verdict.more == 3


@pytest.mark.parametrize(
    ("health", "text"),
    [
        (Health(failing_jobs=[("a", ""), ("b", "")]), "The jobs a, b fail"),
        (Health(harmful_rules=[("Book", 1)]), "1 rule did harm once"),
        (Health(harmful_rules=[("Book", 2)]), "1 rule did harm twice"),
        (Health(harmful_rules=[("Book", 2), ("Ask", 1)]), "2 rules did harm"),
        (Health(vital_fading=["a", "b"]), "2 vital facts fade this week"),
        (Health(unseen_distilled=1), "1 learned memory has not been looked at"),
        (Health(dead_letters=1), "1 episode could not be consolidated"),
    ],
)
def test_the_findings_count_in_plain_words(health, text):
    assert [each.text for each in judge(health).findings] == [text]


async def test_a_new_butler_shows_how_to_connect_and_stores_a_first_fact(
    site, page_without_script, butler, archive, caller
):
    page, name = page_without_script, butler.config.butler.name
    await page.goto(f"{site.url}/")
    assert await page.locator("h1").inner_text() == "Nothing is remembered yet."
    assert await page.locator("main pre").all_inner_texts() == [
        f"butlers connect {butler.config.folder} claude-code --http",
        f"claude mcp add --transport http {name} {site.url}/mcp",
    ]
    await page.get_by_label("Subject").fill("Ada")
    await page.get_by_label("Predicate").fill("diet")
    await page.get_by_label("Content").fill("eats no meat")
    await page.get_by_role("button", name="Store the fact").click()
    assert await page.locator("h1").inner_text() == "Ada · diet"
    assert await page.locator(".content").inner_text() == "eats no meat"
    [event] = await archive.events(caller.tenant)
    assert event["event_type"] == "fact_created"
    assert '"via": "dashboard"' in event["payload"]


async def test_a_first_fact_that_is_submitted_twice_is_stored_once(site, archive, caller):
    fields = {"subject": "Ada", "predicate": "diet", "content": "eats no meat", "key": str(uuid4())}
    answers = [await site.post("/acts/store", **fields) for _ in range(2)]
    assert [each.status_code for each in answers] == [303, 303]
    assert len({each.headers["location"].partition("?")[0] for each in answers}) == 1
    assert len(await archive.events(caller.tenant)) == 1


async def test_a_first_fact_without_content_is_refused(site, archive, caller):
    answer = await site.post("/acts/store", subject="Ada", predicate="diet", content=" ", key=str(uuid4()))
    assert answer.status_code == 400
    assert await archive.events(caller.tenant) == []


async def test_the_overview_counts_and_links_to_what_waits(site, page, tools, archive, butler):
    vital = await tools.fact("no nuts", subject="Ada", predicate="allergic_to", importance=9)
    await archive.age("fact", vital, 198)
    other = await tools.fact("blue", importance=2)
    await archive.age("fact", other, 198)
    rule = await tools.rule("Book trains without asking")
    for _ in range(2):
        await tools("memory_mark_harmful", rule_id=rule)
    episode = (await tools("memory_store_episode", content="We met.", butler=butler.config.butler.name))["id"]
    await archive.change("episode", episode, consolidation_status="'dead_letter'")
    await page.goto(f"{site.url}/")
    assert await page.locator("h1").inner_text() == "1 episode could not be consolidated. Two more things wait."
    lines = await page.locator(".waits li").all_inner_texts()
    assert [" ".join(each.split()) for each in lines] == [
        "problem 1 episode could not be consolidated every attempt failed Review",
        "waits 1 rule did harm twice Book trains without asking Review",
        "waits 1 vital fact fades this week Ada · allergic_to Review",
    ]
    links = await page.locator(".waits a").evaluate_all("all => all.map(each => each.getAttribute('href'))")
    assert links == ["/review?of=dead-letters", "/review?of=harmful", "/review?of=fading"]
    bands = await page.locator("svg.bands a").evaluate_all("all => all.map(each => each.getAttribute('aria-label'))")
    assert bands[1] == "2 from 0.2 to 0.4"
    text = await page.locator("main").inner_text()
    assert "1: 0 proven, 0 established, 1 candidate, 0 warnings" in text
    assert "local stored Ada · allergic_to: no nuts" in text
    assert "0 in 24 hours, of 1,000,000" in text


async def test_learned_facts_wait_to_be_looked_at_and_can_be_taken_back(site, page, tools, archive):
    fact = await tools.fact("by the window", subject="Ada", predicate="table")
    await archive.change("fact", fact, metadata='\'{"provenance": "distilled"}\'')
    await archive.connection.execute(
        "insert into memory_events (tenant_id, event_type, entity_type, entity_id, actor, request_id, payload)"
        " values ($1, 'fact_created', 'fact', $2, 'consolidation', 'a run', '{}')",
        tools.tenant, fact,
    )  # fmt: skip
    await page.goto(f"{site.url}/")
    assert "1 learned memory has not been looked at" in await page.locator(".waits").inner_text()
    line = page.locator(".trail li", has_text="consolidation learned")
    assert await line.locator("form").get_attribute("action") == "/acts/take-back"
    await archive.connection.execute(
        "insert into memory_events (tenant_id, event_type, entity_type, entity_id, actor)"
        " values ($1, 'fact_looked_at', 'fact', $2, 'local')",
        tools.tenant, fact,
    )  # fmt: skip
    await page.reload()
    assert await page.locator("h1").inner_text() == "Everything runs. Nothing waits for you."


async def test_a_sweep_that_changed_many_facts_is_one_line(site, tools, archive):
    fact = await tools.fact("blue")
    await archive.connection.execute(
        "insert into memory_events (tenant_id, event_type, entity_type, entity_id, actor, request_id)"
        " select $1, 'fact_fading', 'fact', $2, 'sweep', 'one sweep' from generate_series(1, 7)",
        tools.tenant, fact,
    )  # fmt: skip
    text = " ".join((await site.get("/")).text.split())
    assert 'sweep: 7 facts <span class="muted">began to fade</span>' in text


async def test_the_overview_counts_one_tenant_only(site, stranger):
    secret = await stranger.fact("a secret", subject="Stranger", importance=10)
    text = (await site.get("/")).text
    assert secret not in text
    assert "Nothing is remembered yet." in text
