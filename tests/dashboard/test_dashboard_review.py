"""Review and take back: what waits in each pile, and what a judgement changes."""

from uuid import uuid4

import pytest

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
