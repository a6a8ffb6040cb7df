"""Finding: how much is still believed, what is live, and the ways to it that stay quick as tables grow."""

from alembic import op

revision = "mem_007"
down_revision = "mem_006"
branch_labels = None
depends_on = None

WORDS = """
    create function {kind}_words(
        question text, picked text[], scopes text[], least_confidence double precision, depth bigint, most bigint
    )
    returns table (id uuid, created_at timestamptz, rank real, has_all boolean, {columns})
    language sql stable security definer rows 100 set search_path = public, pg_catalog as $$
        with asked as (
            select any_word(question) as any_of,
                   plainto_tsquery('english', question) as all_of,
                   prefixed((select current_tenant()), coalesce(
                       picked, tsvector_to_array(to_tsvector('english', question))
                   )) as words
        )
        select found.id, found.created_at,
               ts_rank(found.search_vector, asked.any_of),
               found.search_vector @@ asked.all_of,
               {found}
          from asked,
               lateral (
                   select m.*
                     from {table} m
                    where m.tenant_id = (select current_tenant())
                      and prefixed(m.tenant_id, tsvector_to_array(m.search_vector)) && asked.words
                      and (scopes is null or m.{scope} = any (scopes))
                      and {live}
                    limit most
               ) found
         order by 4 desc, 3 desc, found.created_at desc, found.id
         limit depth
    $$
"""
_CONFIDENCE = "effective_confidence({0}.confidence, {0}.decay_rate, {0}.last_confirmed_at, now())"
_IDLE = "extract(epoch from now() - found.last_referenced_at)::double precision / 86400"
ARMS = (
    {
        "kind": "fact",
        "table": "facts",
        "scope": "scope",
        "live": f"m.validity = 'active' and {_CONFIDENCE.format('m')} >= least_confidence",
        "columns": "importance double precision, idle_days double precision, confidence double precision",
        "found": f"found.importance, {_IDLE}, {_CONFIDENCE.format('found')}",
    },
    {
        "kind": "rule",
        "table": "rules",
        "scope": "scope",
        "live": "not coalesce((m.metadata -> 'forgotten')::boolean, false)"
        f" and {_CONFIDENCE.format('m')} >= least_confidence",
        "columns": "maturity text, awaits_inversion boolean, idle_days double precision, confidence double precision",
        "found": "found.maturity, coalesce((found.metadata -> 'needs_inversion')::boolean, false),"
        f" {_IDLE}, {_CONFIDENCE.format('found')}",
    },
    {
        "kind": "episode",
        "table": "episodes",
        "scope": "butler",
        "live": "(m.expires_at is null or m.expires_at > now())",
        "columns": "importance double precision",
        "found": "found.importance",
    },
)
_ARGUMENTS = "(text, text[], text[], double precision, bigint, bigint)"


def upgrade() -> None:
    op.execute("""
        create function effective_confidence(
            confidence double precision, decay_rate double precision,
            last_confirmed_at timestamptz, at timestamptz
        )
        returns double precision
        language sql immutable parallel safe as $$
            select case
                when decay_rate = 0 then confidence
                when last_confirmed_at is null then 0.0
                -- Next to nothing already; the server refuses to compute numbers much smaller.
                when confidence < 1e-200 then confidence
                else confidence * exp(-least(
                    decay_rate * greatest(extract(epoch from at - last_confirmed_at)::double precision / 86400, 0),
                    100
                ))
            end
        $$
    """)
    op.execute("""
        create function any_word(question text) returns tsquery
        language sql immutable parallel safe set search_path = pg_catalog as $$
            select coalesce(
                string_agg('''' || replace(replace(word, '\\', '\\\\'), '''', '''''') || '''', ' | '), ''
            )::tsquery
              from unnest(tsvector_to_array(to_tsvector('english', question))) as word
        $$
    """)
    # An index over words alone finds everybody's: with the tenant in front of each word it finds one tenant's,
    # at a cost that does not know how many others there are.
    op.execute("""
        create function prefixed(tenant text, words text[]) returns text[]
        language sql immutable parallel safe set search_path = pg_catalog as $$
            select array_agg(tenant || chr(31) || word) from unnest(words) as word
        $$
    """)
    op.execute("comment on function prefixed(text, text[]) is 'Words with their tenant in front of each.'")
    for arm in ARMS:
        op.execute(f"""
            create index {arm["table"]}_words on {arm["table"]}
            using gin (prefixed(tenant_id, tsvector_to_array(search_vector)))
        """)
        op.execute(WORDS.format(**arm))
        op.execute(
            f"comment on function {arm['kind']}_words{_ARGUMENTS} is 'The keyword arm of a search in one tenant.'"
        )
    # The vector stands in the index beside its tenant: comparing all of a small tenant's vectors reads pages
    # that hold nothing else, whoever else is in the table.
    op.execute("""
        create index facts_exact on facts (tenant_id, embedding_version_id, scope)
        include (id, created_at, embedding) where validity = 'active'
    """)
    op.execute("""
        create index rules_exact on rules (tenant_id, embedding_version_id, scope)
        include (id, created_at, embedding)
    """)
    op.execute("""
        create index episodes_exact on episodes (tenant_id, embedding_version_id, butler)
        include (id, created_at, expires_at, embedding)
    """)
    op.execute("""
        comment on function effective_confidence(double precision, double precision, timestamptz, timestamptz) is
        'What is left of a confidence since it was last confirmed.'
    """)
    op.execute("comment on function any_word(text) is 'A query for any of the words of a question.'")


def downgrade() -> None:
    for table in ("episodes", "rules", "facts"):
        op.execute(f"drop index {table}_exact")
    for arm in ARMS:
        op.execute(f"drop function {arm['kind']}_words{_ARGUMENTS}")
        op.execute(f"drop index {arm['table']}_words")
    op.execute("drop function prefixed(text, text[])")
    op.execute("drop function any_word(text)")
    op.execute("drop function effective_confidence(double precision, double precision, timestamptz, timestamptz)")
