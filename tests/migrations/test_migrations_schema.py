"""The migrated schema against the specification, column by column and index by index."""

# ruff: noqa: E501  a line of the tables is a line of the specification
from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import asyncpg
import pytest
from alembic.script import ScriptDirectory

from butlers.migrate import Branch

from .conftest import BRANCHES

# name | type | null or not | default ("=" before a generated column's source)
COMMON = """
    tenant_id                   | text                     | not null |
    id                          | uuid                     | not null | gen_random_uuid()
"""

COLUMNS = {
    "episodes": f"""{COMMON}
    butler                      | text                     | not null |
    session_id                  | uuid                     | null     |
    content                     | text                     | not null |
    embedding                   | vector(384)              | null     |
    search_vector               | tsvector                 | null     |
    importance                  | double precision         | not null | 5.0
    reference_count             | integer                  | not null | 0
    consolidated                | boolean                  | not null | =((consolidation_status)::text = 'consolidated'::text)
    consolidation_status        | character varying(20)    | not null | 'pending'::character varying
    consolidation_attempts      | integer                  | not null | 0
    retry_count                 | integer                  | not null | =consolidation_attempts
    last_consolidation_error    | text                     | null     |
    last_error                  | text                     | null     | =last_consolidation_error
    next_consolidation_retry_at | timestamp with time zone | null     |
    created_at                  | timestamp with time zone | not null | now()
    last_referenced_at          | timestamp with time zone | null     |
    expires_at                  | timestamp with time zone | null     | (now() + '7 days'::interval)
    metadata                    | jsonb                    | not null | '{{}}'::jsonb
    embedding_version_id        | uuid                     | null     |
    lease_token                 | uuid                     | null     |
    leased_until                | timestamp with time zone | null     |
    """,
    "facts": f"""{COMMON}
    subject                     | text                     | not null |
    predicate                   | text                     | not null |
    content                     | text                     | not null |
    embedding                   | vector(384)              | null     |
    search_vector               | tsvector                 | null     |
    importance                  | double precision         | not null | 5.0
    confidence                  | double precision         | not null | 1.0
    decay_rate                  | double precision         | not null | 0.008
    permanence                  | text                     | not null | 'standard'::text
    source_butler               | text                     | null     |
    source_episode_id           | uuid                     | null     |
    supersedes_id               | uuid                     | null     |
    entity_id                   | uuid                     | null     |
    validity                    | text                     | not null | 'active'::text
    scope                       | text                     | not null | 'global'::text
    reference_count             | integer                  | not null | 0
    created_at                  | timestamp with time zone | not null | now()
    last_referenced_at          | timestamp with time zone | null     | now()
    last_confirmed_at           | timestamp with time zone | null     | now()
    tags                        | jsonb                    | not null | '[]'::jsonb
    metadata                    | jsonb                    | not null | '{{}}'::jsonb
    embedding_version_id        | uuid                     | null     |
    """,
    "rules": f"""{COMMON}
    content                     | text                     | not null |
    embedding                   | vector(384)              | null     |
    search_vector               | tsvector                 | null     |
    scope                       | text                     | not null | 'global'::text
    maturity                    | text                     | not null | 'candidate'::text
    confidence                  | double precision         | not null | 0.5
    decay_rate                  | double precision         | not null | 0.008
    permanence                  | text                     | not null | 'standard'::text
    effectiveness_score         | double precision         | not null | 0.0
    applied_count               | integer                  | not null | 0
    success_count               | integer                  | not null | 0
    harmful_count               | integer                  | not null | 0
    source_episode_id           | uuid                     | null     |
    source_butler               | text                     | null     |
    created_at                  | timestamp with time zone | not null | now()
    last_applied_at             | timestamp with time zone | null     |
    last_evaluated_at           | timestamp with time zone | null     |
    last_confirmed_at           | timestamp with time zone | null     | now()
    reference_count             | integer                  | not null | 0
    last_referenced_at          | timestamp with time zone | null     | now()
    tags                        | jsonb                    | not null | '[]'::jsonb
    metadata                    | jsonb                    | not null | '{{}}'::jsonb
    embedding_version_id        | uuid                     | null     |
    """,
    "memory_links": """
    tenant_id                   | text                     | not null |
    source_type                 | text                     | not null |
    source_id                   | uuid                     | not null |
    target_type                 | text                     | not null |
    target_id                   | uuid                     | not null |
    relation                    | text                     | not null |
    created_at                  | timestamp with time zone | not null | now()
    """,
    "entities": f"""{COMMON}
    canonical_name              | character varying        | not null |
    entity_type                 | character varying        | not null |
    aliases                     | text[]                   | not null | '{{}}'::text[]
    names                       | text                     | not null | =normalized_names((canonical_name)::text, aliases)
    metadata                    | jsonb                    | not null | '{{}}'::jsonb
    created_at                  | timestamp with time zone | not null | now()
    updated_at                  | timestamp with time zone | not null | now()
    """,
    "memory_events": f"""{COMMON}
    event_type                  | text                     | not null |
    entity_type                 | text                     | null     |
    entity_id                   | uuid                     | null     |
    actor                       | text                     | null     |
    request_id                  | text                     | null     |
    payload                     | jsonb                    | not null | '{{}}'::jsonb
    occurred_at                 | timestamp with time zone | not null | now()
    created_at                  | timestamp with time zone | not null | =occurred_at
    """,
    "rule_applications": f"""{COMMON}
    rule_id                     | uuid                     | not null |
    outcome                     | text                     | not null |
    applied_at                  | timestamp with time zone | not null | now()
    actor                       | text                     | null     |
    session_id                  | uuid                     | null     |
    request_id                  | text                     | null     |
    context                     | jsonb                    | not null | '{{}}'::jsonb
    """,
    "embedding_versions": f"""{COMMON}
    model                       | text                     | not null |
    version                     | text                     | not null |
    dimensions                  | integer                  | not null |
    created_at                  | timestamp with time zone | not null | now()
    """,
    "consolidation_runs": f"""{COMMON}
    butler                      | text                     | not null |
    lease_token                 | uuid                     | not null |
    session_id                  | uuid                     | null     |
    status                      | text                     | not null | 'running'::text
    started_at                  | timestamp with time zone | not null | now()
    finished_at                 | timestamp with time zone | null     |
    episodes                    | integer                  | not null | 0
    facts_created               | integer                  | not null | 0
    facts_updated               | integer                  | not null | 0
    rules_created               | integer                  | not null | 0
    confirmed                   | integer                  | not null | 0
    errors                      | jsonb                    | not null | '[]'::jsonb
    parse_errors                | jsonb                    | not null | '[]'::jsonb
    input_tokens                | bigint                   | not null | 0
    output_tokens               | bigint                   | not null | 0
    tokens_estimated            | boolean                  | not null | false
    error                       | text                     | null     |
    proposed                    | integer                  | not null | 0
    known_left_out              | integer                  | not null | 0
    """,
    "consolidation_proposals": f"""{COMMON}
    run_id                      | uuid                     | not null |
    butler                      | text                     | not null |
    change                      | text                     | not null |
    action                      | jsonb                    | not null |
    target_id                   | uuid                     | null     |
    evidence                    | uuid[]                   | not null | '{{}}'::uuid[]
    happened_at                 | timestamp with time zone | not null |
    status                      | text                     | not null | 'waiting'::text
    created_at                  | timestamp with time zone | not null | now()
    expires_at                  | timestamp with time zone | not null |
    decided_at                  | timestamp with time zone | null     |
    decided_by                  | text                     | null     |
    memory_id                   | uuid                     | null     |
    """,
    "sessions": f"""{COMMON}
    butler                      | text                     | not null |
    trigger_source              | text                     | not null |
    prompt                      | text                     | not null |
    runtime                     | text                     | not null |
    status                      | text                     | not null | 'running'::text
    internal                    | boolean                  | not null | false
    actor                       | text                     | null     |
    request_id                  | text                     | null     |
    runtime_session_id          | text                     | null     |
    usage                       | jsonb                    | not null | '{{}}'::jsonb
    error                       | text                     | null     |
    started_at                  | timestamp with time zone | not null | now()
    finished_at                 | timestamp with time zone | null     |
    answer                      | text                     | null     |
    instance                    | uuid                     | null     |
    tools                       | jsonb                    | not null | '{{}}'::jsonb
    """,
    "api_keys": f"""{COMMON}
    actor                       | text                     | not null |
    roles                       | text[]                   | not null | '{{}}'::text[]
    elevated                    | boolean                  | not null | false
    secret_hash                 | bytea                    | not null |
    created_at                  | timestamp with time zone | not null | now()
    expires_at                  | timestamp with time zone | null     |
    revoked_at                  | timestamp with time zone | null     |
    """,
    "browser_sessions": f"""{COMMON}
    token_hash                  | bytea                    | not null |
    is_ticket                   | boolean                  | not null | false
    actor                       | text                     | not null |
    roles                       | text[]                   | not null | '{{}}'::text[]
    elevated                    | boolean                  | not null | false
    key_id                      | uuid                     | null     |
    created_at                  | timestamp with time zone | not null | now()
    last_seen_at                | timestamp with time zone | not null | now()
    expires_at                  | timestamp with time zone | not null |
    """,
    "edit_history": """
    tenant_id                   | text                     | not null |
    request_id                  | text                     | not null |
    record_type                 | text                     | not null |
    record_id                   | uuid                     | not null |
    before                      | jsonb                    | not null |
    after                       | jsonb                    | not null |
    edited_at                   | timestamp with time zone | not null | now()
    """,
    "session_receipts": f"""{COMMON}
    session_id                  | uuid                     | not null |
    source                      | text                     | not null |
    butler                      | text                     | not null |
    agent                       | text                     | null     |
    told                        | integer                  | not null |
    left_out                    | integer                  | not null |
    tokens                      | integer                  | null     |
    token_budget                | integer                  | null     |
    told_at                     | timestamp with time zone | not null | now()
    """,
    "session_receipt_lines": """
    tenant_id                   | text                     | not null |
    receipt_id                  | uuid                     | not null |
    memory_type                 | text                     | not null |
    memory_id                   | uuid                     | not null |
    session_id                  | uuid                     | not null |
    told_at                     | timestamp with time zone | not null | now()
    rank                        | integer                  | not null |
    outcome                     | text                     | not null |
    score                       | double precision         | null     |
    tokens                      | integer                  | null     |
    """,
    "job_runs": f"""{COMMON}
    job                         | text                     | not null |
    scheduled_for               | timestamp with time zone | null     |
    started_at                  | timestamp with time zone | not null | now()
    finished_at                 | timestamp with time zone | null     |
    status                      | text                     | not null | 'running'::text
    attempt                     | integer                  | not null | 1
    result                      | jsonb                    | not null | '{{}}'::jsonb
    error                       | text                     | null     |
    """,
    "leases": """
    tenant_id                   | text                     | not null |
    name                        | text                     | not null |
    token                       | uuid                     | not null |
    expires_at                  | timestamp with time zone | not null |
    """,
    "rate_budgets": """
    tenant_id                   | text                     | not null |
    butler                      | text                     | not null |
    calls                       | double precision         | not null |
    updated_at                  | timestamp with time zone | not null |
    """,
    "idempotency_keys": """
    tenant_id                   | text                     | not null |
    key                         | text                     | not null |
    tool                        | text                     | not null |
    arguments_hash              | bytea                    | not null |
    answer                      | jsonb                    | null     |
    created_at                  | timestamp with time zone | not null | now()
    """,
}

# Whatever further indexes a table has, these it must have.
INDEXES = {
    "episodes": """
    unique btree (tenant_id, id)
    btree (tenant_id, butler, created_at DESC)
    btree (tenant_id, expires_at) WHERE (expires_at IS NOT NULL)
    btree (tenant_id, butler, created_at) WHERE ((consolidation_status)::text = 'pending'::text)
    gin (search_vector)
    ivfflat (embedding vector_cosine_ops) WITH (lists='20')
    """,
    "facts": """
    unique btree (tenant_id, id)
    unique btree (tenant_id, scope, subject, predicate) WHERE ((entity_id IS NULL) AND (validity = 'active'::text))
    unique btree (tenant_id, entity_id, scope, predicate) WHERE ((entity_id IS NOT NULL) AND (validity = 'active'::text))
    btree (tenant_id, scope, validity) WHERE (validity = 'active'::text)
    btree (tenant_id, subject, predicate)
    gin (search_vector)
    gin (tags)
    ivfflat (embedding vector_cosine_ops) WITH (lists='20')
    """,
    "rules": """
    unique btree (tenant_id, id)
    btree (tenant_id, scope, maturity)
    gin (search_vector)
    ivfflat (embedding vector_cosine_ops) WITH (lists='20')
    """,
    "memory_links": """
    unique btree (tenant_id, source_type, source_id, target_type, target_id)
    btree (tenant_id, target_type, target_id)
    """,
    "entities": """
    unique btree (tenant_id, id)
    unique btree (tenant_id, canonical_name, entity_type)
    unique btree (tenant_id, lower((canonical_name)::text), entity_type) WHERE (NOT (metadata ? 'merged_into'::text))
    btree (tenant_id, canonical_name)
    gin (aliases)
    gin (metadata)
    btree (tenant_id, split_part(names, chr(31), 1) COLLATE "C") WHERE (NOT (metadata ? 'merged_into'::text))
    gin (tenant_terms(tenant_id, string_to_array(names, chr(31)))) WITH (gin_pending_list_limit='128') WHERE (NOT (metadata ? 'merged_into'::text))
    gin (name_ngrams(tenant_id, names)) WITH (gin_pending_list_limit='128') WHERE (NOT (metadata ? 'merged_into'::text))
    gin (split_part(names, chr(31), 1) gin_trgm_ops, substr(names, (strpos((names || chr(31)), chr(31)) + 1)) gin_trgm_ops) WITH (gin_pending_list_limit='128') WHERE (NOT (metadata ? 'merged_into'::text))
    """,
    "memory_events": """
    unique btree (tenant_id, id)
    btree (tenant_id, event_type, occurred_at DESC)
    btree (tenant_id, occurred_at DESC)
    btree (tenant_id, request_id, occurred_at DESC) WHERE (request_id IS NOT NULL)
    """,
    "rule_applications": """
    unique btree (tenant_id, id)
    """,
    "edit_history": """
    unique btree (tenant_id, request_id, record_type, record_id)
    btree (tenant_id, edited_at)
    """,
    "session_receipts": """
    unique btree (tenant_id, id)
    btree (tenant_id, session_id, told_at)
    btree (tenant_id, told_at)
    """,
    "session_receipt_lines": """
    unique btree (tenant_id, receipt_id, memory_id, memory_type)
    btree (tenant_id, memory_id, outcome, told_at DESC) INCLUDE (session_id)
    """,
    "embedding_versions": """
    unique btree (tenant_id, id)
    unique btree (tenant_id, model, version)
    """,
    "consolidation_runs": """
    unique btree (tenant_id, id)
    btree (tenant_id, started_at DESC)
    """,
    "job_runs": """
    unique btree (tenant_id, id)
    btree (tenant_id, job, started_at DESC)
    """,
    "leases": """
    unique btree (tenant_id, name)
    unique btree (tenant_id, name, token)
    """,
    "rate_budgets": """
    unique btree (tenant_id, butler)
    """,
    "idempotency_keys": """
    unique btree (tenant_id, key)
    btree (tenant_id, created_at)
    """,
}

# facts (a) -> b means: the tenant and a point at the tenant and id of b.
FOREIGN_KEYS = """
    facts (source_episode_id) -> episodes ON DELETE SET NULL (source_episode_id)
    facts (supersedes_id) -> facts ON DELETE SET NULL (supersedes_id)
    facts (entity_id) -> entities ON DELETE RESTRICT
    facts (embedding_version_id) -> embedding_versions
    rules (source_episode_id) -> episodes ON DELETE SET NULL (source_episode_id)
    rules (embedding_version_id) -> embedding_versions
    episodes (embedding_version_id) -> embedding_versions
    rule_applications (rule_id) -> rules ON DELETE CASCADE
    session_receipt_lines (receipt_id) -> session_receipts ON DELETE CASCADE
"""


def _lines(text: str) -> set[str]:
    return {line.strip() for line in text.splitlines() if line.strip()}


def _cells(text: str) -> set[tuple[str, ...]]:
    return {tuple(cell.strip() for cell in line.split("|")) for line in _lines(text)}


async def test_the_tables_are_those_of_the_specification_and_no_others(
    schema: asyncpg.Connection[Any],
) -> None:
    rows = await schema.fetch("select tablename from pg_tables where schemaname = 'public'")
    assert {row["tablename"] for row in rows} == {*COLUMNS, "alembic_version"}


@pytest.mark.parametrize("table", COLUMNS)
async def test_a_table_has_the_columns_of_the_specification(schema: asyncpg.Connection[Any], table: str) -> None:
    rows = await schema.fetch(
        """
        select a.attname as name, format_type(a.atttypid, a.atttypmod) as type, a.attnotnull as required,
               case when a.attgenerated = 's' then '=' else '' end || coalesce(pg_get_expr(d.adbin, d.adrelid), '') as text
          from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
         where a.attrelid = $1::text::regclass and a.attnum > 0 and not a.attisdropped
        """,
        table,
    )
    found = {(r["name"], r["type"], "not null" if r["required"] else "null", r["text"]) for r in rows}
    assert found == _cells(COLUMNS[table])


async def _indexes(schema: asyncpg.Connection[Any], table: str) -> set[str]:
    rows = await schema.fetch("select indexdef from pg_indexes where schemaname = 'public' and tablename = $1", table)
    definitions = (row["indexdef"] for row in rows)
    return {("unique " if "UNIQUE" in text else "") + text.partition(" USING ")[2] for text in definitions}


@pytest.mark.parametrize("table", INDEXES)
async def test_a_table_has_the_indexes_of_the_specification(schema: asyncpg.Connection[Any], table: str) -> None:
    assert _lines(INDEXES[table]) <= await _indexes(schema, table)


async def test_the_tenant_leads_every_index_that_can_be_led(schema: asyncpg.Connection[Any]) -> None:
    for table in COLUMNS:
        for index in await _indexes(schema, table):
            # A key or a browser session is looked up before its tenant is known; its index is not a unique one.
            is_lookup = index in {"btree (id)", "btree (token_hash)"}
            assert "btree (tenant_id" in index or index.startswith(("gin", "ivfflat")) or is_lookup


async def test_no_index_holds_what_every_recall_updates(schema: asyncpg.Connection[Any]) -> None:
    for table in ("episodes", "facts", "rules"):
        for index in await _indexes(schema, table):
            assert "reference_count" not in index
            assert "last_referenced_at" not in index
        options = await schema.fetchval("select reloptions from pg_class where oid = $1::text::regclass", table)
        assert options == ["fillfactor=85"]


async def test_the_foreign_keys_are_those_of_the_specification_and_stay_inside_the_tenant(
    schema: asyncpg.Connection[Any],
) -> None:
    rows = await schema.fetch(
        "select conrelid::regclass::text as name, pg_get_constraintdef(oid) as text from pg_constraint"
        " where contype = 'f' and connamespace = 'public'::regnamespace"
    )
    found = {
        f"{row['name']} {row['text']}".replace("FOREIGN KEY (tenant_id, ", "(")
        .replace("REFERENCES ", "-> ")
        .replace("(tenant_id, id)", "")
        .strip()
        for row in rows
    }
    assert found == _lines(FOREIGN_KEYS)


async def test_every_foreign_key_has_an_index_that_leads_with_its_columns(
    schema: asyncpg.Connection[Any],
) -> None:
    """Partial where the column is null at most: a deleted episode looks for its facts in no other way."""
    uncovered = await schema.fetch("""
        select c.conname
          from pg_constraint c
         where c.contype = 'f'
           and c.connamespace = 'public'::regnamespace
           and not exists (
               select from pg_index x
                where x.indrelid = c.conrelid
                  and (x.indkey::int2[])[0:cardinality(c.conkey) - 1] = c.conkey
                  and (x.indpred is null
                       or pg_get_expr(x.indpred, x.indrelid) ~ '^\\([a-z_]+ IS NOT NULL\\)$'))
    """)
    assert uncovered == []


async def test_every_table_with_a_tenant_forces_row_level_security(schema: asyncpg.Connection[Any]) -> None:
    rows = await schema.fetch("""
        select c.relname as name, c.relrowsecurity and c.relforcerowsecurity as forced,
               exists (select from pg_policy p where p.polrelid = c.oid and p.polname = 'tenant_isolation'
                          and p.polqual is not null and p.polwithcheck is not null) as isolated
          from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id'
         where c.relkind = 'r' and c.relnamespace = 'public'::regnamespace
    """)
    assert {row["name"] for row in rows} == set(COLUMNS)
    assert [row["name"] for row in rows if not (row["forced"] and row["isolated"])] == []


async def test_every_table_and_function_says_what_it_is_for(schema: asyncpg.Connection[Any]) -> None:
    silent = await schema.fetch("""
        select relname from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r'
           and relname <> 'alembic_version' and obj_description(oid, 'pg_class') is null
         union all
        select proname from pg_proc p where pronamespace = 'public'::regnamespace
           and not exists (select from pg_depend d where d.objid = p.oid and d.deptype = 'e')
           and obj_description(oid, 'pg_proc') is null
    """)
    assert silent == []


@pytest.mark.parametrize("branch", BRANCHES, ids=lambda branch: branch.label)
def test_a_branch_has_one_head_and_names_it(branch: Branch) -> None:
    locations = [str(each.location) for each in BRANCHES]
    script = ScriptDirectory(locations[0], version_locations=locations)
    heads = [r for r in script.get_revisions("heads") if r is not None and branch.label in r.branch_labels]
    assert [head.revision for head in heads] == [branch.head]
    assert len(script.get_heads()) == len(BRANCHES)


@pytest.mark.parametrize("branch", BRANCHES, ids=lambda branch: branch.label)
def test_the_file_names_say_which_revisions_there_are(branch: Branch) -> None:
    locations = [str(each.location) for each in BRANCHES]
    script = ScriptDirectory(locations[0], version_locations=locations)
    of_branch = {r.revision for r in script.walk_revisions() if branch.label in r.branch_labels}
    assert branch.revisions() == of_branch


def _reference() -> ModuleType:
    file = Path(__file__).parents[2] / "scripts" / "schema_reference.py"
    spec = importlib.util.spec_from_file_location("schema_reference", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_the_reference_page_says_what_the_migrations_make(schema: asyncpg.Connection[Any]) -> None:
    reference = _reference()
    page = await reference.render(schema)
    assert reference.PAGE.read_text(encoding="utf-8") == page, "run: python scripts/schema_reference.py"


async def test_functions_name_their_columns(schema: asyncpg.Connection[Any]) -> None:
    """One that returns the rows of a table fails in older butlers when a release adds a column to that table."""
    rows = await schema.fetch("""
        select p.proname as name
          from pg_proc p
          join pg_type t on t.oid = p.prorettype
          join pg_class c on c.oid = t.typrelid and c.relkind in ('r', 'v')
         where p.pronamespace = 'public'::regnamespace
    """)
    assert {row["name"] for row in rows} == {"api_key", "browser_session"}, "two that core_005 replaces"
