"""Vector indexes that grow with their tables."""

from dataclasses import replace
from uuid import uuid4

import pytest

from butlers import app, db
from butlers.caller import Caller
from butlers.errors import Forbidden
from butlers.modules.memory.domain.model import MemoryType, Mode
from butlers.modules.memory.embedding import EmbeddingEngine
from butlers.modules.memory.operations import reading, upkeep
from database.stage import connected
from memory.stage import write_butler

MANY = upkeep.OUTGROWN_ROWS + 1
FILL = """
    insert into facts (tenant_id, subject, predicate, content, embedding, embedding_version_id, search_vector)
    select $1, 'thing ' || n, 'is', 'number ' || n, v.embedding, $2, to_tsvector('english', 'thing is number ' || n)
      from generate_series(1, $3) n,
           lateral (
               select array_agg(sin(n * d + d * d))::vector as embedding from generate_series(1, 384) d where n > 0
           ) v
"""


@pytest.fixture
async def own(environment, tmp_path):
    """A butler of this test's own, whose tables may grow."""
    folder = write_butler(tmp_path, f"grows{uuid4().hex[:8]}")
    async with app.opened(app.configuration(folder), environment) as butler:
        yield butler


async def test_a_table_that_has_outgrown_its_index_gets_a_graph_and_searches_go_on(own, engine: EmbeddingEngine):
    memory = replace(own.modules[0].state, embedder=engine)
    caller = Caller(tenant="grown", butler=memory.butler)
    async with memory.writing(caller):
        pass
    before = await upkeep.keep_indexes(memory, caller)
    assert before["rebuilt"] == []
    assert before["indexes"]["facts"]["method"] == "ivfflat"

    async with connected(own.place.admin_dsn) as admin:
        await admin.execute(FILL, caller.tenant, engine.version.id, MANY)
        await admin.execute("analyze facts")
    after = await upkeep.keep_indexes(memory, caller)
    assert after["rebuilt"] == ["facts"]
    assert after["indexes"]["facts"]["method"] == "hnsw"
    assert (await upkeep.keep_indexes(memory, caller))["rebuilt"] == []

    found = await reading.search(
        memory,
        caller,
        "thing number 77",
        types=[MemoryType.FACT],
        scope=None,
        mode=Mode.HYBRID,
        limit=10,
        min_confidence=0.2,
    )
    assert len(found) == 10
    assert "number 77" in {fact["content"] for fact in found}


async def test_an_unfinished_build_is_no_hindrance(own, engine: EmbeddingEngine):
    memory = replace(own.modules[0].state, embedder=engine)
    caller = Caller(tenant="grown", butler=memory.butler)
    async with memory.writing(caller):
        pass
    async with connected(own.place.admin_dsn) as admin:
        await admin.execute(FILL, caller.tenant, engine.version.id, MANY)
        await admin.execute("analyze facts")
        await admin.execute(f'set role "{own.place.owner}"')
        await admin.execute("create index facts_embedding_next on facts (tenant_id)")
    assert (await upkeep.keep_indexes(memory, caller))["rebuilt"] == ["facts"]


async def test_without_the_owner_upkeep_says_what_is_missing(own, engine: EmbeddingEngine):
    alone = await db.connect(own.place.dsn, pool_size=1)
    try:
        memory = replace(own.modules[0].state, database=alone, embedder=engine)
        with pytest.raises(Forbidden, match="BUTLERS_ADMIN_DATABASE_URL"):
            await upkeep.keep_indexes(memory, Caller(tenant="any", butler=memory.butler))
    finally:
        await alone.close()


def test_the_module_schedules_its_upkeep(own):
    (job,) = [job for job in own.modules[0].jobs() if job.name == "index_upkeep"]
    assert job.cron == own.modules[0].state.config.schedule.index_upkeep
