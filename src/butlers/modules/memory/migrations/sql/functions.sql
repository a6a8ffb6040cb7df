-- Functions that indexes, views and statements share.

create function effective_confidence(
    confidence double precision, decay_rate double precision, last_confirmed_at timestamptz, at timestamptz
)
returns double precision
language sql immutable parallel safe as $$
    select case
        -- The server refuses to multiply with numbers much smaller than this: they count as zero.
        when decay_rate < 1e-200 then confidence
        when last_confirmed_at is null then 0.0
        when confidence < 1e-200 then confidence
        else confidence * exp(-least(
            decay_rate * greatest(extract(epoch from at - last_confirmed_at)::double precision / 86400, 0),
            100
        ))
    end
$$;
comment on function effective_confidence(double precision, double precision, timestamptz, timestamptz) is
    'The confidence that is left since the last confirmation.';

-- An index over terms alone finds the rows of every tenant. With the tenant in front of each term it finds one
-- tenant's rows, at a cost that does not depend on the other tenants.
create function tenant_terms(tenant text, terms text[]) returns text[]
language sql immutable parallel safe set search_path = pg_catalog as $$
    select array_agg(tenant || chr(31) || term) from unnest(terms) as term
$$;
comment on function tenant_terms(text, text[]) is 'Terms with their tenant in front of each.';

create function term_query(term text) returns tsquery
language sql immutable parallel safe set search_path = pg_catalog as $$
    select ('''' || replace(replace(term, '\', '\\'), '''', '''''') || '''')::tsquery
$$;
comment on function term_query(text) is 'A query for one lexeme.';

create function any_term_query(question text) returns tsquery
language sql immutable parallel safe set search_path = pg_catalog as $$
    select coalesce(
        string_agg('''' || replace(replace(term, '\', '\\'), '''', '''''') || '''', ' | '), ''
    )::tsquery
      from unnest(tsvector_to_array(to_tsvector('english', question))) as term
$$;
comment on function any_term_query(text) is 'A query for any of the lexemes of a question.';
