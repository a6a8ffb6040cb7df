"""The page of an undo: what one event changed, its refusal, and the links that lead there."""

import re
from uuid import UUID

import pytest


async def last_event(archive, tenant: str, record_id: str) -> str:
    """Return the id of the latest event of a record."""
    (row,) = await archive.rows(
        "select id::text from memory_events where tenant_id = $1 and entity_id = $2"
        " order by occurred_at desc limit 1",
        tenant, UUID(record_id),
    )  # fmt: skip
    return row["id"]


async def test_an_event_is_undone_from_the_audit_trail_without_javascript(site, page_without_script, tools):
    page = page_without_script
    old = await tools.fact("no meat", "Ada", "diet")
    new = await tools.fact("no fish either", "Ada", "diet")
    await page.goto(f"{site.url}/audit")
    await page.get_by_role("link", name="Undo: replaced Ada · diet").click()
    text = await page.locator("main").inner_text()
    assert "gives 2 records the state before" in text
    assert re.search(r"validity: superseded active", text)
    assert (await tools("memory_get", memory_type="fact", memory_id=old))["lifecycle"] == "superseded"
    await page.get_by_role("button", name=re.compile("^Undo it")).click()
    assert "Undone: " in await page.locator(".done p").inner_text()
    states = [(await tools("memory_get", memory_type="fact", memory_id=each))["lifecycle"] for each in (old, new)]
    assert states == ["active", "retracted"]


async def test_an_event_is_undone_from_the_page_of_a_memory_by_keys(site, page, tools, archive):
    rule = await tools.rule("Ask before booking")
    await tools("memory_forget", memory_type="rule", memory_id=rule)
    await page.goto(f"{site.url}/rules/{rule}")
    await page.get_by_role("link", name="Undo: local forgot").click()
    await page.wait_for_url("**/undo?event=**")
    await page.keyboard.press("u")
    await page.wait_for_url("**/audit?request=**")
    assert not (await tools("memory_get", memory_type="rule", memory_id=rule))["metadata"].get("forgotten")


@pytest.mark.parametrize("why", ["changed", "already", "merged"])
async def test_a_refusal_says_why_and_offers_no_button(site, tools, archive, why):
    fact = await tools.fact()
    await tools("memory_confirm", memory_type="fact", memory_id=fact)
    event = await last_event(archive, tools.tenant, fact)
    match why:
        case "changed":
            await tools("memory_confirm", memory_type="fact", memory_id=fact)
            expected = "was changed since by fact_confirmed"
        case "already":
            await tools("memory_undo", event_id=event)
            expected = "It is undone already."
        case "merged":
            target = await tools.entity()
            await tools("entity_merge", source_entity_id=await tools.entity("Ada L."), target_entity_id=target)
            event, expected = await last_event(archive, tools.tenant, target), "a merge of entities is final"
    text = (await site.get(f"/undo?event={event}")).text
    assert expected in text
    assert 'action="/acts/undo"' not in text


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 400),
        ("event=nonsense", 400),
        ("event=00000000-0000-4000-8000-000000000001", 404),
        ("event=a&request=b", 400),
        ("request=none", 200),
    ],
)
async def test_an_address_without_an_event_says_what_is_wrong(site, query, status):
    answer = await site.get(f"/undo?{query}")
    assert answer.status_code == status
    assert "Traceback" not in answer.text
