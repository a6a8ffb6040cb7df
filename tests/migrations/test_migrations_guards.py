"""What the database itself refuses, keeps apart and puts right."""

# ruff: noqa: S608  the tables and columns in these statements stand in this file

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from .conftest import APP, OWNER, connected, tenant

FACT = "insert into facts (tenant_id, subject, predicate, content) values ($1, $2, 'likes', 'tea') returning id"
EPISODE = "insert into episodes (tenant_id, butler, content) values ($1, 'general', 'saw a heron') returning id"
ENTITY = "insert into entities (tenant_id, canonical_name, entity_type) values ($1, $2, 'person') returning id"
EVENT = "insert into memory_events (tenant_id, event_type) values ($1, 'fact_created') returning id"
LINK = "insert into memory_links values ($1, 'fact', $2, 'episode', $3, 'derived_from')"
RULE = "insert into rules (tenant_id, content) values ($1, 'knock first') returning id"


@pytest.fixture
async def app(schema: asyncpg.Connection[Any]) -> AsyncIterator[asyncpg.Connection[Any]]:
    """The application inside the tenant `a`; whatever the test writes is rolled back."""
    transaction = schema.transaction()
    await transaction.start()
    await schema.execute(f'set local role "{APP}"')
    await schema.execute("select set_config('app.tenant_id', 'a', true)")
    yield schema
    await transaction.rollback()


async def _switch(app: asyncpg.Connection[Any], name: str) -> None:
    await app.execute("select set_config('app.tenant_id', $1, true)", name)


# constraint | table | column | value as SQL
REFUSED = """
    facts_importance_range              | facts    | importance           | 'NaN'
    facts_importance_range              | facts    | importance           | 'infinity'
    facts_importance_range              | facts    | importance           | 10.01
    facts_importance_range              | facts    | importance           | -0.01
    facts_confidence_range              | facts    | confidence           | 'NaN'
    facts_confidence_range              | facts    | confidence           | 1.01
    facts_decay_rate_range              | facts    | decay_rate           | 'NaN'
    facts_decay_rate_range              | facts    | decay_rate           | 'infinity'
    facts_decay_rate_range              | facts    | decay_rate           | -0.1
    facts_subject_not_blank             | facts    | subject              | ' '
    facts_predicate_not_blank           | facts    | predicate            | E'\\t\\n'
    facts_content_not_blank             | facts    | content              | ''
    facts_scope_not_blank               | facts    | scope                | ''
    facts_validity_known                | facts    | validity             | 'gone'
    facts_permanence_known              | facts    | permanence           | 'forever'
    facts_reference_count_counted       | facts    | reference_count      | -1
    facts_tags_array                    | facts    | tags                 | '{}'
    facts_metadata_object               | facts    | metadata             | '[]'
    facts_metadata_object               | facts    | metadata             | 'null'
    facts_embedding_has_direction       | facts    | embedding            | array_fill(0, array[384])
    episodes_importance_range           | episodes | importance           | 'NaN'
    episodes_butler_not_blank           | episodes | butler               | ' '
    episodes_content_not_blank          | episodes | content              | ' '
    episodes_consolidation_status_known | episodes | consolidation_status | 'done'
    episodes_consolidation_attempts_counted | episodes | consolidation_attempts | -1
    episodes_metadata_object            | episodes | metadata             | '[]'
    episodes_embedding_has_direction    | episodes | embedding            | array_fill(0, array[384])
    rules_maturity_known                | rules    | maturity             | 'ripe'
    rules_confidence_range              | rules    | confidence           | 'NaN'
    rules_decay_rate_range              | rules    | decay_rate           | 'NaN'
    rules_effectiveness_score_range     | rules    | effectiveness_score  | 1.5
    rules_permanence_known              | rules    | permanence           | 'forever'
    rules_content_not_blank             | rules    | content              | ' '
    rules_applied_count_counted         | rules    | applied_count        | -1
    rules_tags_array                    | rules    | tags                 | '"x"'
    entities_canonical_name_not_blank   | entities | canonical_name       | ' '
    entities_entity_type_known          | entities | entity_type          | 'ghost'
    entities_metadata_object            | entities | metadata             | '[]'
"""
CASES = [[cell.strip() for cell in line.split("|")] for line in REFUSED.strip().splitlines()]


@pytest.mark.parametrize(("constraint", "table", "column", "value"), CASES)
async def test_a_value_that_makes_no_sense_is_refused(
    app: asyncpg.Connection[Any], constraint: str, table: str, column: str, value: str
) -> None:
    await app.execute(EPISODE, "a")
    await app.execute(FACT, "a", "user")
    await app.execute(RULE, "a")
    await app.execute(ENTITY, "a", "Ada")
    with pytest.raises(asyncpg.CheckViolationError) as refused:
        await app.execute(f"update {table} set {column} = {value}")
    assert refused.value.constraint_name == constraint


@pytest.mark.parametrize("vector", ["[1,2]", "[" + ",".join(["NaN"] * 384) + "]", "[]"])
async def test_a_vector_of_the_wrong_length_or_without_numbers_is_refused(
    app: asyncpg.Connection[Any], vector: str
) -> None:
    await app.execute(FACT, "a", "user")
    with pytest.raises(asyncpg.DataError):
        await app.execute(f"update facts set embedding = '{vector}'::vector")


async def test_links_applications_and_keys_know_their_words(app: asyncpg.Connection[Any]) -> None:
    rule = await app.fetchval(RULE, "a")
    link = "insert into memory_links values ('a', 'fact', gen_random_uuid(), {}, gen_random_uuid(), {})"
    key = "insert into idempotency_keys (tenant_id, key, tool, arguments_hash) values ('a', {}, 'tool', '')"
    session = "insert into sessions (tenant_id, butler, trigger_source, prompt, runtime, status) values {}"
    refused = (
        link.format("'entity'", "'supports'"),
        link.format("'rule'", "'likes'"),
        key.format("''"),
        key.format("repeat('k', 201)"),
        session.format("('a', 'general', 'trigger', 'hi', 'claude', 'napping')"),
        f"insert into rule_applications (tenant_id, rule_id, outcome) values ('a', '{rule}', 'so-so')",
        "insert into job_runs (tenant_id, job, status) values ('a', 'sweep', 'napping')",
    )
    for statement in refused:
        with pytest.raises(asyncpg.CheckViolationError):
            async with app.transaction():
                await app.execute(statement)


async def test_an_episode_with_nothing_but_what_it_needs_gets_the_defaults(
    app: asyncpg.Connection[Any],
) -> None:
    await app.execute(EPISODE, "a")
    row = await app.fetchrow("select *, expires_at - created_at = interval '7 days' as week from episodes")
    assert row is not None
    expected = {
        "importance": 5.0, "consolidation_status": "pending", "consolidated": False,
        "consolidation_attempts": 0, "reference_count": 0, "week": True, "last_referenced_at": None,
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected


async def test_the_second_name_of_a_thing_follows_the_first_and_can_not_be_written(
    app: asyncpg.Connection[Any],
) -> None:
    await app.execute(EPISODE, "a")
    await app.execute(
        "update episodes set consolidation_status = 'consolidated', consolidation_attempts = 3,"
        " last_consolidation_error = 'no JSON'"
    )
    row = await app.fetchrow("select consolidated, retry_count, last_error from episodes")
    assert row is not None
    assert tuple(row) == (True, 3, "no JSON")
    await app.execute(EVENT, "a")
    assert await app.fetchval("select created_at = occurred_at from memory_events")
    for assignment in ("consolidated = false", "retry_count = 0", "last_error = null"):
        with pytest.raises(asyncpg.GeneratedAlwaysError):
            async with app.transaction():
                await app.execute(f"update episodes set {assignment}")


@pytest.mark.parametrize("how", ["insert", "update"])
async def test_a_fading_fact_is_stored_as_active_with_a_status(app: asyncpg.Connection[Any], how: str) -> None:
    if how == "insert":
        await app.execute(
            "insert into facts (tenant_id, subject, predicate, content, validity, metadata)"
            """ values ('a', 'user', 'likes', 'tea', 'fading', '{"kept": 1}')"""
        )
    else:
        await app.execute(FACT, "a", "user")
        await app.execute("""update facts set metadata = '{"kept": 1}'""")
        await app.execute("update facts set validity = 'fading'")
    row = await app.fetchrow("select validity, metadata from facts")
    assert row is not None
    assert row["validity"] == "active"
    assert json.loads(row["metadata"]) == {"kept": 1, "status": "fading"}


async def test_a_forgotten_fact_is_stored_as_retracted(app: asyncpg.Connection[Any]) -> None:
    await app.execute(FACT, "a", "user")
    await app.execute("update facts set validity = 'forgotten'")
    assert tuple(await app.fetch("select validity, metadata from facts")) == (("retracted", "{}"),)


async def test_one_fact_is_active_for_a_subject_and_one_for_an_entity(app: asyncpg.Connection[Any]) -> None:
    keyed = (
        "insert into facts (tenant_id, subject, predicate, content, entity_id) values ('a', $2, 'likes', 'tea', $1)"
    )
    ada = await app.fetchval(ENTITY, "a", "Ada")
    await app.execute(FACT, "a", "ada")
    await app.execute(keyed, ada, "ada")
    with pytest.raises(asyncpg.UniqueViolationError, match="facts_active_subject_key"):
        async with app.transaction():
            await app.execute(FACT, "a", "ada")
    with pytest.raises(asyncpg.UniqueViolationError, match="facts_active_entity_key"):
        async with app.transaction():
            await app.execute(keyed, ada, "the countess")
    # A fading fact is still believed, so its key is still taken.
    await app.execute("update facts set validity = 'fading'")
    with pytest.raises(asyncpg.UniqueViolationError, match="facts_active_subject_key"):
        async with app.transaction():
            await app.execute(FACT, "a", "ada")
    await app.execute("update facts set validity = 'superseded'")
    await app.execute(FACT, "a", "ada")
    await app.execute(keyed, ada, "ada")


async def test_a_live_name_is_taken_whatever_its_case_and_a_merged_one_is_free(
    app: asyncpg.Connection[Any],
) -> None:
    await app.execute(ENTITY, "a", "Ada")
    with pytest.raises(asyncpg.UniqueViolationError, match="entities_live_name_key"):
        async with app.transaction():
            await app.execute(ENTITY, "a", "ADA")
    await app.execute("""update entities set metadata = '{"merged_into": "x"}'""")
    await app.execute(ENTITY, "a", "ADA")


async def test_a_deleted_episode_leaves_what_was_derived_from_it(app: asyncpg.Connection[Any]) -> None:
    episode = await app.fetchval(EPISODE, "a")
    fact, rule = await app.fetchval(FACT, "a", "user"), await app.fetchval(RULE, "a")
    await app.execute("update facts set source_episode_id = $1", episode)
    await app.execute("update rules set source_episode_id = $1", episode)
    await app.execute(LINK, "a", fact, episode)
    await app.execute("delete from episodes")
    assert await app.fetchval("select id from facts where source_episode_id is null and tenant_id = 'a'") == fact
    assert await app.fetchval("select id from rules where source_episode_id is null and tenant_id = 'a'") == rule
    assert await app.fetchval("select target_id from memory_links") == episode


async def test_an_entity_with_facts_can_not_be_deleted(app: asyncpg.Connection[Any]) -> None:
    ada = await app.fetchval(ENTITY, "a", "Ada")
    await app.execute(FACT, "a", "ada")
    await app.execute("update facts set entity_id = $1", ada)
    with pytest.raises(asyncpg.IntegrityConstraintViolationError, match="facts_entity_fkey"):
        await app.execute("delete from entities")


async def test_two_tenants_hold_the_same_things_without_noticing_one_another(
    app: asyncpg.Connection[Any],
) -> None:
    same, other = uuid4(), uuid4()
    for name in ("a", "b"):
        await _switch(app, name)
        await app.execute(FACT, name, "user")
        await app.execute(ENTITY, name, "Ada")
        await app.execute(LINK, name, same, other)
        await app.execute("insert into rules (tenant_id, id, content) values ($1, $2, 'knock first')", name, same)
    with pytest.raises(asyncpg.UniqueViolationError, match="memory_links_pkey"):
        await app.execute(LINK, "b", same, other)


async def test_another_tenants_rows_are_out_of_reach_even_by_id(app: asyncpg.Connection[Any]) -> None:
    fact = await app.fetchval(FACT, "a", "user")
    await _switch(app, "b")
    assert await app.fetch("select * from facts where id = $1", fact) == []
    assert await app.execute("update facts set content = 'mine' where id = $1", fact) == "UPDATE 0"
    assert await app.execute("delete from facts where id = $1", fact) == "DELETE 0"
    with pytest.raises(asyncpg.ForeignKeyViolationError):
        async with app.transaction():
            await app.execute(
                "insert into facts (tenant_id, subject, predicate, content, supersedes_id)"
                " values ('b', 'user', 'likes', 'tea', $1)",
                fact,
            )
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
        await app.execute(FACT, "a", "cuckoo")


@pytest.mark.parametrize("role", [APP, OWNER])
async def test_without_a_tenant_nothing_is_read_or_written_on_a_new_and_on_a_reused_connection(
    migrated: str, role: str
) -> None:
    async with connected(migrated, role) as connection:
        await _refused_without_tenant(connection, role)
        async with tenant(connection, "a"):
            await connection.execute("select 1")
        assert await connection.fetchval("select current_setting('app.tenant_id', true)") == ""
        await _refused_without_tenant(connection, role)
    async with connected(migrated) as superuser:
        assert await superuser.fetchval("select count(*) from facts") == 0


async def _refused_without_tenant(connection: asyncpg.Connection[Any], role: str) -> None:
    for name in ("a", ""):
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="tenant context is not set"):
            await connection.execute(FACT, name, "user")
    if role == APP:
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="tenant context is not set"):
            await connection.fetch("select * from facts")


async def test_a_row_of_no_tenant_is_refused_even_from_a_superuser(schema: asyncpg.Connection[Any]) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match="facts_tenant_named"):
        await schema.execute(FACT, "", "user")


async def test_row_31_the_trail_can_not_be_changed_by_application_owner_or_superuser(migrated: str) -> None:
    async with connected(migrated, APP) as connection, tenant(connection, "a"):
        await connection.execute(EVENT, "a")
    for role, refusal in ((APP, "permission denied"), (OWNER, "append-only"), (None, "append-only")):
        async with connected(migrated, role) as connection:
            await _refuses_changes(connection, refusal)
    async with connected(migrated) as superuser:
        await superuser.execute("set session_replication_role = replica")
        await _refuses_changes(superuser, "append-only")
        assert await superuser.fetchval("select count(*) from memory_events") == 1


async def _refuses_changes(connection: asyncpg.Connection[Any], refusal: str) -> None:
    for change in ("update memory_events set actor = 'x'", "delete from memory_events", "truncate memory_events"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match=refusal):
            async with tenant(connection, "a"):
                await connection.execute(change)


async def test_the_application_sees_a_key_by_its_id_and_no_list_of_them(migrated: str) -> None:
    new = "insert into api_keys (tenant_id, actor, secret_hash) values ($1, 'ada', $2) returning id"
    async with connected(migrated, OWNER) as owner:
        first = await owner.fetchval(new, "a", b"x" * 32)
        await owner.execute(new, "b", b"y" * 32)
        assert await owner.fetchval("select count(*) from api_keys") == 2
        with pytest.raises(asyncpg.CheckViolationError, match="api_keys_secret_hash_length"):
            await owner.execute(new, "a", b"short")
    async with connected(migrated, APP) as app:
        rows = await app.fetch("select tenant_id, secret_hash from find_api_key($1)", first)
        assert [tuple(row) for row in rows] == [("a", b"x" * 32)]
        assert await app.fetch("select * from find_api_key($1)", uuid4()) == []
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="permission denied"):
            await app.fetch("select * from api_keys")


async def test_the_backlog_is_counted_over_all_tenants(migrated: str) -> None:
    async with connected(migrated, APP) as app:
        for name in ("a", "b", "b"):
            async with tenant(app, name):
                await app.execute(EPISODE, name)
        async with tenant(app, "b"):
            await app.execute(
                "update episodes set consolidation_status = 'dead_letter'"
                " where id = (select id from episodes order by created_at limit 1)"
            )
        row = await app.fetchrow("select pending, oldest_pending is not null, dead_letter from memory_backlog()")
        assert row is not None
        assert tuple(row) == (2, True, 1)


async def test_a_view_shows_the_rows_of_the_current_tenant_alone(app: asyncpg.Connection[Any]) -> None:
    for name in ("b", "a"):
        await _switch(app, name)
        await app.execute(FACT, name, "user")
        await app.execute(EPISODE, name)
        await app.execute(RULE, name)
    for view, rows in (("memories", 3), ("claimable_episodes", 1)):
        tenants = await app.fetch(f"select tenant_id from {view}")
        assert [row["tenant_id"] for row in tenants] == ["a"] * rows


async def test_every_view_applies_the_policies_of_its_tables(schema: asyncpg.Connection[Any]) -> None:
    views = await schema.fetch(
        "select relname, reloptions from pg_class where relkind = 'v' and relnamespace = 'public'::regnamespace"
    )
    assert {row["relname"]: row["reloptions"] for row in views} == {
        "memories": ["security_invoker=true"],
        "claimable_episodes": ["security_invoker=true"],
    }


async def test_nobody_else_may_call_what_runs_as_the_owner(migrated: str) -> None:
    async with connected(migrated) as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("create role stranger")
        await connection.execute("set local role stranger")
        for call in (
            "memory_backlog()",
            "find_api_key(gen_random_uuid())",
            "find_entities_by_name('a', null, 1)",
            "find_entities_by_similarity('a', null, 1)",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="permission denied"):
                async with connection.transaction():
                    await connection.fetch(f"select * from {call}")
        await transaction.rollback()
