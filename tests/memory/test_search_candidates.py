"""The candidates of a search: statements a call, ties, neighbours, filters before limits, and small tenants."""

from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import uuid4

import pytest

from butlers.modules.memory.domain.model import MemoryType, SearchMode
from butlers.modules.memory.operations import context, reading
from butlers.modules.memory.operations.search import MIN_GRAPH_ROWS, uses_graph
from butlers.modules.memory.runtime import TtlCache
from butlers.modules.memory.store.search import TableEstimate

MAX_STATEMENTS = 4


@asynccontextmanager
async def counted_statements(memory):
    """Yield the statements of a single caller inside the block, without those that begin and end a transaction."""
    statements = []

    def append(query):
        if not query.query.startswith(("BEGIN", "COMMIT")):
            statements.append(query.query)

    async with memory.database._connection() as connection:
        connection.add_query_logger(append)
    yield statements
    async with memory.database._connection() as connection:
        connection.remove_query_logger(append)


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("call", [*SearchMode, "recall", "context"])
async def test_a_search_of_all_types_a_recall_and_a_context_need_four_statements(memory, caller, tools, call, cached):
    await tools.fact("tea in the morning")
    await tools.rule("Offer tea")
    asking = memory if cached else replace(memory, search_statistics=TtlCache(0))

    async def ask():
        if call == "recall":
            types = (MemoryType.FACT, MemoryType.RULE)
            return await reading.recall(asking, caller, "tea", scope=None, limit=10, types=types)
        if call == "context":
            return await context.build_context(asking, caller, "tea", memory.butler, None)
        return await reading.search(
            asking, caller, "tea", types=tuple(MemoryType), scope=None, mode=call, limit=10, min_confidence=0.2
        )

    await ask()
    async with counted_statements(memory) as statements:
        assert await ask()
    assert len(statements) <= MAX_STATEMENTS, statements


async def store_equals(tools) -> tuple[str, str]:
    """Store a near fact and then a far one, with equal ranks for the word `visit`."""
    near = await tools.fact("the dentist", subject="visit", predicate="a")
    return near, await tools.fact("the volcano", subject="visit", predicate="a2")


async def test_of_equal_ranks_the_nearer_comes_first_where_the_search_has_a_vector(tools):
    near, far = await store_equals(tools)
    question = "visit because of toothache"
    found = {each["id"]: each for each in await tools("memory_search", query=question, mode="hybrid")}
    assert found[near]["rank"] == found[far]["rank"]
    assert (found[near]["keyword_rank"], found[far]["keyword_rank"]) == (1, 2)
    assert await tools.ids("memory_search", query=question, mode="keyword") == [far, near], "the newer one"


async def test_a_vector_of_another_version_breaks_no_tie(tools, archive):
    near, far = await store_equals(tools)
    version = uuid4()
    await archive.connection.execute(
        "insert into embedding_versions (tenant_id, id, model, version, dimensions) values ($1, $2, 'm', 'v', 384)",
        tools.tenant,
        version,
    )
    await archive.change("fact", near, embedding_version_id=f"'{version}'")
    found = await tools("memory_search", query="visit because of toothache", mode="hybrid")
    assert [each["keyword_rank"] for each in found if each["id"] in {near, far}] == [1, 2]
    assert {each["id"]: each["keyword_rank"] for each in found} == {far: 1, near: 2}
    assert all("similarity" not in each or each["similarity"] is None for each in found if each["id"] == near)


async def test_rules_that_await_inversion_do_not_take_the_places_of_others(tools, memory, caller, archive):
    for number in range(120):
        rule = await tools.rule(f"Serve tea at {number}")
        await archive.change("rule", rule, metadata="'{\"needs_inversion\": true}'")
    advice = await tools.rule("Ask whether somebody at the table might prefer a hot drink such as coffee or tea")
    assert await tools.ids("memory_recall", topic="Serve tea at 7") == [advice]
    block = await context.build_context(memory, caller, "Serve tea at 7", memory.butler, None)
    assert "hot drink" in block
    assert "Serve tea" not in block


async def store_talk(tools, memory, *contents: str) -> list[str]:
    """Store episodes of one session."""
    session = str(uuid4())
    return [
        (await tools("memory_store_episode", content=each, butler=memory.butler, session_id=session))["id"]
        for each in contents
    ]


async def scores(tools, query: str) -> dict[str, float]:
    found = await tools("memory_search", query=query, mode="blended", types=["episode"])
    return {each["id"]: each["score"] for each in found}


async def test_an_episode_gets_a_share_of_its_better_live_neighbour(tools, memory, archive):
    before, answer, after = await store_talk(
        tools, memory, "Which wine goes with the lamb?", "The Rioja from the cellar.", "Fine, see you at eight."
    )
    (alone,) = await store_talk(tools, memory, "The Rioja from the cellar.")
    query = "wine with the lamb"
    first = await scores(tools, query)
    assert first[answer] == pytest.approx(first[alone] + 0.2 * (first[before] - 0.2 * first[alone]), rel=0.02)
    await tools("memory_forget", memory_type="episode", memory_id=before)
    then = await scores(tools, query)
    assert before not in then
    assert then[answer] - then[alone] < first[answer] - first[alone]
    await archive.change("episode", after, expires_at="now()")
    assert (await scores(tools, query))[answer] == pytest.approx(first[alone], rel=1e-6)


@pytest.mark.parametrize(
    ("size", "rows", "has_graph", "expected"),
    [
        (MIN_GRAPH_ROWS - 1, 3_000, True, False),
        (MIN_GRAPH_ROWS, 3_000, True, True),
        (100_000, 100_000, False, False),
        (300, 200_000, True, False),
        (10_000, 200_000, True, False),
        (100_000, 1_000_000, True, True),
    ],
)
def test_the_graph_is_read_where_that_reads_less_than_every_vector_in_scope(size, rows, has_graph, expected):
    assert uses_graph(size, 100, TableEstimate(rows, has_graph)) is expected


async def test_every_result_says_how_well_it_fits_and_recall_can_leave_weak_ones_out(tools, memory, caller):
    fitting = await tools.fact("is allergic to peanuts", subject="Ada", predicate="allergy")
    await tools.fact("an old green car", subject="Bob", predicate="car")
    for mode in SearchMode:
        found = await tools("memory_search", query="Is Ada allergic to peanuts?", mode=mode)
        assert found[0]["id"] == fitting
        assert found[0]["match"] == "strong"
        assert {each["match"] for each in found[1:]} <= {"weak"}
    foreign = await tools("memory_search", query="How do volcanoes form on the sea floor?", mode="blended")
    assert {each["match"] for each in foreign} == {"weak"}
    retrieval = memory.config.retrieval.model_copy(update={"least_match": "fair"})
    strict = replace(memory, config=memory.config.model_copy(update={"retrieval": retrieval}))
    asked = {"scope": None, "limit": 10, "types": (MemoryType.FACT, MemoryType.RULE)}
    recalled = await reading.recall(strict, caller, "Is Ada allergic to peanuts?", **asked)
    assert [str(each["id"]) for each in recalled] == [fitting]
    assert len(await reading.recall(memory, caller, "Is Ada allergic to peanuts?", **asked)) == 2
    assert await reading.recall(strict, caller, "How do volcanoes form on the sea floor?", **asked) == []
    block = await context.build_context(strict, caller, "Is Ada allergic to peanuts?", memory.butler, None)
    assert "peanuts" in block
    assert "car" not in block
