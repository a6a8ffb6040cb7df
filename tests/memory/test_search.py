"""Search, recall and retrieval of single memories."""
# ruff: noqa: S608 — the tables and columns are constants of the tests

import math
import uuid
from dataclasses import replace
from datetime import timedelta

import pytest

from butlers.modules.memory.domain.fusion import normalized_relevance, rrf_score
from butlers.modules.memory.domain.model import MemoryType, NewFact, SearchMode
from butlers.modules.memory.domain.scoring import recency
from butlers.modules.memory.operations import context, reading, writing
from memory.memory_fixtures import REQUEST

MODES = tuple(SearchMode)
TABLES = {"facts": "subject, predicate", "rules": "scope", "episodes": "butler"}


async def store_kinds(tools, memory, content: str, **key: str) -> dict[str, str]:
    """Store the same content as a fact, a rule and an episode."""
    episode = await tools("memory_store_episode", content=content, butler=memory.butler)
    return {"fact": await tools.fact(content, **key), "rule": await tools.rule(content), "episode": episode["id"]}


@pytest.mark.parametrize("mode", MODES)
async def test_a_search_looks_at_all_three_types(tools, memory, mode):
    """Scenario: Search across all types
    Scenario: General search across multiple memory types
    """
    stored = await store_kinds(tools, memory, "vegetarian diet preferences")
    found = await tools("memory_search", query="diet preferences", mode=mode)
    assert {each["memory_type"]: each["id"] for each in found} == stored
    assert all(each["type"] == each["memory_type"] for each in found)
    assert all(each["content"] == "vegetarian diet preferences" and "score" in each for each in found)
    assert {each["type"] for each in found if "confidence" in each} == {"fact", "rule"}


@pytest.mark.parametrize("kind", ["fact", "rule", "episode"])
async def test_a_search_for_one_type_finds_that_type_alone(tools, memory, kind):
    """Scenario: Search filtered to facts only"""
    stored = await store_kinds(tools, memory, "vegetarian diet")
    assert await tools.ids("memory_search", query="diet", types=[kind]) == [stored[kind]]


async def test_semantic_search_goes_by_the_cosine_of_the_vectors(tools, engine):
    """Scenario: Semantic search returns cosine similarity"""
    for predicate, content in (("food", "eats no meat"), ("car", "drives an old car"), ("pet", "has a black cat")):
        await tools.fact(content, predicate=predicate)
    found = await tools("memory_search", query="vegetarian", mode="semantic")
    asked = await engine.embed("vegetarian")
    for each in found:
        stored = await engine.embed(f"user {each['predicate']} {each['content']}")
        cosine = sum(a * b for a, b in zip(asked, stored, strict=True))
        assert each["similarity"] == pytest.approx(cosine, abs=1e-5)
        assert each["score"] == each["similarity"]
    assert found[0]["content"] == "eats no meat"
    assert found == sorted(found, key=lambda each: -each["similarity"])


async def test_keyword_search_takes_any_of_the_words_and_prefers_all_of_them(tools):
    """Scenario: Keyword search uses plainto_tsquery"""
    some = await tools.fact("peanuts peanuts peanuts", predicate="a")
    every = await tools.fact("allergic to many things, and among others to peanuts", predicate="b")
    await tools.fact("likes jazz", predicate="c")
    found = await tools("memory_search", query="Is Ada allergic to peanuts & (shellfish | !nuts)?", mode="keyword")
    assert {each["id"] for each in found} == {some, every}
    found = await tools("memory_search", query="allergic peanuts", mode="keyword")
    assert [each["id"] for each in found] == [every, some]
    assert all(0 < each["rank"] < 1 and "similarity" not in each for each in found)


async def insert_many(tools, memory, archive, content: str, number: int = 2400) -> None:
    """Insert memories of each type; their content is an SQL expression over n."""
    await store_kinds(tools, memory, "the first of many")
    for table, columns in TABLES.items():
        await archive.connection.execute(
            f"""
            insert into {table} (tenant_id, {columns}, content, embedding, embedding_version_id, search_vector)
            select m.tenant_id, {columns.replace("predicate", "'p' || n")}, c.content, m.embedding,
                   m.embedding_version_id, to_tsvector('english', c.content)
              from {table} m, generate_series(1, $2) n, lateral (select {content} as content) c
             where m.tenant_id = $1
            """,
            tools.tenant,
            number,
        )


async def keyword_ids(tools, kind: str, query: str, limit: int) -> list[str]:
    answer = await tools("memory_search", query=query, mode="keyword", types=[kind], limit=limit)
    return [each["content"] for each in answer]


KINDS = pytest.mark.parametrize("kind", ["fact", "rule", "episode"])


@KINDS
async def test_of_many_with_a_common_word_those_that_have_two_are_found_beside_a_rare_one(
    tools, memory, archive, kind
):
    await insert_many(
        tools,
        memory,
        archive,
        "(array['tea', 'coffee', 'water', case when n < 60 then 'zebra' else 'milk' end])[1 + n % 4] || ' ' || n",
        number=4800,
    )
    for number in range(3):
        await store_kinds(tools, memory, f"coffee and tea, guest {number}", predicate=f"guest {number}")
    found = await keyword_ids(tools, kind, "tea coffee zebra", 10)
    assert [each.startswith("coffee and tea") for each in found] == [True] * 3 + [False] * 7
    assert all(each.startswith("zebra") for each in found[3:]), "and no common word has to be looked up alone"


@KINDS
async def test_where_few_have_two_common_words_those_that_have_one_are_found_too(tools, memory, archive, kind):
    """Also where those few contain many pairs of the words."""
    await insert_many(
        tools, memory, archive, "(array['tea', 'coffee', 'water', 'milk'])[1 + n % 4] || ' ' || n", 4800
    )
    for number in range(3):
        await store_kinds(tools, memory, f"coffee, tea, water, milk, guest {number}", predicate=f"guest {number}")
    found = await keyword_ids(tools, kind, "tea coffee water milk", 10)
    assert [each.startswith("coffee, tea") for each in found] == [True] * 3 + [False] * 7
    assert len(set(found)) == 10


@KINDS
async def test_words_are_found_behind_very_many_that_nobody_has(tools, memory, archive, kind):
    await insert_many(tools, memory, archive, "'tea ' || n")
    await store_kinds(tools, memory, "zebra crossing", predicate="road")
    unknown = " ".join(f"aa{number:03}" for number in range(150))
    assert await keyword_ids(tools, kind, f"{unknown} zebra", 5) == ["zebra crossing"]
    found = await tools("memory_search", query=f"{unknown} zebra", mode="blended", types=[kind], limit=100)
    (covered,) = (each["coverage"] for each in found if each["content"] == "zebra crossing")
    assert covered > 0


@pytest.mark.parametrize("query", ["the of and", "???", "&|!()", "'", "\\", "a:*", "<->"])
@pytest.mark.parametrize("mode", MODES)
async def test_words_that_ask_for_nothing_find_nothing_by_words_and_fail_nowhere(tools, query, mode):
    await tools.fact("blue")
    found = await tools("memory_search", query=query, mode=mode)
    assert len(found) == (0 if mode == "keyword" else 1)


async def test_hybrid_search_fuses_both_ranks(tools):
    """Scenario: Hybrid search uses Reciprocal Rank Fusion"""
    for number, content in enumerate(["peanut allergy", "allergic to nuts", "old car", "peanut butter", "jazz"]):
        await tools.fact(content, predicate=f"p{number}")
    found = await tools("memory_search", query="peanut allergy", limit=4)
    assert len(found) == 4
    for each in found:
        expected = rrf_score(each.get("semantic_rank"), each.get("keyword_rank"), 4)
        assert each["rrf_score"] == each["score"] == pytest.approx(expected)
    assert found[0]["content"] == "peanut allergy"
    assert found == sorted(found, key=lambda each: -each["rrf_score"])
    assert any("keyword_rank" not in each for each in found), "one was found by meaning alone"


async def test_blended_search_adds_up_nearness_and_words_of_whatever_either_arm_found(tools, engine):
    contents = ["peanut allergy", "allergic to nuts", "old car", "peanut butter", "jazz"]
    for number, content in enumerate(contents):
        await tools.fact(content, predicate=f"p{number}")
    found = {each["content"]: each for each in await tools("memory_search", query="peanut allergy", mode="blended")}
    asked = await engine.embed("peanut allergy")
    # Two of the five matches contain "peanut", one "allergi"; "allerg" is another lexeme.
    peanut, allergy = -math.log(2.5 / 6), -math.log(1.5 / 6)
    covered = dict.fromkeys(contents, 0.0) | {
        "peanut allergy": 1.0,
        "peanut butter": peanut / (peanut + allergy),
    }
    for number, content in enumerate(contents):
        cosine = sum(a * b for a, b in zip(asked, await engine.embed(f"user p{number} {content}"), strict=True))
        each = found[content]
        assert each["similarity"] == pytest.approx(cosine, abs=1e-5)
        assert each["coverage"] == pytest.approx(covered[content])
        assert each["score"] == pytest.approx((max(cosine, 0.0) + covered[content]) / 2, abs=1e-5)
        assert "rrf_score" not in each
    assert list(found) == sorted(found, key=lambda content: -found[content]["score"])


DENTIST = "dentist tooth appointment"


async def store_patients(tools) -> list[str]:
    """Store three facts: the second has the best words, the third is the nearest, the first is good at both."""
    contents = [
        "a dentist lives next door",
        "tooth, tooth, tooth, tooth, said the parrot",
        "toothache, so a visit at the dental practice",
    ]
    for number, content in enumerate(contents):
        await tools.fact(content, predicate=f"p{number}")
    found = {each["content"]: each for each in await tools("memory_search", query=DENTIST)}
    assert [found[content].get("semantic_rank") for content in contents] == [2, 3, 1]
    assert [found[content].get("keyword_rank") for content in contents] == [2, 1, None]
    return contents


async def test_the_best_by_both_measures_is_found_though_it_is_first_by_neither(tools):
    best, *_ = await store_patients(tools)
    (found,) = await tools("memory_search", query=DENTIST, mode="blended", limit=1)
    assert found["content"] == best


async def test_recall_and_context_take_relevance_from_the_measures_where_that_is_configured(memory, caller, tools):
    retrieval = memory.config.retrieval.model_copy(update={"recall_mode": "blended"})
    blended = replace(memory, config=memory.config.model_copy(update={"retrieval": retrieval}))
    both, words, near = await store_patients(tools)
    asked = {"scope": None, "limit": 10, "types": (MemoryType.FACT, MemoryType.RULE)}
    for at, order in ((memory, [words, both, near]), (blended, [both, near, words])):
        found = await reading.recall(at, caller, DENTIST, **asked)
        assert [each["content"] for each in found] == order
        block = await context.build_context(at, caller, DENTIST, memory.butler, None)
        assert sorted(order, key=block.index) == order
    for each in found:
        assert each["relevance"] == pytest.approx((max(each["similarity"], 0.0) + each["coverage"]) / 2)
        assert each["rrf_score"] is None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("blank", [" ", "\x00", "\n\t \x00"])
async def test_a_blank_question_is_refused_in_every_mode(tools, mode, blank):
    await tools.fact()
    assert (await tools.refusal("memory_search", query=blank, mode=mode)).startswith("invalid_input: query is blank.")


async def test_a_blank_topic_or_prompt_is_refused_too(tools, memory):
    assert (await tools.refusal("memory_recall", topic="\x00 ")).startswith("invalid_input: topic is blank.")
    message = await tools.refusal("memory_context", trigger_prompt=" ", butler=memory.butler)
    assert message.startswith("invalid_input: trigger_prompt is blank.")
    assert (await tools.refusal("memory_search", query="")).startswith("invalid_input: query: ")


async def test_the_one_that_is_believed_is_found_behind_150_nearer_ones_that_are_not(memory, caller, tools, archive):
    for number in range(150):
        nearer = NewFact(subject="user", predicate=f"blood_type_{number}", content="blood type zero negative")
        await writing.store_fact(memory, caller, nearer, REQUEST)
    await archive.connection.execute(
        "update facts set last_confirmed_at = now() - interval '3 years' where tenant_id = $1", tools.tenant
    )
    believed = await tools.fact("had a blood test at the clinic", predicate="visited")
    for mode in MODES:
        assert await tools.ids("memory_search", query="blood type", mode=mode, limit=5) == [believed]
    assert await tools.ids("memory_recall", topic="blood type") == [believed]


async def test_confidence_counts_from_exactly_the_threshold(tools, archive):
    fact = await tools.fact(permanence="permanent")
    await archive.change("fact", fact, confidence="0.2")
    assert await tools.ids("memory_search", query="blue") == [fact]
    assert await tools.ids("memory_search", query="blue", min_confidence=0.2) == [fact]
    assert await tools.ids("memory_search", query="blue", min_confidence=0.2000001) == []
    assert await tools.ids("memory_recall", topic="blue") == [fact]
    await archive.change("fact", fact, confidence="0.1999999")
    assert await tools.ids("memory_search", query="blue") == []
    assert await tools.ids("memory_recall", topic="blue") == []
    assert await tools.ids("memory_search", query="blue", min_confidence=0) == [fact]


async def test_episodes_have_no_confidence_and_pass_every_threshold(tools, memory):
    answer = await tools("memory_store_episode", content="Talked about olives", butler=memory.butler)
    (found,) = await tools("memory_search", query="olives", min_confidence=1.0)
    assert found["id"] == answer["id"]
    assert "confidence" not in found


async def inactive_facts(tools, archive) -> None:
    """Store facts about tea in every inactive state."""
    retracted = await tools.fact("likes tea", predicate="retracted")
    await tools("memory_forget", memory_type="fact", memory_id=retracted)
    expired = await tools.fact("likes tea", predicate="expired")
    await archive.change("fact", expired, validity="'expired'")
    await tools.fact("likes tea", predicate="superseded")
    await tools.fact("likes cocoa", predicate="superseded")
    decayed = await tools.fact("likes tea", predicate="decayed")
    await archive.age("fact", decayed, 900)


async def inactive_others(tools, archive, memory) -> None:
    """Store rules and episodes about tea that are forgotten or expired."""
    await tools("memory_forget", memory_type="rule", memory_id=await tools.rule("Offer tea"))
    await archive.age("rule", await tools.rule("Offer tea first"), 900)
    for change in ("forget", "age"):
        answer = await tools("memory_store_episode", content="Had tea", butler=memory.butler)
        if change == "forget":
            await tools("memory_forget", memory_type="episode", memory_id=answer["id"])
        else:
            await archive.age("episode", answer["id"], 8)


async def test_what_is_not_believed_any_more_is_found_nowhere(tools, archive, memory):
    await inactive_facts(tools, archive)
    await inactive_others(tools, archive, memory)
    for mode in MODES:
        found = await tools("memory_search", query="tea", mode=mode, scope="*")
        assert [each["content"] for each in found] == ([] if mode == "keyword" else ["likes cocoa"])
    assert [each["content"] for each in await tools("memory_recall", topic="tea")] == ["likes cocoa"]
    assert "tea" not in await tools("memory_context", trigger_prompt="tea", butler=memory.butler)


async def test_a_scope_looks_in_itself_and_in_what_is_global(tools):
    """Scenario: Scope filter on facts and rules"""
    stored = {
        scope: {await tools.fact("tea", scope=scope), await tools.rule("Offer tea", scope=scope)}
        for scope in ("global", "health", "travel")
    }
    for scope in ("health", " health\n", "hea\x00lth"):
        found = await tools.ids("memory_search", query="tea", scope=scope)
        assert set(found) == stored["global"] | stored["health"]
        assert set(await tools.ids("memory_recall", topic="tea", scope=scope)) == set(found)
    assert set(await tools.ids("memory_search", query="tea", scope="global")) == stored["global"]


async def test_without_a_scope_a_tool_looks_where_its_butler_may(tools, memory):
    own, other = await tools.fact(scope=memory.butler), await tools.fact(scope="another")
    world = await tools.fact(scope="global")
    for arguments in ({}, {"scope": ""}, {"scope": None}):
        assert set(await tools.ids("memory_search", query="blue", **arguments)) == {own, world}
        assert set(await tools.ids("memory_recall", topic="blue", **arguments)) == {own, world}
    assert set(await tools.ids("memory_search", query="blue", scope="*")) == {own, other, world}
    assert set(await tools.ids("memory_recall", topic="blue", scope="*")) == {own, other, world}


async def test_episodes_are_in_scope_by_their_butler(tools, memory, archive):
    """Scenario: Scope filter on episodes"""
    own = await tools("memory_store_episode", content="Had tea", butler=memory.butler)
    other = await tools("memory_store_episode", content="Had tea", butler=memory.butler)
    await archive.change("episode", other["id"], butler="'health'")
    assert await tools.ids("memory_search", query="tea") == [own["id"]]
    assert await tools.ids("memory_search", query="tea", scope="health") == [other["id"]]
    assert set(await tools.ids("memory_search", query="tea", scope="*")) == {own["id"], other["id"]}


async def test_below_the_tools_every_scope_is_searched_for_the_asking(memory, caller, tools):
    """Scenario: No scope filter returns all"""
    stored = {await tools.fact(scope=scope) for scope in ("global", "health", "travel")}
    found = await reading.search(
        memory,
        caller,
        "blue",
        types=list(MemoryType),
        scope="*",
        mode=SearchMode.HYBRID,
        limit=20,
        min_confidence=0.2,
    )
    assert {str(each["id"]) for each in found} == stored


async def test_another_tenants_memories_are_never_found(tools, stranger, memory):
    """Scenario: Cross-tenant access prevention"""
    await store_kinds(stranger, memory, "secret tea")
    for mode in MODES:
        assert await tools("memory_search", query="secret tea", mode=mode, scope="*", min_confidence=0) == []
    assert await tools("memory_recall", topic="secret tea", scope="*") == []
    assert "tea" not in await tools("memory_context", trigger_prompt="secret tea", butler=memory.butler)


async def test_a_search_gives_as_many_as_are_asked_for(tools, memory):
    for number in range(25):
        await tools.fact("blue", predicate=f"p{number}")
    assert len(await tools("memory_search", query="blue", limit=3)) == 3
    assert len(await tools("memory_search", query="blue")) == memory.config.retrieval.default_limit == 20
    assert len(await tools("memory_recall", topic="blue")) == 10
    assert len(await tools("memory_recall", topic="blue", limit="")) == 10
    assert len(await tools("memory_search", query="blue", limit=100)) == 25


async def test_among_equals_the_newer_comes_first_and_then_the_smaller_id(tools, archive):
    """Scenario: Deterministic ordering with tie-breaking"""
    rules = [await tools.rule("The very same rule") for _ in range(6)]
    old, *others = rules
    await archive.connection.execute(
        "update rules set created_at = now(), last_referenced_at = now(), last_confirmed_at = now()"
        " where tenant_id = $1",
        tools.tenant,
    )
    await archive.change("rule", old, created_at="created_at - interval '1 second'")
    expected = [*sorted(others), old]
    for mode in ("semantic", "keyword"):
        assert await tools.ids("memory_search", query="same rule", mode=mode) == expected
    assert await tools.ids("memory_search", query="same rule") == expected


async def test_recall_scores_facts_and_rules_by_all_four_parts(tools, memory, archive):
    """Scenario: Recall returns composite-scored results
    Scenario: Composite score formula
    """
    stored = await store_kinds(tools, memory, "dietary needs: no gluten")
    scoped = await tools.fact("dietary needs: no sugar", scope="health", importance=9.0)
    await tools.fact("dietary needs: no salt", scope="travel")
    await archive.age("fact", scoped, 14)
    found = await tools("memory_recall", topic="user dietary needs", scope="health")
    assert {each["id"] for each in found} == {stored["fact"], stored["rule"], scoped}
    for each in found:
        fused = rrf_score(each.get("semantic_rank"), each.get("keyword_rank"), 20)
        assert each["relevance"] == pytest.approx(normalized_relevance(fused, 20))
        parts = (each["relevance"], each["importance"] / 10, each["recency"], each["confidence"])
        weights = (0.4, 0.3, 0.2, 0.1)
        assert each["score"] == pytest.approx(sum(w * p for w, p in zip(weights, parts, strict=True)))
    by_id = {each["id"]: each for each in found}
    assert (by_id[scoped]["importance"], by_id[stored["rule"]]["importance"]) == (9.0, 4.0)
    assert by_id[scoped]["recency"] == pytest.approx(recency(14), abs=1e-3) == pytest.approx(0.25, abs=1e-3)
    assert by_id[scoped]["confidence"] == pytest.approx(0.894, abs=1e-3)
    assert by_id[stored["rule"]]["confidence"] == pytest.approx(0.5, abs=1e-4)
    assert found == sorted(found, key=lambda each: -each["score"])


async def test_recall_bumps_exactly_what_it_returns(tools, archive):
    """Scenario: Recall bumps reference counts"""
    for number in range(6):
        await tools.fact(f"tea number {number}", predicate=f"p{number}")
    await tools.rule("Offer tea")
    await archive.connection.execute(
        "update facts set last_referenced_at = now() - interval '1 day' where tenant_id = $1", tools.tenant
    )
    returned = set(await tools.ids("memory_recall", topic="tea", limit=3))
    rows = await archive.rows(
        "select id::text, reference_count, last_referenced_at > now() - interval '1 minute' as lately from facts"
        " where tenant_id = $1 union all select id::text, reference_count, reference_count > 0 from rules"
        " where tenant_id = $1",
        tools.tenant,
    )
    assert {row["id"] for row in rows if row["reference_count"] == 1} == returned
    assert {row["id"] for row in rows if row["lately"]} == returned
    assert sum(row["reference_count"] for row in rows) == 3


async def test_a_search_bumps_nothing(tools, archive, memory):
    await store_kinds(tools, memory, "tea")
    before = await archive.everything(tools.tenant)
    assert len(await tools("memory_search", query="tea")) == 3
    assert await archive.everything(tools.tenant) == before


async def test_reading_one_bumps_it_and_shows_all_of_it(tools, archive, memory):
    """Scenario: Get specific fact
    Scenario: Get memory with reference bump
    """
    stored = await store_kinds(tools, memory, "tea")
    for kind, memory_id in stored.items():
        before = await archive.row(kind, memory_id)
        record = await tools("memory_get", type=kind, id=memory_id)
        again = await tools("memory_get", memory_type=kind, memory_id=f" {memory_id.upper()} ")
        after = await archive.row(kind, memory_id)
        assert (record["reference_count"], again["reference_count"]) == (1, 2)
        assert after["reference_count"] == 2
        assert before["last_referenced_at"] is None or after["last_referenced_at"] > before["last_referenced_at"]
        hidden = {"embedding", "search_vector", "embedding_version_id"}
        shown = {name for name, value in after.items() if value is not None} - hidden
        assert shown <= set(record)
        assert (record["id"], record["lifecycle"]) == (memory_id, "active")


async def test_reading_one_that_is_not_there_says_so(tools, stranger, archive):
    """Scenario: Get nonexistent memory"""
    fact = await stranger.fact()
    before = await archive.row("fact", fact)
    for memory_id in (str(uuid.uuid4()), fact):
        for kind in ("fact", "rule", "episode"):
            message = await tools.refusal("memory_get", type=kind, id=memory_id)
            assert message == f"not_found: no {kind} {memory_id}. Ids come from memory_search or memory_recall."
    assert await archive.row("fact", fact) == before
    message = await tools.refusal("memory_get", type="fact", id="the first one")
    assert message.startswith("invalid_input: memory_id is not an id. Send the id of a memory from memory_search")


async def test_a_blood_type_is_recalled_before_a_recent_headache(tools, archive):
    """Relevance between 0.865 and 1 only once let recency win."""
    blood = await tools.fact("O negative blood type", predicate="blood_type", permanence="permanent")
    await archive.age("fact", blood, 30)
    for number in range(12):
        await tools.fact(f"headache since morning {number}", predicate=f"symptom_{number}")
    assert (await tools.ids("memory_recall", topic="What is my blood type?"))[0] == blood


async def test_an_often_recalled_old_memory_does_not_keep_a_new_one_from_being_seen(tools, archive):
    old = await tools.fact("likes green tea", predicate="a")
    await archive.change("fact", old, reference_count="500")
    new = await tools.fact("likes green tea", predicate="b")
    assert set(await tools.ids("memory_recall", topic="green tea", limit=2)) == {old, new}
    (found,) = [each for each in await tools("memory_recall", topic="green tea") if each["id"] == new]
    assert found["recency"] == pytest.approx(1.0, abs=1e-3)


async def test_a_search_compares_vectors_of_one_version_only(tools, archive):
    current, other = await tools.fact("blue", predicate="a"), await tools.fact("blue", predicate="b")
    version = str(uuid.uuid4())
    await archive.connection.execute(
        "insert into embedding_versions (tenant_id, id, model, version, dimensions) values ($1, $2, 'm', '0', 384)",
        tools.tenant,
        version,
    )
    await archive.change("fact", other, embedding_version_id=f"'{version}'")
    assert await tools.ids("memory_search", query="blue", mode="semantic") == [current]
    assert set(await tools.ids("memory_search", query="blue", mode="keyword")) == {current, other}
    (found,) = [each for each in await tools("memory_search", query="blue") if each["id"] == other]
    assert "similarity" not in found


async def test_a_long_content_is_shortened_in_a_list_and_whole_when_read(tools):
    fact = await tools.fact("tea " * 1000)
    (found,) = await tools("memory_search", query="tea")
    assert (found["truncated"], len(found["content"])) == (True, 1001)
    assert (await tools("memory_get", type="fact", id=fact))["content"] == ("tea " * 1000).strip()


async def test_a_new_memory_is_found_at_once_and_a_week_later_less_recent(tools, archive):
    fact = await tools.fact()
    (now,) = await tools("memory_recall", topic="blue")
    await archive.change("fact", fact, last_referenced_at=f"now() - interval '{timedelta(days=7)}'")
    (later,) = await tools("memory_recall", topic="blue")
    assert later["recency"] == pytest.approx(now["recency"] / 2, abs=1e-3)
