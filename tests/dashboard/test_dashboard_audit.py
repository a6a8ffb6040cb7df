"""The audit page: events as sentences by request, filters, paging and the CSV file."""

import csv
import io
import re
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from butlers.modules.memory.operations import job_requests
from butlers.modules.memory.operations.idempotency import Request
from dashboard.list_checks import last_page, link_to


def sentences_on(text: str) -> list[str]:
    """Return the sentences of the page, newest first."""
    cells = re.findall(r'<td class="line">(.*?)</td>', text, re.DOTALL)
    return [" ".join(re.sub(r"<[^>]+>", "", cell).split()) for cell in cells]


async def walk_sentences(site, path: str | None, rel: str) -> list[list[str]]:
    """Return the sentences of each page from a page on, following its links in one direction."""
    pages = []
    while path:
        text = (await site.get(path)).text
        pages.append(sentences_on(text))
        path = link_to(text, rel)
    return pages


async def append_event(archive, tenant: str, **columns: str) -> None:
    """Append an event directly, as another version of the program or an import could."""
    values = {"event_type": "fact_created", "entity_type": "fact", "actor": "somebody"} | columns
    names, places = ", ".join(values), ", ".join(f"${number}" for number in range(2, len(values) + 2))
    await archive.connection.execute(
        f"insert into memory_events (tenant_id, {names}) values ($1, {places})",  # noqa: S608 — constants of the tests
        tenant,
        *values.values(),
    )


@pytest.fixture
async def history(tools):
    """A fact that was stored, replaced and confirmed, a rule and an entity."""
    fact = await tools.fact("no meat", "Ada", "diet")
    newer = await tools.fact("no fish either", "Ada", "diet")
    await tools("memory_confirm", memory_type="fact", memory_id=newer)
    rule = await tools.rule("Ask before booking")
    await tools("memory_mark_helpful", rule_id=rule)
    return {"fact": fact, "newer": newer, "rule": rule}


async def test_events_are_sentences_with_the_name_of_their_memory(site, history):
    text = (await site.get("/audit")).text
    assert sentences_on(text)[:3] == [
        "local marked as helpful Ask before booking",
        "local stored Ask before booking",
        "local confirmed Ada · diet",
    ]
    assert set(sentences_on(text)[3:]) == {"local stored Ada · diet", "local replaced Ada · diet"}
    assert f'<a href="/facts/{history["newer"]}">Ada · diet</a>' in text


async def test_the_events_of_a_request_stand_together_and_lead_to_each_other(site, page, history):
    await page.goto(f"{site.url}/audit")
    groups = page.locator("table.audit tbody")
    assert await groups.count() == 5
    replacing = groups.nth(3)
    assert await replacing.locator("tr").count() == 2
    await replacing.get_by_role("link", name=re.compile("…$")).click()
    await page.wait_for_url("**/audit?request=**")
    assert await page.locator("table.audit tr[data-href]").count() == 2


async def test_a_job_that_somebody_started_is_named(site, memory, caller):
    request = Request("run_job", {"name": "decay_sweep"}, None)
    await job_requests.record_job_request(memory, caller, "decay_sweep", request)
    assert sentences_on((await site.get("/audit")).text) == ["somebody started the job decay_sweep"]


async def test_a_deleted_memory_is_named_by_its_type(site, tools, archive, memory):
    episode = (await tools("memory_store_episode", content="a private talk", butler=memory.butler))["id"]
    await archive.connection.execute("delete from episodes where id = $1", episode)
    text = (await site.get("/audit")).text
    assert sentences_on(text) == ["local stored a deleted episode"]
    assert "private" not in text
    assert f"/episodes/{episode}" not in text


async def test_an_event_of_an_unknown_type_is_spelled_out(site, tools, archive):
    await append_event(archive, tools.tenant, event_type="fact_looked_at", entity_id=uuid4())
    await append_event(archive, tools.tenant, event_type="episode_expired", entity_type="episode", actor="cleanup",
                       payload='{"episode_ids": ["a", "b"]}')  # fmt: skip
    found = sentences_on((await site.get("/audit")).text)
    assert found == ["cleanup deleted, because it expired, 2 episodes", "somebody looked at a deleted fact"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("type=fact_confirmed", 1),
        ("actor=local", 6),
        ("actor=sweep", 1),
        ("via=tool", 6),
        ("via=job", 1),
        ("via=dashboard", 1),
        ("memory={newer}", 2),
        ("since={today}", 8),
        ("until={yesterday}", 0),
        ("since={yesterday}&until={today}&actor=sweep", 1),
    ],
)
async def test_a_filter_of_the_audit_shows_the_events_that_match(site, tools, archive, history, query, expected):
    await append_event(archive, tools.tenant, event_type="fact_fading", actor="sweep")
    await append_event(archive, tools.tenant, actor="ops", payload='{"via": "dashboard"}')
    today = datetime.now(UTC).date()
    dates = {"today": today, "yesterday": today - timedelta(days=1)}
    text = (await site.get("/audit?" + query.format(**history, **dates))).text
    assert len(sentences_on(text)) == expected
    assert ("None with these filters" in text) == (expected == 0)


async def test_pages_of_the_audit_show_each_event_once_in_both_directions(site, tools, archive):
    await archive.connection.execute(
        "insert into memory_events (tenant_id, event_type, actor, request_id, occurred_at)"
        " select $1, 'made_' || n, 'import', n / 3, now() - make_interval(mins => n / 40)"
        " from generate_series(1, 120) n",
        tools.tenant,
    )
    older = await walk_sentences(site, "/audit", "next")
    assert [len(page) for page in older] == [50, 50, 20]
    assert len({each for page in older for each in page}) == 120
    assert (await walk_sentences(site, await last_page(site, "/audit"), "prev"))[::-1] == older


async def test_the_csv_file_has_the_events_of_the_filter(site, history):
    response = await site.get("/audit.csv?type=fact_confirmed")
    assert response.headers["content-type"].startswith("text/csv")
    assert "attachment" in response.headers["content-disposition"]
    head, row = csv.reader(io.StringIO(response.text))
    record = dict(zip(head, row, strict=True))
    assert record["event"] == "fact_confirmed"
    assert record["sentence"] == "local confirmed Ada · diet"
    assert record["id"] == history["newer"]
    assert 'href="/audit.csv?type=fact_confirmed"' in (await site.get("/audit?type=fact_confirmed")).text


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
async def test_no_cell_of_the_csv_file_is_a_formula(site, tools, archive, start):
    actor = f"{start}HYPERLINK(1)"
    await append_event(archive, tools.tenant, actor=actor, event_type=actor, request_id=actor)
    _, row = csv.reader(io.StringIO((await site.get("/audit.csv")).text, newline=""))
    assert [cell for cell in row if cell[:1] in set("=+-@\t\r")] == []
    assert f"'{actor}" in row


async def test_a_csv_file_that_is_cut_says_so(site, tools, archive):
    await archive.connection.execute(
        "insert into memory_events (tenant_id, event_type, occurred_at)"
        " select $1, 'made', now() - make_interval(secs => n) from generate_series(1, 10001) n",
        tools.tenant,
    )
    rows = list(csv.reader(io.StringIO((await site.get("/audit.csv")).text)))
    assert len(rows) == 1 + 10_000 + 1
    assert rows[-1][0].startswith("The file ends after 10000 events. Older ones: until=")
    rest = await site.get("/audit.csv?until=" + rows[-1][0].rpartition("until=")[2].rstrip(".").replace("+", "%2B"))
    assert len(list(csv.reader(io.StringIO(rest.text)))) == 2


async def test_the_audit_prints_without_navigation_and_filters(site, page, history):
    await page.goto(f"{site.url}/audit")
    await page.emulate_media(media="print")
    assert not await page.locator("header nav").is_visible()
    assert not await page.locator(".facets").is_visible()
    assert await page.locator("table.audit").is_visible()


async def test_the_filter_of_the_audit_works_without_script(site, page_without_script, history):
    await page_without_script.goto(f"{site.url}/audit")
    await page_without_script.get_by_label("Since").fill("2020-01-01")
    await page_without_script.get_by_role("button", name="Filter").click()
    await page_without_script.wait_for_url("**since=2020-01-01**")
    assert await page_without_script.locator("table.audit tr[data-href]").count() == 6
