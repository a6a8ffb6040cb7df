"""Common words are looked up two at a time, and alone only where that finds too little."""

from alembic import op

from butlers.modules.memory.migrations import mem_007_retrieval, mem_012_plans

revision = "mem_013"
down_revision = "mem_012"
branch_labels = None
depends_on = None

# Words are looked up by their index, which has the tenant in front of each, and by no other: see mem_012. The plan
# does not depend on what is asked, so it is made once.
_WORDS = """
    create function {kind}_words(
        question text, alone text[], scopes text[], least_confidence double precision, depth bigint, most bigint,
        firsts text[] default null, seconds text[] default null, reserve text[] default null
    )
    returns table (id uuid, created_at timestamptz, rank real, has_all boolean, {columns})
    language sql stable security definer rows 100
    set search_path = public, pg_catalog set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
        with asked as materialized (
            select current_tenant() as tenant,
                   any_word(question) as any_of,
                   plainto_tsquery('english', question) as all_of,
                   coalesce(alone, tsvector_to_array(to_tsvector('english', question))) as alone
        ), telling as materialized (
            select distinct on (matching.id) matching.*
              from (
                  select m.*
                    from asked, lateral ({matching} && prefixed(asked.tenant, asked.alone)) m
                  union all
                  select m.*
                    from asked,
                         unnest(firsts, seconds) as pair (one, other),
                         lateral ({matching} @> prefixed(asked.tenant, array[pair.one, pair.other])) m
                   limit most
              ) matching
             order by matching.id
        ), found as (
            select * from telling
            union all
            (
                select m.*
                  from asked, lateral ({matching} && prefixed(asked.tenant, reserve)) m
                 where (select count(*) from telling) < depth
                   and not exists (select 1 from telling where telling.id = m.id)
                 limit most
            )
        )
        select found.id, found.created_at,
               ts_rank(found.search_vector, asked.any_of),
               found.search_vector @@ asked.all_of,
               {found}
          from asked, found
         order by 4 desc, 3 desc, 2 desc, 1
         limit depth
    $$
"""
_MATCHING = """
                select m.id, m.created_at, m.search_vector, {kept}
                  from {table} m
                 where m.tenant_id || '' = asked.tenant
                   and (scopes is null or m.{scope} = any (scopes))
                   and {live}
                   and prefixed(m.tenant_id, tsvector_to_array(m.search_vector))"""
_KEPT = {
    "fact": "m.importance, m.last_referenced_at, m.confidence, m.decay_rate, m.last_confirmed_at",
    "rule": "m.maturity, m.metadata, m.last_referenced_at, m.confidence, m.decay_rate, m.last_confirmed_at",
    "episode": "m.importance",
}
_ONE_WORD = """
    create function one_word(word text) returns tsquery
    language sql immutable parallel safe set search_path = pg_catalog as $$
        select ('''' || replace(replace(word, '\\', '\\\\'), '''', '''''') || '''')::tsquery
    $$
"""
_BEFORE = "(text, text[], text[], double precision, bigint, bigint)"
_NOW = "(text, text[], text[], double precision, bigint, bigint, text[], text[], text[])"
_ABOUT = "comment on function {kind}_words{arguments} is 'The keyword arm of a search in one tenant.'"


def upgrade() -> None:
    op.execute(_ONE_WORD)
    op.execute("comment on function one_word(text) is 'A query for one word as the index knows it.'")
    for arm in mem_007_retrieval.ARMS:
        op.execute(f"drop function {arm['kind']}_words{_BEFORE}")
        live = arm["live"].replace("m.validity =", "m.validity || '' =")
        parts = {**arm, "live": live, "kept": _KEPT[arm["kind"]]}
        op.execute(_WORDS.format(**parts, matching=_MATCHING.format(**parts).strip()))
        op.execute(_ABOUT.format(kind=arm["kind"], arguments=_NOW))


def downgrade() -> None:
    for arm in mem_007_retrieval.ARMS:
        op.execute(f"drop function {arm['kind']}_words{_NOW}")
        op.execute(mem_012_plans.words(arm))
        op.execute(f"revoke execute on function {arm['kind']}_words{_BEFORE} from public")
        op.execute(_ABOUT.format(kind=arm["kind"], arguments=_BEFORE))
    op.execute("drop function one_word(text)")
