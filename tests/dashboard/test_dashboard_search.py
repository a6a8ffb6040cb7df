"""The search page: the results of memory_search with the parts of their scores, facets, and ids."""

import copy
import re
from dataclasses import replace

import pytest

from butlers.dashboard.pages.search import score_parts
from butlers.errors import Unavailable
from butlers.modules.memory.domain.model import SearchMode
from butlers.modules.memory.embedding import EmbeddingVersion
from dashboard.conftest import serve_site


def results_on(text: str) -> list[str]:
    return re.findall(r'<tr class="\w+" data-href="/\w+/([^"]+)"', text)


@pytest.fixture
async def tea(tools, memory):
    """A memory of each type about tea."""
    return {
        "fact": await tools.fact("green tea with lemon", "Ada", "drink", tags=["food"], permanence="stable"),
        "rule": await tools.rule("Offer tea before coffee", scope="health"),
        "episode": (await tools("memory_store_episode", content="Ada asked for tea", butler=memory.butler))["id"],
    }


async def test_a_search_shows_what_the_tool_finds_in_the_same_order(site, tools, tea):
    text = (await site.get("/search?q=tea+with+lemon")).text
    assert results_on(text) == await tools.ids("memory_search", query="tea with lemon", scope="*", limit=100)
    assert set(results_on(text)) == set(tea.values())
    assert len(re.findall(r'<svg[^>]* class="parts"', text)) == 3


async def test_the_parts_of_a_score_add_up_to_its_share_of_the_highest():
    hybrid = {"rrf_score": 1 / 61 + 1 / 62, "semantic_rank": 1, "keyword_rank": 2, "score": 1 / 61 + 1 / 62}
    meaning, words = score_parts(hybrid, SearchMode.HYBRID)
    assert (meaning[0], words[0]) == ("meaning", "words")
    assert [meaning[1], words[1]] == pytest.approx([0.5, (1 / 62) / (2 / 61)])
    blended = {"rrf_score": None, "similarity": 0.5, "coverage": 1.0, "score": 0.75}
    assert [share for _, share in score_parts(blended, SearchMode.BLENDED)] == [0.25, 0.5]
    keyword = {"rrf_score": None, "similarity": None, "coverage": None, "score": 1.2}
    assert [share for _, share in score_parts(keyword, SearchMode.KEYWORD)] == [0.5, pytest.approx(0.1)]


@pytest.mark.parametrize("mode", list(SearchMode))
async def test_a_search_in_each_mode_shows_its_results(site, tools, tea, mode):
    text = (await site.get(f"/search?q=tea&mode={mode}")).text
    assert results_on(text) == await tools.ids("memory_search", query="tea", scope="*", mode=mode, limit=100)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("&type=rule", ["rule"]),
        ("&scope=health&type=rule", ["rule"]),
        ("&permanence=stable", ["fact"]),
        ("&tag=food", ["fact"]),
        ("&provenance=direct&type=fact", ["fact"]),
        ("&state=fading", []),
    ],
)
async def test_a_filter_of_a_search_shows_those_that_match(site, tea, query, expected):
    text = (await site.get(f"/search?q=tea{query}")).text
    assert results_on(text) == [tea[name] for name in expected]
    if not expected:
        assert "None with these filters" in text
        assert "3 left" in text


async def test_an_id_or_its_first_eight_digits_lead_to_the_memory(site, tools, tea):
    entity = await tools.entity("Ada")
    for kind, folder in (("fact", "facts"), ("rule", "rules"), ("episode", "episodes")):
        for text in (tea[kind], tea[kind][:8], tea[kind].upper()):
            response = await site.get(f"/search?q={text}")
            assert (response.status_code, response.headers["location"]) == (303, f"/{folder}/{tea[kind]}")
    assert (await site.get(f"/search?q={entity}")).headers["location"] == f"/entities/{entity}"


async def test_eight_digits_that_several_ids_begin_with_show_a_list(site, tools, archive):
    first, second = await tools.fact("one", predicate="a"), await tools.rule("A rule with the same beginning")
    await archive.change("fact", first, id="('abcdef01' || substr(id::text, 9))::uuid")
    await archive.change("rule", second, id="('abcdef01' || substr(id::text, 9))::uuid")
    response = await site.get("/search?q=ABCDEF01")
    assert response.status_code == 200
    assert f'href="/facts/abcdef01{first[8:]}"' in response.text
    assert f'href="/rules/abcdef01{second[8:]}"' in response.text


async def test_the_id_of_another_tenant_leads_nowhere(site, stranger):
    fact = await stranger.fact("secret")
    response = await site.get(f"/search?q={fact}")
    assert response.status_code == 200
    assert "/facts/" not in response.text


class MissingEmbedder:
    """An embedder whose model is not installed."""

    version = EmbeddingVersion("all-MiniLM-L6-v2", "1", 384)

    async def embed(self, _: str, **_options: str) -> list[float]:
        raise Unavailable("the embedding model is not installed")


async def test_a_search_by_words_alone_says_so(butler, memory, caller, tea):
    module = copy.copy(butler.modules[0])
    module._memory = replace(memory, embedder=MissingEmbedder())
    async with serve_site(replace(butler, modules=[module]), memory, caller.tenant) as site:
        text = (await site.get("/search?q=tea")).text
    assert "Searched by words alone: the embedding model is not installed." in text
    assert set(results_on(text)) == set(tea.values())


async def test_results_of_one_type_can_be_selected_and_others_not(site, tea):
    assert 'name="id"' not in (await site.get("/search?q=tea")).text
    text = (await site.get("/search?q=tea&type=fact")).text
    assert f'name="id" value="{tea["fact"]}"' in text
    assert 'name="all"' not in text


async def test_the_search_field_is_reached_by_a_key_from_every_page(site, page, tools):
    fact = await tools.fact("green tea with lemon")
    await tools.fact("an old bicycle", predicate="owns")
    await page.goto(f"{site.url}/facts")
    await page.keyboard.press("/")
    await page.keyboard.type("tea with lemon")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/search?q=tea+with+lemon")
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**/facts/{fact}")


async def test_a_search_without_words_or_results_says_what_to_do(site):
    assert "first eight digits" in (await site.get("/search")).text
    assert "Nothing was found" in (await site.get("/search?q=tea")).text


async def test_the_foot_has_the_same_search_as_a_command_that_a_shell_reads(site):
    text = (await site.get("/search?q=it's+%3Cb%3E&mode=keyword")).text
    assert "butlers memory search DIR &#39;it&#39;&#34;&#39;&#34;&#39;s &lt;b&gt;&#39; --scope &#39;*&#39;" in text
