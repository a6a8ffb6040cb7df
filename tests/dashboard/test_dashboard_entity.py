"""Page of one entity."""

from dashboard.full_tenant import link


async def test_an_entity_shows_its_facts_by_predicate_and_its_names(site, page, tools):
    ada = await tools.entity("Ada Lovelace", aliases=["Ada"], metadata={"team": "engines"})
    await tools.fact("by the window", predicate="table", entity_id=ada)
    await tools.fact("eats no meat", predicate="diet", entity_id=ada)
    await page.goto(f"{site.url}/entities/{ada}")
    assert await page.locator("h1").inner_text() == "Ada Lovelace"
    rows = await page.locator("#facts ~ .table tbody tr").all_inner_texts()
    assert [[cell.strip() for cell in row.split("\t")][:2] for row in rows] == [
        ["diet", "eats no meat"], ["table", "by the window"],
    ]  # fmt: skip
    text = await page.locator("main").inner_text()
    assert "What is known: 2 facts" in text
    assert "engines" in text
    assert "local stored diet" in await page.locator(".trail li").first.inner_text()


async def test_the_graph_links_the_facts_and_their_episodes(site, page, tools, archive, butler):
    ada = await tools.entity("Ada")
    fact = await tools.fact("eats no meat", predicate="diet", entity_id=ada)
    episode = (await tools("memory_store_episode", content="She said so.", butler=butler.config.butler.name))["id"]
    await link(archive, tools.tenant, ("fact", fact), ("episode", episode), "derived_from")
    await page.goto(f"{site.url}/entities/{ada}")
    links = await page.locator("svg.ego a").evaluate_all("all => all.map(each => each.getAttribute('href'))")
    assert links == [f"/facts/{fact}", f"/episodes/{episode}"]
    await page.get_by_role("link", name="diet: eats no meat").click()
    assert page.url == f"{site.url}/facts/{fact}"


async def test_a_large_entity_has_a_graph_of_forty_nodes(site, page, tools, archive):
    ada = await tools.entity("Ada")
    await archive.connection.execute(
        "insert into facts (tenant_id, subject, predicate, content, entity_id)"
        " select $1, 'Ada', 'likes_' || n, 'thing ' || n, $2 from generate_series(1, 100) n",
        tools.tenant, ada,
    )  # fmt: skip
    await page.goto(f"{site.url}/entities/{ada}")
    assert await page.locator("svg.ego a").count() == 39
    last = page.locator("svg.ego a").last
    assert await last.get_attribute("aria-label") == "and 62 more"
    assert await last.get_attribute("href") == f"/facts?entity={ada}"


async def test_namesakes_are_named_and_can_be_merged(site, page, tools):
    ada = await tools.entity("Chloe", aliases=["Clo"])
    person = await tools.entity("Chloe", entity_type="organization")
    other = await tools.entity("Clo", entity_type="place")
    await tools.entity("Bob")
    await page.goto(f"{site.url}/entities/{ada}")
    links = await page.locator("p:has-text('Also called so') a").evaluate_all(
        "all => all.map(each => each.getAttribute('href'))"
    )
    assert set(links) == {
        f"/entities/{person}", f"/entities/{other}",
        f"/entities/merge?source={person}&target={ada}", f"/entities/merge?source={other}&target={ada}",
    }  # fmt: skip


async def test_an_entity_can_be_renamed_and_merged(site, page_without_script, tools):
    ada = await tools.entity("Ada", aliases=["A", "Countess"])
    page = page_without_script
    await page.goto(f"{site.url}/entities/{ada}")
    await page.get_by_text("Rename, aliases and metadata").click()
    assert await page.get_by_label("Name").input_value() == "Ada"
    assert await page.get_by_label("Aliases").input_value() == "A\nCountess"
    assert await page.locator("main form").get_attribute("action") == "/acts/entity"
    assert await page.locator(".acts a").get_attribute("href") == f"/entities/merge?source={ada}"


async def test_a_merged_entity_leads_to_the_one_that_has_its_facts(site, page, tools):
    ada, twin = await tools.entity("Ada"), await tools.entity("Ada L.")
    await tools("entity_merge", source_entity_id=twin, target_entity_id=ada)
    await page.goto(f"{site.url}/entities/{twin}")
    assert await page.locator("h1").inner_text() == "Ada L."
    assert await page.locator("main form").count() == 0
    await page.get_by_role("link", name="another entity").click()
    assert page.url == f"{site.url}/entities/{ada}"
    assert "local merged an entity into it" in await page.locator(".trail").inner_text()


async def test_an_entity_without_facts_says_how_it_gets_some(site, tools):
    ada = await tools.entity("Ada")
    assert "Nothing is known about it yet." in (await site.get(f"/entities/{ada}")).text


async def test_the_entity_of_another_tenant_is_not_found(site, tools, stranger):
    secret = await stranger.entity("Secret Ada")
    response = await site.get(f"/entities/{secret}")
    assert response.status_code == 404
    assert "Secret" not in response.text
    own = await tools.entity("Secret Ada")
    assert secret not in (await site.get(f"/entities/{own}")).text
