"""Vector indexes are measured against comparing everything, and grow with their tables while searches go on."""
# ruff: noqa: S608 — the tables and columns are the tests' own words

import asyncio
import json
from collections import Counter
from dataclasses import replace

import pytest

from butlers import db
from butlers.caller import Caller
from butlers.errors import Forbidden
from butlers.host.metrics import Metrics
from butlers.host.scheduler import Scheduler
from butlers.modules.memory.domain.model import MemoryType, SearchMode
from butlers.modules.memory.operations import index_upkeep, reading
from butlers.modules.memory.operations.index_upkeep import IndexMeasurement
from butlers.modules.memory.operations.search import Search
from butlers.modules.memory.runtime import TtlCache
from butlers.modules.memory.store import vector_indexes as store
from butlers.modules.memory.store.vector_indexes import VectorIndex
from memory.thinking import apart

TABLES = ("episodes", "facts", "rules")
MORE = {
    "facts": ("subject, predicate, ", "'thing ' || n, 'is', "),
    "rules": ("", ""),
    "episodes": ("butler, ", "'general', "),
}
# Sums of few vectors are many different ones, and made in a moment.
VECTORS = """
    with few as materialized (
        select n, (select array_agg(sin(n * d + d * d))::vector from generate_series(1, 384) d where n > 0) as v
          from generate_series(1, 320) n
    )
    select row_number() over () as n, a.v + b.v as embedding
      from few a, few b where a.n < b.n limit $3
"""


@pytest.fixture(scope="module")
async def shared(environment, engine, tmp_path_factory):
    """A butler of these tests' own."""
    async with apart(tmp_path_factory.mktemp("indexes"), environment, engine) as opened:
        for table in TABLES:
            # What the server thinks of a table's size is set by the tests alone.
            await opened.archive.connection.execute(f"alter table {table} set (autovacuum_enabled = false)")
        yield opened


@pytest.fixture
async def own(shared):
    """The same, as it is in the beginning: empty, with the indexes it was made with."""
    yield shared
    for table in TABLES:
        await shared.archive.connection.execute(f"delete from {table}")
        await thought_to_have(shared, table, -1)
    async with shared.memory.database.owner_connection() as owner:
        for table in TABLES:
            await owner.execute(f"drop index if exists {table}_embedding_next, {table}_embedding")
            await owner.execute(
                f"create index {table}_embedding on {table} using ivfflat (embedding vector_cosine_ops)"
                " with (lists = 20)"
            )


async def fill(at, tenant, table, number, vector="v.embedding"):
    """That many memories of a tenant with a vector each."""
    caller = Caller(tenant=tenant, butler=at.memory.butler)
    async with at.memory.writing(caller):
        pass
    columns, values = MORE[table]
    await at.archive.connection.execute(
        f"insert into {table} (tenant_id, {columns}content, embedding, embedding_version_id, search_vector)"
        f" select $1, {values}'number ' || n, {vector}, $2, to_tsvector('english', 'thing number ' || n)"
        f" from ({VECTORS}) v",
        tenant,
        at.memory.embedder.version.id,
        number,
    )
    return caller


async def thought_to_have(at, table, rows):
    """Let the server think that a table has so many rows."""
    await at.archive.connection.execute(
        "update pg_class set reltuples = $2 where oid = $1::text::regclass", table, float(rows)
    )


async def kept(at):
    return await index_upkeep.maintain_indexes(at.memory, at.butler.caller("nobody"))


async def indexes(at):
    """The vector indexes there are: their tables, methods, and whether they can be used."""
    rows = await at.archive.rows(
        "select i.relname as name, am.amname as method, x.indisvalid as valid from pg_index x"
        " join pg_class i on i.oid = x.indexrelid join pg_am am on am.oid = i.relam"
        " where i.relname like '%\\_embedding%' and i.relname not like '%version' order by 1"
    )
    return {row["name"]: (row["method"], row["valid"]) for row in rows}


JUDGED = {
    "an empty table": (("ivfflat", 0, False), None, "kept: 0 rows are few enough to compare with each", None),
    "a table at the limit": (
        ("ivfflat", 5_000, False),
        0.1,
        "kept: 5000 rows are few enough to compare with each",
        None,
    ),
    "lists that were outgrown": (
        ("ivfflat", 5_001, False),
        1.0,
        "rebuilt as a graph: 5001 rows are more than its lists were made for",
        False,
    ),
    "a graph that finds enough": (("hnsw", 50_000, False), 0.9, "kept: it finds enough", None),
    "a graph that finds too little": (
        ("hnsw", 50_000, False),
        0.89,
        "rebuilt with more edges: it found 89% of the nearest",
        True,
    ),
    "a graph nobody could measure": (("hnsw", 50_000, False), None, "kept: it finds enough", None),
}


@pytest.mark.parametrize("case", JUDGED)
def test_what_is_done_about_an_index_follows_from_its_table_and_what_it_finds(case):
    (method, rows, fine), recall, decision, finely = JUDGED[case]
    measured = None if recall is None else IndexMeasurement(recall, 1.0, 2.0)
    assert index_upkeep._decide(VectorIndex("facts", method, rows, 0, fine), measured) == (decision, finely)


def test_a_fine_graph_that_still_finds_too_little_is_not_said_to_find_enough():
    index = VectorIndex("facts", "hnsw", 50_000, 0, fine=True)
    decision, finely = index_upkeep._decide(index, IndexMeasurement(0.1, 1.0, 2.0))
    assert finely is None, "there is nothing finer"
    assert "10%" in decision


async def test_nothing_happens_on_empty_tables(own):
    for table in TABLES:
        await thought_to_have(own, table, -1)
    before = await indexes(own)
    done = await kept(own)
    assert done["rebuilt"] == []
    assert sorted(done["indexes"]) == list(TABLES)
    for told in done["indexes"].values():
        assert told["decision"] == "kept: 0 rows are few enough to compare with each"
        assert (told["method"], told["rows"]) == ("ivfflat", 0)
        assert not {"recall", "index_ms", "exact_ms"} & set(told)
        assert told["before"] == {name: told[name] for name in ("method", "rows", "bytes")}
    assert await indexes(own) == before


@pytest.mark.parametrize("table", TABLES)
async def test_a_small_table_is_measured_and_kept(own, table):
    await fill(own, "small", table, 60)
    await thought_to_have(own, table, 60)
    done = await kept(own)
    told = done["indexes"][table]
    assert (told["decision"], told["method"]) == ("kept: 60 rows are few enough to compare with each", "ivfflat")
    assert told["recall"] == 1.0, "all lists are looked at"
    assert min(told["index_ms"], told["exact_ms"], told["bytes"]) > 0
    assert told["before"] == {name: value for name, value in told.items() if name not in {"before", "decision"}}
    assert json.loads(json.dumps(done)) == done, "it goes into the job's record"


async def test_memories_that_say_the_same_do_not_make_an_index_look_bad(own):
    """Of hundreds that are equally near any ten are the nearest ten."""
    same = "(select array_agg(sin(d))::vector from generate_series(1, 384) d)"
    await fill(own, "same", "episodes", 400, same)
    async with own.memory.database.owner_connection() as owner:
        await store.rebuild_as_hnsw(owner, "episodes")
    await thought_to_have(own, "episodes", 20_000)
    done = await kept(own)
    assert (done["rebuilt"], done["indexes"]["episodes"]["recall"]) == ([], 1.0)


async def test_a_table_that_is_outgrown_gets_a_graph_and_a_graph_a_finer_one(own):
    await fill(own, "rules", "rules", 200)
    await thought_to_have(own, "rules", 10_001)
    done = await kept(own)
    told = done["indexes"]["rules"]
    assert done["rebuilt"] == ["rules"]
    assert told["decision"] == "rebuilt as a graph: 10001 rows are more than its lists were made for"
    assert (told["before"]["method"], told["method"]) == ("ivfflat", "hnsw")
    assert (told["before"]["recall"], told["recall"]) == (1.0, 1.0)
    assert {"recall", "index_ms", "exact_ms", "rows", "bytes", "method"} == set(told["before"])
    assert done["indexes"]["facts"]["method"] == "ivfflat", "the others are left alone"
    async with own.memory.database.owner_connection() as owner:
        await store.rebuild_as_hnsw(owner, "rules", finely=True)
        (fine,) = [index for index in await store.list_vector_indexes(owner) if index.table == "rules"]
        assert (fine.method, fine.is_dense) == ("hnsw", True)
    await thought_to_have(own, "rules", 50_000)
    again = await kept(own)
    assert (again["rebuilt"], again["indexes"]["rules"]["recall"]) == ([], 1.0)
    assert not any("_next" in name for name in await indexes(own))


async def test_an_unfinished_build_is_no_hindrance(own):
    connection = own.archive.connection
    async with own.memory.database.owner_connection() as owner:
        await owner.execute("create index facts_embedding_next on facts (tenant_id)")
    await connection.execute(
        "update pg_index set indisvalid = false where indexrelid = 'facts_embedding_next'::regclass"
    )
    await thought_to_have(own, "facts", 20_000)
    assert (await kept(own))["rebuilt"] == ["facts"]
    assert (await indexes(own))["facts_embedding"] == ("hnsw", True)
    assert "facts_embedding_next" not in await indexes(own)


@pytest.mark.parametrize("ended", ["after the old one was dropped", "while the old one was dropped"])
async def test_an_upkeep_that_ended_before_the_new_index_had_its_name_is_finished_by_the_next(own, ended):
    async with own.memory.database.owner_connection() as owner:
        await owner.execute(
            "create index episodes_embedding_next on episodes using hnsw (embedding vector_cosine_ops)"
        )
        if ended == "after the old one was dropped":
            await owner.execute("drop index episodes_embedding")
    await own.archive.connection.execute(
        "update pg_index set indisvalid = false where indexrelid = to_regclass('episodes_embedding')"
    )
    done = await kept(own)
    assert "episodes" in done["indexes"], "it is looked after as before"
    assert {name: state for name, state in (await indexes(own)).items() if name.startswith("episodes")} == {
        "episodes_embedding": ("hnsw", True)
    }


@pytest.mark.slow
async def test_a_table_of_thousands_gets_a_graph_while_searches_go_on(environment, engine, tmp_path):
    async with apart(tmp_path, environment, engine) as own:
        caller = await fill(own, "grown", "facts", index_upkeep.MAX_IVFFLAT_ROWS + 1)
        await own.archive.connection.execute("analyze facts")

        async def found():
            shown = await reading.search(
                own.memory,
                caller,
                "thing number 77",
                types=[MemoryType.FACT],
                scope="*",
                mode=SearchMode.HYBRID,
                limit=10,
                min_confidence=0.2,
            )
            return {fact["content"] for fact in shown}

        running = asyncio.create_task(kept(own))
        answers = [await found()]
        while not running.done():
            answers.append(await found())
            await asyncio.wait({running}, timeout=0.3)
        done = await running
        answers.append(await found())
        assert all("number 77" in each and len(each) == 10 for each in answers)
        assert done["rebuilt"] == ["facts"]
        told = done["indexes"]["facts"]
        assert (told["before"]["method"], told["method"]) == ("ivfflat", "hnsw")
        assert told["rows"] == pytest.approx(index_upkeep.MAX_IVFFLAT_ROWS + 1, rel=0.05)
        assert told["recall"] >= index_upkeep.MIN_RECALL
        assert min(told["index_ms"], told["exact_ms"]) > 0
        assert (await kept(own))["rebuilt"] == []

        assert not await is_compared_with_each(own, caller), "the graph holds nothing else"
        assert "number 77" in await found()
        await fill(own, "newcomers", "facts", index_upkeep.MAX_IVFFLAT_ROWS + 10)
        await own.archive.connection.execute("analyze facts")
        assert await is_compared_with_each(own, caller), "most of the graph is others'"


async def is_compared_with_each(at, caller):
    """Whether a search looks at every vector, by what is known now."""
    memory = replace(at.memory, sizes=TtlCache(0), graphs=TtlCache(0))
    async with memory.reading(caller) as tx:
        look = Search(memory, tx, caller, "tea", [0.0], SearchMode.SEMANTIC, "*", 0.2, 10)
        return (await look.way_to(MemoryType.FACT)).is_exact


@pytest.mark.parametrize("table", TABLES)
async def test_words_are_looked_up_by_their_index_before_the_server_knows_anything_of_a_table(own, table):
    await fill(own, "new", table, 500)
    connection = own.archive.connection
    await connection.execute("delete from pg_statistic where starelid = $1::text::regclass", table)
    async with connection.transaction():
        await connection.execute("select set_config('app.tenant_id', 'new', true)")
        before = await looks(own, table)
        found = await connection.fetch(f"select * from {table[:-1]}_words('number 77', null, null, 0, 10, 5000)")
        after = await looks(own, table)
    assert len(found) == 10
    assert after - before == Counter([f"{table}_words"]), "by no other index, and not by reading everything"


async def looks(at, table):
    """How often each index of a table, and the table from end to end, was looked through over this connection."""
    rows = await at.archive.rows(
        "select oid::regclass::text as name, pg_stat_get_xact_numscans(oid) as times from pg_class"
        " where oid = $1::text::regclass"
        " or oid in (select indexrelid from pg_index where indrelid = $1::text::regclass)",
        table,
    )
    return Counter({row["name"]: row["times"] for row in rows})


async def test_the_record_of_the_job_has_what_was_measured(own):
    module = own.butler.modules[0]
    (job,) = [job for job in module.jobs() if job.name == "index_upkeep"]
    assert job.cron == module.state.config.schedule.index_upkeep
    done = await Scheduler(own.butler.database, own.butler.caller(), [job], Metrics()).run(job)
    (run,) = await own.archive.rows("select status, result::text from job_runs where job = 'index_upkeep'")
    assert (run["status"], json.loads(run["result"])) == ("succeeded", done)
    assert set(done["indexes"]) == set(TABLES)


async def test_without_the_owner_upkeep_says_what_is_missing(own):
    alone = await db.connect(own.butler.place.dsn, pool_size=1)
    try:
        with pytest.raises(Forbidden, match="BUTLERS_ADMIN_DATABASE_URL"):
            await index_upkeep.maintain_indexes(replace(own.memory, database=alone), own.butler.caller())
    finally:
        await alone.close()
