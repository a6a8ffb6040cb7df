"""Query plans of entity resolution: with 40,000 entities each kind of match uses its index."""
# ruff: noqa: S608 — the functions are constants of the tests

import asyncio
import hashlib
import re

import asyncpg
import pytest

SIZE = 40_000
pytestmark = pytest.mark.timeout(300)  # inserting that many names is slow on a busy machine
GIN = ("entities_by_any_name", "entities_by_ngram", "entities_by_similarity", "entities_aliases", "entities_metadata")
NAMES = """
    insert into entities (tenant_id, canonical_name, entity_type, aliases)
    select case when n % 10 = 0 then 'few' else 'many' end,
           initcap(translate(left(md5(n::text), 10), '0123456789', 'ghijklmnop')), 'person',
           case when n % 20 = 7 then array['a' || n] else '{}' end
      from generate_series(1, $1) n
"""


@pytest.fixture(scope="module")
async def crowded_connection(butler):
    """A connection with 40,000 entities in an open transaction, which no other connection sees."""
    connection = await asyncpg.connect(butler.location.admin_dsn)
    await connection.execute("load 'auto_explain'")
    transaction = connection.transaction()
    await transaction.start()
    definitions = [await connection.fetchval("select pg_get_indexdef($1::text::regclass)", name) for name in GIN]
    # Building an index once is much faster than updating it for each entity.
    for name in GIN:
        await connection.execute(f"drop index {name}")
    await connection.execute(NAMES, SIZE)
    await connection.execute("set local maintenance_work_mem = '256MB'")
    for definition in definitions:
        await connection.execute(definition)
    await connection.execute("analyze entities")
    await connection.execute("select set_config('app.tenant_id', 'many', true)")
    yield connection
    await transaction.rollback()
    await connection.close()


async def explain(connection, call: str, *arguments: object) -> tuple[str, list[asyncpg.Record]]:
    """Return the plan of the statement inside a function, and its rows."""
    notices: list[str] = []

    def collect(_: object, message: asyncpg.PostgresLogMessage) -> None:
        notices.append(str(message.message))

    connection.add_log_listener(collect)
    await connection.execute(
        "set local auto_explain.log_min_duration = 0; set local auto_explain.log_nested_statements = on;"
        " set local auto_explain.log_analyze = on; set local client_min_messages = log"
    )
    try:
        rows = await connection.fetch(call, *arguments)
        await asyncio.sleep(0)
    finally:
        await connection.execute(
            "set local auto_explain.log_min_duration = -1; set local client_min_messages = notice"
        )
        connection.remove_log_listener(collect)
    (inside,) = [text for text in notices if "with query as materialized" in text]
    return inside.partition("Query Parameters")[2], rows


def name_of(number: int) -> str:
    digest = hashlib.md5(str(number).encode(), usedforsecurity=False).hexdigest()[:10]
    return digest.translate(str.maketrans("0123456789", "ghijklmnop"))


@pytest.mark.parametrize(
    ("how", "asked", "index"),
    [
        ("name", name_of(7), "Index Scan using entities_by_normalized_name"),
        ("alias", "A7", "Bitmap Index Scan on entities_by_any_name"),
        ("part", name_of(7)[:7], "Index Scan using entities_by_normalized_name"),
        ("part", name_of(7)[2:9], "Bitmap Index Scan on entities_by_ngram"),
        ("similarity", name_of(7)[:7] + name_of(7)[8:], "Bitmap Index Scan on entities_by_similarity"),
    ],
    ids=["exact", "alias", "prefix", "substring", "fuzzy"],
)
async def test_each_kind_of_match_uses_its_index(crowded_connection, how, asked, index):
    plan_text, rows = await explain(crowded_connection, f"select * from find_entities_by_{how}($1, null, 50)", asked)
    assert [row["canonical_name"].lower() for row in rows] == [name_of(7)]
    assert index in plan_text
    assert "Seq Scan on entities" not in plan_text
    read = [int(float(count)) for count in re.findall(r"Rows Removed by Filter: ([\d.]+)", plan_text)]
    assert sum(read) < 500, plan_text


async def test_a_search_does_not_read_what_is_another_tenants(crowded_connection):
    await crowded_connection.execute("select set_config('app.tenant_id', 'few', true)")
    for how, asked in (("name", name_of(7)), ("alias", "a7"), ("part", name_of(7)[2:9])):
        plan_text, rows = await explain(
            crowded_connection, f"select * from find_entities_by_{how}($1, null, 50)", asked
        )
        assert rows == []
        assert "Rows Removed by Filter" not in plan_text
    await crowded_connection.execute("select set_config('app.tenant_id', 'many', true)")


async def test_a_short_name_that_very_many_have_inside_is_answered_from_the_first_of_them(crowded_connection):
    plan_text, rows = await explain(crowded_connection, "select * from find_entities_by_part($1, null, 50)", "a")
    assert len(rows) == 50
    assert re.search(r"entities_by_ngram.*never executed", plan_text), "those that begin with it are enough"
    names = [row["canonical_name"] for row in rows]
    assert names == sorted(names)
