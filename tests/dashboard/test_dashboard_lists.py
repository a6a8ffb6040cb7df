"""Lists of facts, rules, episodes and entities: filters, facets, orders, paging, keys."""
# ruff: noqa: S608 — the columns are constants of the tests

import re
from datetime import UTC, datetime, timedelta

import pytest
from starlette.requests import Request

from butlers.dashboard.page import Page
from butlers.dashboard.pages.bulk_selection import select_all
from butlers.modules.memory.domain import decay
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.operations import viewing_lists
from butlers.modules.memory.operations.viewing_lists import MemoryFilter
from dashboard.list_checks import ids_on, last_page, link_to, walk
from memory.memory_fixtures import build_tenant_server

LISTS = ("/facts", "/rules", "/episodes", "/entities", "/search?q=tea", "/audit")
FADING = 'metadata || \'{"status": "fading"}\''


async def fill_facts(archive, tenant: str, count: int, **columns: str) -> None:
    """Insert facts, each a minute older than the one before."""
    names, values = "".join(f", {name}" for name in columns), "".join(f", {value}" for value in columns.values())
    await archive.connection.execute(
        f"insert into facts (tenant_id, subject, predicate, content, created_at, last_confirmed_at{names})"
        f" select $1, 'filler', 'note_' || n, 'note', now() - make_interval(mins => n),"
        f" now() - make_interval(mins => n){values} from generate_series(1, $2) n",
        tenant,
        count,
    )


@pytest.fixture
async def facts(tools, archive):
    """Facts that differ in everything a filter asks for; the newest last."""
    ada = await tools.entity("Ada")
    found = {
        "diet": await tools.fact("no meat", "Ada", "diet", entity_id=ada, tags=["food"], permanence="stable"),
        "desk": await tools.fact("by the window", "Ada", "desk", scope="health"),
        "phone": await tools.fact("old one", "Bob", "phone"),
        "gone": await tools.fact("nothing", "Bob", "gone"),
        "learned": await tools.fact("learned", "Bob", "learned"),
        "faded": await tools.fact("long ago", "Bob", "faded"),
    }
    found["number"] = await tools.fact("new one", "Bob", "phone")
    await tools("memory_forget", memory_type="fact", memory_id=found["gone"])
    await archive.change("fact", found["learned"], metadata='\'{"provenance": "distilled"}\'', confidence="0.7")
    await archive.change("fact", found["faded"], metadata=FADING, last_confirmed_at="now() - interval '250 days'")
    return found | {"entity": ada}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["number", "faded", "learned", "desk", "diet"]),
        ("?subject=Ada", ["desk", "diet"]),
        ("?predicate=phone", ["number"]),
        ("?predicate=phone&state=all", ["number", "phone"]),
        ("?scope=health", ["desk"]),
        ("?state=fading", ["faded"]),
        ("?state=superseded", ["phone"]),
        ("?state=retracted", ["gone"]),
        ("?permanence=stable", ["diet"]),
        ("?provenance=distilled", ["learned"]),
        ("?provenance=direct&subject=Ada", ["desk", "diet"]),
        ("?tag=food", ["diet"]),
        ("?min=0.8", ["number", "desk", "diet"]),
        ("?subject=Ada&tag=food&scope=health", []),
    ],
)
async def test_a_filter_of_facts_shows_those_that_match_newest_first(site, facts, query, expected):
    assert await ids_on(site, f"/facts{query}") == [facts[name] for name in expected]


async def test_facts_are_filtered_by_entity(site, facts):
    assert await ids_on(site, f"/facts?entity={facts['entity']}") == [facts["diet"]]


async def test_a_row_says_its_state_with_a_class_and_a_word(site, facts):
    text = (await site.get("/facts?state=all")).text
    rows = dict(re.findall(r'<tr class="(\w+)" data-href="/facts/([^"]+)"', text))
    for state, name in {"fading": "faded", "superseded": "phone", "retracted": "gone"}.items():
        assert rows[state] == facts[name]
        assert f'<span class="badge">{state}</span>' in text


async def test_facts_are_sorted_by_confidence_fading_and_use(site, facts, archive):
    await archive.change("fact", facts["desk"], reference_count="9", decay_rate="0.1", permanence="'ephemeral'")
    await archive.change("fact", facts["diet"], reference_count="3", decay_rate="0.002")
    assert (await ids_on(site, "/facts?sort=used"))[:2] == [facts["desk"], facts["diet"]]
    assert (await ids_on(site, "/facts?sort=fading"))[:2] == [facts["faded"], facts["desk"]]
    assert (await ids_on(site, "/facts?sort=fading"))[-1] == facts["diet"]
    assert (await ids_on(site, "/facts?sort=confidence"))[:2] == [facts["faded"], facts["learned"]]


async def test_a_fact_that_never_fades_says_never_and_is_not_sorted_by_fading(site, tools, archive):
    fact = await tools.fact("born in Porto", permanence="permanent")
    assert re.search(r"fades on</span>\s+never", (await site.get("/facts")).text)
    assert fact not in await ids_on(site, "/facts?sort=fading")


async def test_the_date_a_fact_fades_is_that_of_its_decay(site, facts, archive, memory):
    row = await archive.row("fact", facts["faded"])
    below = memory.config.confidence.fading_below
    fades_at = decay.fades_at(row["confidence"], row["decay_rate"], row["last_confirmed_at"], below)
    left = decay.effective_confidence(row["confidence"], row["decay_rate"], row["last_confirmed_at"], fades_at)
    assert left == pytest.approx(below)
    assert fades_at.isoformat(timespec="seconds") in (await site.get("/facts?state=fading")).text


@pytest.mark.parametrize("sort", ["newest", "fading", "confidence", "used"])
async def test_pages_of_facts_show_each_fact_once_in_both_directions(site, tools, archive, sort):
    await fill_facts(archive, tools.tenant, 130, reference_count="n % 7")
    path = f"/facts?sort={sort}"
    older = await walk(site, path, "next")
    assert [len(page) for page in older] == [50, 50, 30]
    assert len({each for page in older for each in page}) == 130
    newer = await walk(site, await last_page(site, path), "prev")
    assert newer[::-1] == older


async def test_a_fact_stored_between_two_pages_moves_none_of_the_others(site, tools, archive):
    await fill_facts(archive, tools.tenant, 60)
    first = await site.get("/facts")
    following = link_to(first.text, "next")
    assert following
    before = await ids_on(site, following)
    await tools.fact("a newcomer")
    assert await ids_on(site, following) == before
    assert len(before) == 10


async def test_a_rare_match_far_back_is_found_by_looking_further(site, tools, archive):
    await fill_facts(archive, tools.tenant, 10_050)
    await archive.connection.execute(
        "update facts set tags = '[\"rare\"]' where tenant_id = $1 and predicate in ('note_5', 'note_10040')",
        tools.tenant,
    )
    pages = await walk(site, "/facts?tag=rare", "next")
    assert [len(page) for page in pages] == [1, 1]
    assert "Look further back" in (await site.get("/facts?tag=rare")).text


async def test_facets_count_and_lead_to_their_rows(site, page, facts):
    await page.goto(f"{site.url}/facts")
    facets = page.locator(".facets")
    assert await facets.get_by_role("link", name="health").locator("xpath=..").inner_text() == "health 1"
    await facets.get_by_role("link", name="health").click()
    await page.wait_for_url("**/facts?scope=health")
    assert await page.locator("tr[data-href]").count() == 1
    await facets.get_by_role("link", name=re.compile("health.*remove the filter")).click()
    await page.wait_for_url("**/facts")
    assert await page.locator("tr[data-href]").count() == 5


async def test_a_list_without_matches_says_what_is_left_without_each_filter(site, facts):
    text = (await site.get("/facts?subject=Ada&tag=none")).text
    assert "None with these filters" in text
    left = re.findall(r"<li>(\w+) (\w+) <a href=\"([^\"]+)\">.*?(\d+) left", text)
    assert left == [("subject", "Ada", "/facts?tag=none", "0"), ("tag", "none", "/facts?subject=Ada", "2")]


async def test_back_and_forward_restore_filters_and_pages(site, page, tools, archive):
    await fill_facts(archive, tools.tenant, 60)
    await page.goto(f"{site.url}/facts")
    await page.get_by_label("Predicate").fill("note_7")
    await page.get_by_label("Predicate").press("Enter")
    await page.wait_for_url("**predicate=note_7**")
    assert await page.locator("tr[data-href]").count() == 1
    await page.go_back()
    assert await page.locator("tr[data-href]").count() == 50
    await page.get_by_role("link", name="Older").click()
    await page.wait_for_url("**before=**")
    assert await page.locator("tr[data-href]").count() == 10
    await page.go_back()
    await page.go_forward()
    assert await page.locator("tr[data-href]").count() == 10


async def test_a_list_is_used_by_keys_alone(site, page, facts):
    await page.goto(f"{site.url}/facts")
    for key in ("x", "j", "j", "k", "j", "x"):
        await page.keyboard.press(key)
    checked = page.locator("input[name=id]:checked")
    assert await checked.count() == 1
    assert await checked.get_attribute("value") == facts["faded"]
    assert await page.get_by_role("button", name="Confirm 1").is_visible()
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**/facts/{facts['faded']}")


async def test_the_bulk_form_sends_the_selected_rows_or_the_filter(site, page_without_script, facts):
    page = page_without_script
    await page.goto(f"{site.url}/facts?subject=Ada")
    await page.locator("input[name=id]").first.check()
    sent = []

    async def answer(route):
        sent.append(route.request.post_data)
        await route.fulfill(status=204)

    await page.route("**/acts/bulk", answer)
    await page.get_by_label("all 2 that match").check()
    await page.get_by_role("button", name="Forget").click()
    [body] = sent
    fields = dict(pair.split("=") for pair in body.split("&"))
    assert fields["id"] == facts["desk"]
    assert fields["all"] == "1"
    assert fields["act"] == "forget"
    assert fields["type"] == "fact"
    assert fields["filter"] == "subject%3DAda"
    assert fields["back"] == "%2Ffacts%3Fsubject%3DAda"
    assert len(fields["key"]) == 36


@pytest.mark.parametrize(
    ("memory_type", "query"),
    [("fact", ""), ("fact", "subject=Bob&sort=used"), ("fact", "tag=food&state=all"), ("rule", "state=forgotten"),
     ("episode", "state=failed"), ("episode", "gone=all")],
)  # fmt: skip
async def test_all_that_match_are_those_that_the_list_shows(
    site, butler, memory, caller, facts, rules, episodes, memory_type, query
):
    page = Page(Request({"type": "http"}), butler, build_tenant_server(butler, memory, caller.tenant), caller, "")
    ids = await select_all(page, MemoryType(memory_type), query)
    assert ids
    assert sorted(map(str, ids)) == sorted(await ids_on(site, f"/{memory_type}s?{query}", f"{memory_type}s"))


@pytest.fixture
async def rules(tools, archive):
    """A rule of each group."""
    names = ("candidate", "established", "proven", "warning", "harmful", "forgotten")
    found = {name: await tools.rule(f"A {name} rule about {name} trains") for name in names}
    await archive.change("rule", found["established"], maturity="'established'")
    await archive.change("rule", found["proven"], maturity="'proven'")
    await archive.change("rule", found["warning"], maturity="'anti_pattern'")
    for _ in range(3):
        await tools("memory_mark_harmful", rule_id=found["harmful"], reason="it missed the train")
    await tools("memory_mark_helpful", rule_id=found["candidate"])
    await tools("memory_forget", memory_type="rule", memory_id=found["forgotten"])
    return found


async def test_rules_are_grouped_with_warnings_first_and_show_their_marks(site, rules):
    text = (await site.get("/rules")).text
    headings = re.findall(r"<h2>(.*?)<", text.partition("</main>")[0])
    assert headings == ["Warnings", "Awaiting inversion", "Proven", "Established", "Candidates"]
    order = ["warning", "harmful", "proven", "established", "candidate"]
    assert await ids_on(site, "/rules", "rules") == [rules[name] for name in order]
    assert "0 helpful, 3 harmful" in text
    assert "1 helpful, 0 harmful" in text


async def test_rules_are_filtered_by_group_and_state(site, rules):
    assert await ids_on(site, "/rules?group=proven", "rules") == [rules["proven"]]
    assert await ids_on(site, "/rules?group=awaiting+inversion", "rules") == [rules["harmful"]]
    assert await ids_on(site, "/rules?state=forgotten", "rules") == [rules["forgotten"]]


async def test_a_large_group_of_rules_has_pages_of_its_own(site, tools, archive):
    await archive.connection.execute(
        "insert into rules (tenant_id, content, created_at) select $1, 'rule ' || n, now() - make_interval(mins => n)"
        " from generate_series(1, 70) n",
        tools.tenant,
    )
    first = await site.get("/rules")
    assert len(await ids_on(site, "/rules", "rules")) == viewing_lists.GROUP_ROWS
    assert 'href="/rules?group=candidate"' in first.text
    pages = await walk(site, "/rules?group=candidate", "next", "rules")
    assert [len(page) for page in pages] == [50, 20]


@pytest.fixture
async def episodes(tools, memory, archive):
    """An episode of each consolidation status, one each day, and an expired one."""
    found = {}
    for days, status in enumerate(("pending", "consolidated", "failed", "dead_letter", "expired")):
        stored = await tools("memory_store_episode", content=f"A talk that is {status}", butler=memory.butler)
        found[status] = stored["id"]
        await archive.change("episode", stored["id"], created_at=f"created_at - interval '{days} days'")
        if status != "expired":
            await archive.change("episode", stored["id"], consolidation_status=f"'{status}'")
    await archive.change("episode", found["expired"], expires_at="now() - interval '1 hour'")
    return found


async def test_episodes_are_shown_by_day_with_their_state_in_words(site, episodes):
    text = (await site.get("/episodes")).text
    days = [datetime.now(UTC).date() - timedelta(days=days) for days in range(4)]
    assert re.findall(r'<h2><time datetime="([^"]+)"', text) == [day.isoformat() for day in days]
    assert re.findall(r'class="state \w+"><span aria-hidden="true">.</span> ([\w ]+)<', text) == [
        "pending", "consolidated", "failed", "dead letter",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["pending", "consolidated", "failed", "dead_letter"]),
        ("?state=dead_letter", ["dead_letter"]),
        ("?gone=yes", ["expired"]),
        ("?gone=all", ["pending", "consolidated", "failed", "dead_letter", "expired"]),
        ("?butler=nobody", []),
        ("?session=00000000-0000-4000-8000-000000000001", ["failed"]),
    ],
)
async def test_a_filter_of_episodes_shows_those_that_match(site, episodes, archive, query, expected):
    await archive.change("episode", episodes["failed"], session_id="'00000000-0000-4000-8000-000000000001'")
    assert await ids_on(site, f"/episodes{query}", "episodes") == [episodes[name] for name in expected]


async def test_entities_are_listed_by_name_whatever_its_case_and_accents(site, tools):
    names = ("Zoë", "ada", "Émile", "Bob", "Adam")
    for name in names:
        await tools.entity(name, aliases=[f"{name} the first"])
    text = (await site.get("/entities")).text
    assert re.findall(r'data-href="/entities/[^>]+>\s+<td class="what"><a [^>]+>([^<]+)<', text) == [
        "ada", "Adam", "Bob", "Émile", "Zoë",
    ]  # fmt: skip
    assert len(await ids_on(site, "/entities?name=AD", "entities")) == 2
    assert len(await ids_on(site, "/entities?name=emi", "entities")) == 1
    assert "None with these filters" in (await site.get("/entities?name=x")).text


async def test_entities_show_their_live_facts_and_hide_merged_ones_behind_a_facet(site, tools):
    ada, twin = await tools.entity("Ada"), await tools.entity("Ada L.")
    place = await tools.entity("Lisbon", entity_type="place")
    await tools.fact("no meat", "Ada", "diet", entity_id=ada)
    await tools("entity_merge", source_entity_id=twin, target_entity_id=ada)
    assert await ids_on(site, "/entities", "entities") == [ada, place]
    assert await ids_on(site, "/entities?type=place", "entities") == [place]
    assert await ids_on(site, "/entities?merged=yes", "entities") == [twin]
    assert "Ada L." in (await site.get("/entities?merged=yes")).text
    assert re.search(rf'<a href="/facts\?entity={ada}">1</a>', (await site.get("/entities")).text)


async def test_pages_of_entities_show_each_one_once_in_both_directions(site, tools, archive):
    await archive.connection.execute(
        "insert into entities (tenant_id, canonical_name, entity_type) select $1, 'Name ' || n % 60,"
        " (array['person', 'place', 'other'])[1 + n / 60] from generate_series(0, 119) n",
        tools.tenant,
    )
    older = await walk(site, "/entities", "next", "entities")
    assert [len(page) for page in older] == [50, 50, 20]
    assert len({each for page in older for each in page}) == 120
    assert (await walk(site, await last_page(site, "/entities"), "prev", "entities"))[::-1] == older


@pytest.mark.parametrize(
    "path",
    [
        "/facts?state=nonsense",
        "/facts?sort=nonsense",
        "/facts?permanence=nonsense",
        "/facts?min=2",
        "/facts?min=nan",
        "/facts?entity=nonsense",
        "/facts?before=nonsense",
        "/facts?before=2026-01-01",
        "/facts?sort=used&before=inf~2026-01-01~00000000-0000-4000-8000-000000000001",
        "/rules?group=nonsense",
        "/episodes?session=nonsense",
        "/entities?type=nonsense",
        "/search?q=tea&mode=nonsense",
        "/audit?since=nonsense",
        "/audit?via=nonsense",
        "/audit?memory=nonsense",
        "/audit?until=9999-12-31",
    ],
)
async def test_a_filter_that_makes_no_sense_is_answered_with_400_and_a_hint(site, path):
    response = await site.get(path)
    assert response.status_code == 400
    assert "unexpected" not in response.text


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("value", ["%00", "%ED%A0%80", "'%22%3E%3Cscript%3E", "%E2%80%AE", "x" * 3000])
async def test_a_filter_with_any_text_is_answered(site, path, value):
    separator = "&" if "?" in path else "?"
    for name in ("subject", "scope", "tag", "actor", "butler", "name", "q"):
        response = await site.get(f"{path}{separator}{name}={value}")
        assert response.status_code in {200, 400}, (name, response.text)
        assert "<script>" not in response.text


async def test_lists_show_nothing_of_another_tenant(site, tools, stranger, memory):
    fact = await stranger.fact("secret tea", "secret subject", tags=["secrettag"], scope="secretscope")
    rule, entity = await stranger.rule("secret rule"), await stranger.entity("Secret Ada")
    episode = (await stranger("memory_store_episode", content="secret talk", butler=memory.butler))["id"]
    await tools.fact("my tea")
    for path in (*LISTS, "/facts?state=all", f"/audit?memory={fact}", f"/search?q={fact}", "/audit.csv"):
        text = (await site.get(path)).text
        assert "secret" not in text.replace(f"memory={fact}", ""), path
        assert not [each for each in (rule, entity, episode) if each in text], path


def test_a_filter_of_rules_names_its_type():
    assert MemoryFilter(memory_type=MemoryType.RULE, group="warning").conditions()["maturity"] == "anti_pattern"
