"""Index upkeep: vector indexes are measured against an exact scan and rebuilt while searches go on."""
# ruff: noqa: S608 — the tables and columns are constants of the tests

import asyncio
import json
from collections import Counter
from dataclasses import replace

import pytest

from butlers import db
from butlers.caller import Caller
from butlers.host.metrics import Metrics
from butlers.host.scheduler import Scheduler
from butlers.modules.memory.domain.model import MemoryType, SearchMode
from butlers.modules.memory.operations import index_upkeep, reading
from butlers.modules.memory.operations.index_upkeep import IndexMeasurement
from butlers.modules.memory.operations.search import graphs_to_read
from butlers.modules.memory.runtime import TtlCache
from butlers.modules.memory.store import vector_indexes as store
from butlers.modules.memory.store.vector_indexes import VectorIndex
from memory.scripted_model import separate_butler

TABLES = ("episodes", "facts", "rules")
EXTRA_COLUMNS = {
    "facts": ("subject, predicate, ", "'thing ' || n, 'is', "),
    "rules": ("", ""),
    "episodes": ("butler, ", "'general', "),
}
# Sums of a few vectors give many different ones quickly.
VECTORS = """
    with few as materialized (
        select n, (select array_agg(sin(n * d + d * d))::vector from generate_series(1, 384) d where n > 0) as v
          from generate_series(1, 320) n
    )
    select row_number() over () as n, a.v + b.v as embedding
      from few a, few b where a.n < b.n limit $3
"""


@pytest.fixture(scope="module")
async def shared_butler(environment, engine, tmp_path_factory):
    """A butler for these tests."""
    async with separate_butler(tmp_path_factory.mktemp("indexes"), environment, engine) as opened:
        for table in TABLES:
            # Only the tests set the row estimates of the tables.
            await opened.archive.connection.execute(f"alter table {table} set (autovacuum_enabled = false)")
        yield opened


@pytest.fixture
async def fresh_butler(shared_butler):
    """The same butler, empty and with its original indexes."""
    yield shared_butler
    for table in TABLES:
        await shared_butler.archive.connection.execute(f"delete from {table}")
        await set_row_estimate(shared_butler, table, -1)
    async with shared_butler.memory.database.owner_connection() as owner:
        for table in TABLES:
            await owner.execute(f"drop index if exists {table}_embedding_next, {table}_embedding")
            await owner.execute(
                f"create index {table}_embedding on {table} using ivfflat (embedding vector_cosine_ops)"
                " with (lists = 20)"
            )


async def insert_vectors(at, tenant, table, number, vector="v.embedding"):
    """Insert memories of a tenant, each with a vector."""
    caller = Caller(tenant=tenant, butler=at.memory.butler)
    async with at.memory.write_transaction(caller):
        pass
    columns, values = EXTRA_COLUMNS[table]
    await at.archive.connection.execute(
        f"insert into {table} (tenant_id, {columns}content, embedding, embedding_version_id, search_vector)"
        f" select $1, {values}'number ' || n, {vector}, $2, to_tsvector('english', 'thing number ' || n)"
        f" from ({VECTORS}) v",
        tenant,
        at.memory.embedder.version.id,
        number,
    )
    return caller


async def set_row_estimate(at, table, rows):
    """Set the server's row estimate of a table."""
    await at.archive.connection.execute(
        "update pg_class set reltuples = $2 where oid = $1::text::regclass", table, float(rows)
    )


async def stored_vectors(at):
    return await index_upkeep.maintain_indexes(at.memory, at.butler.caller("nobody"))


async def indexes(at):
    """Return the vector indexes: table, method and whether they are valid."""
    rows = await at.archive.rows(
        "select i.relname as name, am.amname as method, x.indisvalid as valid from pg_index x"
        " join pg_class i on i.oid = x.indexrelid join pg_am am on am.oid = i.relam"
        " where i.relname like '%\\_embedding%' and i.relname not like '%version' order by 1"
    )
    return {row["name"]: (row["method"], row["valid"]) for row in rows}


DECISIONS = {
    "an empty table": (("ivfflat", 0, False), None, "kept: 0 rows are few enough for an exact scan", None),
    "a table at the limit": (
        ("ivfflat", 2_500, False),
        0.1,
        "kept: 2500 rows are few enough for an exact scan",
        None,
    ),
    "lists that were outgrown": (
        ("ivfflat", 2_501, False),
        1.0,
        "rebuilt as HNSW: 2501 rows are too many for ivfflat",
        False,
    ),
    "a graph that finds enough": (("hnsw", 50_000, False), 0.9, "kept: its recall is high enough", None),
    "a graph that finds too little": (
        ("hnsw", 50_000, False),
        0.89,
        "rebuilt with more edges: it found 89% of the nearest",
        True,
    ),
    "a graph nobody could measure": (("hnsw", 50_000, False), None, "kept: its recall is high enough", None),
}


@pytest.mark.parametrize("case", DECISIONS)
def test_what_is_done_about_an_index_follows_from_its_table_and_what_it_finds(case):
    (method, rows, fine), recall, decision, rebuild_fine = DECISIONS[case]
    measured = None if recall is None else IndexMeasurement(recall, 1.0, 2.0)
    assert index_upkeep._decide(VectorIndex("facts", method, rows, 0, fine), measured) == (decision, rebuild_fine)


def test_a_fine_index_with_low_recall_is_not_reported_as_high_enough():
    index = VectorIndex("facts", "hnsw", 50_000, 0, is_dense=True)
    decision, fine = index_upkeep._decide(index, IndexMeasurement(0.1, 1.0, 2.0))
    assert fine is None, "there is nothing finer"
    assert "10%" in decision


async def test_nothing_happens_on_empty_tables(fresh_butler):
    for table in TABLES:
        await set_row_estimate(fresh_butler, table, -1)
    before = await indexes(fresh_butler)
    done = await stored_vectors(fresh_butler)
    assert done["rebuilt"] == []
    assert sorted(done["indexes"]) == list(TABLES)
    for report in done["indexes"].values():
        assert report["decision"] == "kept: 0 rows are few enough for an exact scan"
        assert (report["method"], report["rows"]) == ("ivfflat", 0)
        assert not {"recall", "index_ms", "exact_ms"} & set(report)
        assert report["before"] == {name: report[name] for name in ("method", "rows", "bytes")}
    assert await indexes(fresh_butler) == before


@pytest.mark.parametrize("table", TABLES)
async def test_a_small_table_is_measured_and_kept(fresh_butler, table):
    await insert_vectors(fresh_butler, "small", table, 60)
    await set_row_estimate(fresh_butler, table, 60)
    done = await stored_vectors(fresh_butler)
    report = done["indexes"][table]
    assert (report["decision"], report["method"]) == ("kept: 60 rows are few enough for an exact scan", "ivfflat")
    assert report["recall"] == 1.0, "all lists are looked at"
    assert min(report["index_ms"], report["exact_ms"], report["bytes"]) > 0
    assert report["before"] == {name: value for name, value in report.items() if name not in {"before", "decision"}}
    assert json.loads(json.dumps(done)) == done, "it goes into the job's record"


async def test_memories_that_say_the_same_do_not_make_an_index_look_bad(fresh_butler):
    """Any ten of hundreds of equally near memories are the nearest ten."""
    same = "(select array_agg(sin(d))::vector from generate_series(1, 384) d)"
    await insert_vectors(fresh_butler, "same", "episodes", 400, same)
    async with fresh_butler.memory.database.owner_connection() as owner:
        await store.rebuild_as_hnsw(owner, "episodes")
    await set_row_estimate(fresh_butler, "episodes", 20_000)
    done = await stored_vectors(fresh_butler)
    assert (done["rebuilt"], done["indexes"]["episodes"]["recall"]) == ([], 1.0)


async def test_a_table_that_is_outgrown_gets_a_graph_and_a_graph_a_finer_one(fresh_butler):
    await insert_vectors(fresh_butler, "rules", "rules", 200)
    await set_row_estimate(fresh_butler, "rules", 10_001)
    done = await stored_vectors(fresh_butler)
    report = done["indexes"]["rules"]
    assert done["rebuilt"] == ["rules"]
    assert report["decision"] == "rebuilt as HNSW: 10001 rows are too many for ivfflat"
    assert (report["before"]["method"], report["method"]) == ("ivfflat", "hnsw")
    assert (report["before"]["recall"], report["recall"]) == (1.0, 1.0)
    assert {"recall", "index_ms", "exact_ms", "rows", "bytes", "method"} == set(report["before"])
    assert done["indexes"]["facts"]["method"] == "ivfflat", "the others are left alone"
    async with fresh_butler.memory.database.owner_connection() as owner:
        await store.rebuild_as_hnsw(owner, "rules", dense=True)
        (fine,) = [index for index in await store.list_vector_indexes(owner) if index.table == "rules"]
        assert (fine.method, fine.is_dense) == ("hnsw", True)
    await set_row_estimate(fresh_butler, "rules", 50_000)
    again = await stored_vectors(fresh_butler)
    assert (again["rebuilt"], again["indexes"]["rules"]["recall"]) == ([], 1.0)
    assert not any("_next" in name for name in await indexes(fresh_butler))


async def test_an_unfinished_build_is_no_hindrance(fresh_butler):
    connection = fresh_butler.archive.connection
    async with fresh_butler.memory.database.owner_connection() as owner:
        await owner.execute("create index facts_embedding_next on facts (tenant_id)")
    await connection.execute(
        "update pg_index set indisvalid = false where indexrelid = 'facts_embedding_next'::regclass"
    )
    await set_row_estimate(fresh_butler, "facts", 20_000)
    assert (await stored_vectors(fresh_butler))["rebuilt"] == ["facts"]
    assert (await indexes(fresh_butler))["facts_embedding"] == ("hnsw", True)
    assert "facts_embedding_next" not in await indexes(fresh_butler)


@pytest.mark.parametrize("ended", ["after the old one was dropped", "while the old one was dropped"])
async def test_an_upkeep_that_ended_before_the_new_index_had_its_name_is_finished_by_the_next(fresh_butler, ended):
    async with fresh_butler.memory.database.owner_connection() as owner:
        await owner.execute(
            "create index episodes_embedding_next on episodes"
            " using hnsw ((embedding::halfvec(384)) halfvec_cosine_ops)"
        )
        if ended == "after the old one was dropped":
            await owner.execute("drop index episodes_embedding")
    await fresh_butler.archive.connection.execute(
        "update pg_index set indisvalid = false where indexrelid = to_regclass('episodes_embedding')"
    )
    done = await stored_vectors(fresh_butler)
    assert "episodes" in done["indexes"], "it is looked after as before"
    assert {name: state for name, state in (await indexes(fresh_butler)).items() if name.startswith("episodes")} == {
        "episodes_embedding": ("hnsw", True)
    }


@pytest.mark.slow
async def test_a_table_of_thousands_gets_a_graph_while_searches_go_on(environment, engine, tmp_path):
    async with separate_butler(tmp_path, environment, engine) as fresh_butler:
        caller = await insert_vectors(fresh_butler, "grown", "facts", index_upkeep.MAX_IVFFLAT_ROWS + 1)
        await fresh_butler.archive.connection.execute("analyze facts")

        async def search_all():
            shown = await reading.search(
                fresh_butler.memory,
                caller,
                "thing number 77",
                types=[MemoryType.FACT],
                scope="*",
                mode=SearchMode.HYBRID,
                limit=10,
                min_confidence=0.2,
            )
            return {fact["content"] for fact in shown}

        running = asyncio.create_task(stored_vectors(fresh_butler))
        answers = [await search_all()]
        while not running.done():
            answers.append(await search_all())
            await asyncio.wait({running}, timeout=0.3)
        done = await running
        answers.append(await search_all())
        assert all("number 77" in each and len(each) == 10 for each in answers)
        assert done["rebuilt"] == ["facts"]
        report = done["indexes"]["facts"]
        assert (report["before"]["method"], report["method"]) == ("ivfflat", "hnsw")
        assert report["rows"] == pytest.approx(index_upkeep.MAX_IVFFLAT_ROWS + 1, rel=0.05)
        assert report["recall"] >= index_upkeep.MIN_RECALL
        assert min(report["index_ms"], report["exact_ms"]) > 0
        assert (await stored_vectors(fresh_butler))["rebuilt"] == []

        assert await uses_graph(fresh_butler, caller), "the graph holds nothing else"
        assert "number 77" in await search_all()
        await set_row_estimate(fresh_butler, "facts", 1_000_000)
        assert not await uses_graph(fresh_butler, caller), "most of the graph is others'"


async def uses_graph(at, caller):
    """Return whether a search would read the HNSW index."""
    memory = replace(at.memory, search_statistics=TtlCache(0))
    async with memory.read_transaction(caller) as tx:
        return MemoryType.FACT in await graphs_to_read(memory, tx, caller, "*", 10)


@pytest.mark.parametrize("table", TABLES)
async def test_words_are_looked_up_by_their_index_before_the_server_knows_anything_of_a_table(fresh_butler, table):
    await insert_vectors(fresh_butler, "new", table, 500)
    connection = fresh_butler.archive.connection
    await connection.execute("delete from pg_statistic where starelid = $1::text::regclass", table)
    async with connection.transaction():
        await connection.execute("select set_config('app.tenant_id', 'new', true)")
        before = await scan_counts(fresh_butler, table)
        rows = await connection.fetch(
            "select * from keyword_matches($1, null, false, 0, 10, 'english', 'number 77', '{number,77}', null, null,"
            " null, 5000)",
            table[:-1],
        )
        after = await scan_counts(fresh_butler, table)
    assert len(rows) == 500, "all that tie with the tenth"
    assert after - before == Counter([f"{table}_terms"]), "by no other index, and not by reading everything"


async def scan_counts(at, table):
    """Return how often this connection scanned each index of a table, and the whole table."""
    rows = await at.archive.rows(
        "select oid::regclass::text as name, pg_stat_get_xact_numscans(oid) as times from pg_class"
        " where oid = $1::text::regclass"
        " or oid in (select indexrelid from pg_index where indrelid = $1::text::regclass)",
        table,
    )
    return Counter({row["name"]: row["times"] for row in rows})


async def test_the_record_of_the_job_has_what_was_measured(fresh_butler):
    module = fresh_butler.butler.modules[0]
    (job,) = [job for job in module.jobs() if job.name == "index_upkeep"]
    assert job.cron == module.state.config.schedule.index_upkeep
    done = await Scheduler(fresh_butler.butler.database, fresh_butler.butler.caller(), [job], Metrics()).run(job)
    (run,) = await fresh_butler.archive.rows("select status, result::text from job_runs where job = 'index_upkeep'")
    assert (run["status"], json.loads(run["result"])) == ("succeeded", done)
    assert set(done["indexes"]) == set(TABLES)


async def test_without_the_owner_upkeep_changes_nothing_and_says_what_waits_for_it(fresh_butler):
    await set_row_estimate(fresh_butler, "facts", index_upkeep.MAX_IVFFLAT_ROWS + 1)
    alone = await db.connect(fresh_butler.butler.location.dsn, pool_size=1)
    try:
        memory = replace(fresh_butler.memory, database=alone)
        result = await index_upkeep.maintain_indexes(memory, fresh_butler.butler.caller())
    finally:
        await alone.close()
    assert (result["rebuilt"], result["outgrown"]) == ([], ["facts"])
    assert result["indexes"]["facts"]["method"] == "ivfflat"
    assert result["indexes"]["facts"]["decision"] == "outgrown: the owner has to rebuild it"
    assert result["indexes"]["rules"]["decision"] == "kept"
