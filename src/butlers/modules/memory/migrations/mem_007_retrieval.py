"""Finding: how much is still believed, what is live, and the ways to it that stay quick as tables grow."""

from alembic import op

revision = "mem_007"
down_revision = "mem_006"
branch_labels = None
depends_on = None

_WORDS = """
    create function {name}(
        question text, picked text, scopes text[], least_confidence double precision, depth bigint, most bigint
    )
    returns table (id uuid, rank real, has_all boolean)
    language sql stable security definer rows 100 set search_path = public, pg_catalog as $$
        with asked as (
            select any_word(question) as any_of, plainto_tsquery('english', question) as all_of
        )
        select found.id,
               ts_rank(found.search_vector, asked.any_of),
               found.search_vector @@ asked.all_of
          from asked,
               lateral (
                   select m.id, m.search_vector, m.created_at
                     from {table} m
                    where m.tenant_id = (select current_tenant())
                      and m.search_vector @@ coalesce(picked::tsquery, asked.any_of)
                      and (scopes is null or m.{scope} = any (scopes))
                      and {live}
                    limit most
               ) found
         order by 3 desc, 2 desc, found.created_at desc, found.id
         limit depth
    $$
"""
_BELIEVED = "effective_confidence(m.confidence, m.decay_rate, m.last_confirmed_at, now()) >= least_confidence"
_ARMS = {
    "fact_words": {"table": "facts", "scope": "scope", "live": f"m.validity = 'active' and {_BELIEVED}"},
    "rule_words": {
        "table": "rules",
        "scope": "scope",
        "live": f"not coalesce((m.metadata -> 'forgotten')::boolean, false) and {_BELIEVED}",
    },
    "episode_words": {"table": "episodes", "scope": "butler", "live": "m.expires_at > now()"},
}
_ARGUMENTS = "(text, text, text[], double precision, bigint, bigint)"


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
                else confidence * exp(
                    -decay_rate * greatest(extract(epoch from at - last_confirmed_at)::double precision / 86400, 0)
                )
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
    for name, parts in _ARMS.items():
        op.execute(_WORDS.format(name=name, **parts))
        op.execute(f"comment on function {name}{_ARGUMENTS} is 'The keyword arm of a search in the current tenant.'")
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
    for name in _ARMS:
        op.execute(f"drop function {name}{_ARGUMENTS}")
    op.execute("drop function any_word(text)")
    op.execute("drop function effective_confidence(double precision, double precision, timestamptz, timestamptz)")
