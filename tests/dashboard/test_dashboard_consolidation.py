"""The pages of consolidation: runs, one run as a diff, taking back, accepting, and the next prompts."""

import re

import pytest

from memory.lying_session import learn, start_session
from memory.scripted_model import fact_update, new_fact


@pytest.fixture
async def learned(memory, caller, tools):
    """A run that made a new fact, replaced one and confirmed one."""
    blue, tea = (
        await tools.fact("likes the colour blue", predicate="color"),
        await tools.fact("tea", predicate="drink"),
    )
    episode = await start_session(memory, caller).store_episode("She likes red now, and tea as before")
    await learn(
        memory, caller,
        new_facts=[new_fact("by the window", "seat", scope="global")],
        updated_facts=[fact_update(blue, "likes the colour red")],
        confirmations=[{"target_id": tea, "evidence": [episode]}],
    )  # fmt: skip
    return {"blue": blue, "tea": tea}


async def test_a_run_is_taken_back_and_brought_back_without_javascript(site, page_without_script, tools, learned):
    page = page_without_script
    await page.goto(f"{site.url}/consolidation")
    assert "+1 ~1 ✓1" in await page.locator("table").inner_text()
    assert "nobody" in await page.locator("table").inner_text()
    await page.locator("tbody a").first.click()
    text = await page.locator("main").inner_text()
    assert "likes the colour bluered" in re.sub(r"\s*\n\s*", "", text).replace("blue red", "bluered")
    assert await page.locator("main del").all_inner_texts() == ["blue"]
    assert await page.locator("main ins").all_inner_texts() == ["red"]
    await page.get_by_role("link", name=re.compile("^Take back the whole run")).click()
    table = await page.locator("table").inner_text()
    assert "is forgotten; live again: likes the colour blue" in table
    assert "the confirmation no longer counts" in table
    await page.get_by_role("button", name=re.compile("^Take it back")).click()
    assert "live again" in await page.locator(".done p").inner_text()
    assert (await tools("memory_get", memory_type="fact", memory_id=learned["blue"]))["lifecycle"] == "active"
    await page.get_by_role("button", name=re.compile("^Undo")).click()
    assert (await tools("memory_get", memory_type="fact", memory_id=learned["blue"]))["lifecycle"] == "superseded"


async def test_a_run_is_accepted_by_keys(site, page, learned):
    await page.goto(f"{site.url}/")
    await page.keyboard.press("g")
    await page.keyboard.press("l")
    await page.wait_for_url("**/consolidation")
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/consolidation/*-*")
    await page.keyboard.press("y")
    await page.wait_for_url("**?done=**")
    assert "Looked at" in await page.locator(".done p").inner_text()
    await page.goto(f"{site.url}/consolidation")
    assert "nobody" not in await page.locator("table").inner_text()


async def test_without_runs_the_page_says_why_and_what_waits(site, tools, memory):
    text = (await site.get("/consolidation")).text
    assert "Consolidation has not run yet." in text
    assert "No episode waits" in text
    await tools("memory_store_episode", content="a talk about tea", butler=memory.butler)
    assert "1 episode waiting" in (await site.get("/consolidation")).text
    prompt = (await site.get("/consolidation/prompts")).text
    assert "a talk about tea" in prompt
    assert "1 of 1 pending episode" in prompt


async def test_the_page_of_a_fact_leads_to_its_run(site, tools, learned):
    found = (await tools("memory_search", query="by the window", types=["fact"]))[0]
    assert re.search(r'href="/consolidation/[0-9a-f-]{36}"', (await site.get(f"/facts/{found['id']}")).text)


async def test_a_run_of_another_tenant_is_not_there(site, full):
    for path in (f"/consolidation/{full.runs['succeeded']}", f"/consolidation/{full.runs['succeeded']}/take-back"):
        assert (await site.get(path)).status_code == 404
