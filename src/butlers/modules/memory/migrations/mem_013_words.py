"""Common words are looked up two at a time, and alone only where nothing else is found."""

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
            select found.*
              from asked, lateral ({matching} && prefixed(asked.tenant, asked.alone) limit most) found
            union all
            select found.*
              from asked,
                   unnest(firsts, seconds) as pair (one, other),
                   lateral ({matching} @> prefixed(asked.tenant, array[pair.one, pair.other]) limit most) found
        ), found as (
            select * from telling
            union all
            select found.*
              from asked, lateral ({matching} && prefixed(asked.tenant, reserve) limit most) found
             where (select count(*) from telling) < depth
        )
        select each.* from (select distinct on (id) * from found order by id) each
         order by 4 desc, 3 desc, 2 desc, 1
         limit depth
    $$
"""
_MATCHING = """
                select m.id, m.created_at, ts_rank(m.search_vector, asked.any_of) as rank,
                       m.search_vector @@ asked.all_of as has_all, {found}
                  from {table} m
                 where m.tenant_id || '' = asked.tenant
                   and (scopes is null or m.{scope} = any (scopes))
                   and {live}
                   and prefixed(m.tenant_id, tsvector_to_array(m.search_vector))"""
_BEFORE = "(text, text[], text[], double precision, bigint, bigint)"
_NOW = "(text, text[], text[], double precision, bigint, bigint, text[], text[], text[])"
_ABOUT = "comment on function {kind}_words{arguments} is 'The keyword arm of a search in one tenant.'"


def upgrade() -> None:
    for arm in mem_007_retrieval.ARMS:
        op.execute(f"drop function {arm['kind']}_words{_BEFORE}")
        parts = {
            **arm,
            "live": arm["live"].replace("m.validity =", "m.validity || '' ="),
            "found": arm["found"].replace("found.", "m."),
        }
        op.execute(_WORDS.format(**parts, matching=_MATCHING.format(**parts).strip()))
        op.execute(_ABOUT.format(kind=arm["kind"], arguments=_NOW))


def downgrade() -> None:
    for arm in mem_007_retrieval.ARMS:
        op.execute(f"drop function {arm['kind']}_words{_NOW}")
        op.execute(mem_012_plans.words(arm))
        op.execute(_ABOUT.format(kind=arm["kind"], arguments=_BEFORE))
