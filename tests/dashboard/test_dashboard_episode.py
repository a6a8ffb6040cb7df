"""Page of one episode."""

from uuid import uuid4

import pytest

from dashboard.full_tenant import link


@pytest.fixture
def store(tools, butler):
    async def store(content: str = "Ada booked a table by the window.", **more: object) -> str:
        name = butler.config.butler.name
        return str((await tools("memory_store_episode", content=content, butler=name, **more))["id"])

    return store


async def test_an_episode_leads_to_what_came_of_it(site, page, tools, archive, store):
    episode = await store()
    fact = await tools.fact("by the window", subject="Ada", predicate="favorite_table")
    rule = await tools.rule("Book the table by the window")
    await link(archive, tools.tenant, ("fact", fact), ("episode", episode), "derived_from")
    await link(archive, tools.tenant, ("episode", episode), ("rule", rule), "supports")
    await page.goto(f"{site.url}/episodes/{episode}")
    rows = await page.locator("#derived ~ .table tbody tr").all_inner_texts()
    assert [[cell.strip() for cell in row.split("\t")][:3] for row in rows] == [
        ["Ada · favorite_table by the window", "derived from it", "active"],
        ["rule Book the table by the window", "supported by it", "active"],
    ]
    await page.get_by_role("link", name="Ada · favorite_table").click()
    assert page.url == f"{site.url}/facts/{fact}"


async def test_an_episode_that_failed_says_why_and_can_be_tried_again(site, page, archive, store):
    episode = await store()
    await archive.change(
        "episode",
        episode,
        consolidation_status="'dead_letter'",
        consolidation_attempts="5",
        last_consolidation_error="'the model gave no answer'",
    )
    await page.goto(f"{site.url}/episodes/{episode}")
    text = await page.locator("main").inner_text()
    assert "given up after the last attempt" in text
    assert "5 of 5" in text
    assert "the model gave no answer" in text
    assert await page.get_by_role("button", name="Try again").count() == 1


async def test_everything_from_an_episode_and_its_session_can_be_taken_back(site, page, tools, butler, store):
    session = str(uuid4())
    episode = await store(session_id=session)
    await page.goto(f"{site.url}/episodes/{episode}")
    links = await page.locator(".acts a").evaluate_all("all => all.map(each => each.getAttribute('href'))")
    assert links == [f"/retract?episode={episode}", f"/retract?session={session}"]


async def test_a_forgotten_episode_can_be_restored(site, tools, store):
    episode = await store()
    await tools("memory_forget", memory_type="episode", memory_id=episode)
    text = (await site.get(f"/episodes/{episode}")).text
    assert "/acts/restore" in text
    assert "/acts/forget" not in text


async def test_an_unread_and_a_fruitless_episode_say_why_nothing_came_of_them(site, archive, store):
    episode = await store()
    assert "consolidation has not read it" in (await site.get(f"/episodes/{episode}")).text
    await archive.change("episode", episode, consolidation_status="'consolidated'")
    assert "learned nothing from it" in (await site.get(f"/episodes/{episode}")).text


async def test_the_episode_of_another_tenant_is_not_found(site, stranger, butler):
    stored = await stranger("memory_store_episode", content="a secret", butler=butler.config.butler.name)
    response = await site.get(f"/episodes/{stored['id']}")
    assert response.status_code == 404
    assert "secret" not in response.text
