-- Search: episodes, facts and rules as one view, the indexes a search reads, and the keyword arm.

-- SECURITY INVOKER: row-level security applies as it does to the tables.
create view memories with (security_invoker = true) as
select tenant_id, 'fact' as memory_type, id, scope, content, subject, predicate, entity_id,
       null::text as butler, null::uuid as session_id, importance, permanence,
       null::text as maturity, null::double precision as effectiveness_score,
       confidence as stored_confidence,
       effective_confidence(confidence, decay_rate, last_confirmed_at, now()) as confidence,
       decay_rate, source_butler, reference_count, created_at, last_referenced_at, last_confirmed_at,
       null::timestamptz as expires_at, tags, metadata,
       search_vector, embedding, embedding_version_id,
       validity as state,
       validity = 'active' as is_live,
       coalesce(metadata ->> 'status' = 'fading', false) as is_fading,
       false as awaits_inversion
  from facts
union all
select tenant_id, 'rule', id, scope, content, null, null, null,
       null, null, null, permanence,
       maturity, effectiveness_score,
       confidence,
       effective_confidence(confidence, decay_rate, last_confirmed_at, now()),
       decay_rate, source_butler, reference_count, created_at, last_referenced_at, last_confirmed_at,
       null, tags, metadata,
       search_vector, embedding, embedding_version_id,
       case when coalesce((metadata -> 'forgotten')::boolean, false) then 'forgotten' else 'active' end,
       not coalesce((metadata -> 'forgotten')::boolean, false),
       coalesce(metadata ->> 'status' = 'fading', false),
       coalesce((metadata -> 'needs_inversion')::boolean, false)
  from rules
union all
select tenant_id, 'episode', id, butler, content, null, null, null,
       butler, session_id, importance, null,
       null, null,
       null,
       null,
       null, null, reference_count, created_at, last_referenced_at, null,
       expires_at, null, metadata,
       search_vector, embedding, embedding_version_id,
       case
           when metadata ? 'forgotten_until' then 'forgotten'
           when expires_at <= now() then 'expired'
           else 'active'
       end,
       expires_at is null or expires_at > now(),
       false,
       false
  from episodes;
comment on view memories is 'Episodes, facts and rules as one; an episode has its butler for a scope.';

-- The keyword arm. fastupdate = off: a search would read the pending list from end to end.
create index facts_terms on facts using gin (tenant_terms(tenant_id, tsvector_to_array(search_vector)))
    with (fastupdate = off);
create index rules_terms on rules using gin (tenant_terms(tenant_id, tsvector_to_array(search_vector)))
    with (fastupdate = off);
create index episodes_terms on episodes using gin (tenant_terms(tenant_id, tsvector_to_array(search_vector)))
    with (fastupdate = off);

-- The exact vector arm. The index holds the vector beside its tenant: comparing all vectors of a small tenant reads
-- pages that hold nothing else, whatever other tenants are in the table.
create index facts_exact on facts (tenant_id, embedding_version_id, scope) include (id, created_at, embedding)
    where validity = 'active';
create index rules_exact on rules (tenant_id, embedding_version_id, scope) include (id, created_at, embedding)
    where not coalesce((metadata -> 'forgotten')::boolean, false);
create index episodes_exact on episodes (tenant_id, embedding_version_id, butler)
    include (id, created_at, expires_at, embedding);

-- Rare terms are looked up alone and common terms in pairs; the fallback terms only where these find too little. The
-- index on terms has the tenant in front of each, so it is the only one this function may use: the operands
-- `tenant_id || ''` and `state || ''` keep the planner from the others. The plan does not depend on the arguments.
create function keyword_candidates(
    wanted_type text, question text, single_terms text[], first_terms text[], second_terms text[],
    fallback_terms text[], scopes text[], min_confidence double precision, depth bigint, max_rows bigint
)
returns table (
    id uuid, created_at timestamptz, rank real, has_all_terms boolean, importance double precision, maturity text,
    awaits_inversion boolean, last_referenced_at timestamptz, confidence double precision
)
language sql stable security definer rows 100
set search_path = public, pg_catalog set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
    with query as materialized (
        select current_tenant() as tenant,
               any_term_query(question) as any_of,
               plainto_tsquery('english', question) as all_of,
               coalesce(single_terms, tsvector_to_array(to_tsvector('english', question))) as single_terms
    ), selective as materialized (
        select distinct on (matching.id) matching.*
          from (
              select m.id, m.created_at, m.search_vector, m.importance, m.maturity, m.awaits_inversion,
                     m.last_referenced_at, m.confidence
                from query, memories m
               where m.memory_type = wanted_type
                 and m.tenant_id || '' = query.tenant
                 and m.state || '' = 'active'
                 and (scopes is null or m.scope = any (scopes))
                 and coalesce(m.confidence >= min_confidence, true)
                 and tenant_terms(m.tenant_id, tsvector_to_array(m.search_vector))
                     && tenant_terms(query.tenant, query.single_terms)
              union all
              select m.id, m.created_at, m.search_vector, m.importance, m.maturity, m.awaits_inversion,
                     m.last_referenced_at, m.confidence
                from query, unnest(first_terms, second_terms) as pair (one, other), memories m
               where m.memory_type = wanted_type
                 and m.tenant_id || '' = query.tenant
                 and m.state || '' = 'active'
                 and (scopes is null or m.scope = any (scopes))
                 and coalesce(m.confidence >= min_confidence, true)
                 and tenant_terms(m.tenant_id, tsvector_to_array(m.search_vector))
                     @> tenant_terms(query.tenant, array[pair.one, pair.other])
               limit max_rows
          ) matching
         order by matching.id
    ), found as (
        select * from selective
        union all
        (
            select m.id, m.created_at, m.search_vector, m.importance, m.maturity, m.awaits_inversion,
                   m.last_referenced_at, m.confidence
              from query, memories m
             where m.memory_type = wanted_type
               and m.tenant_id || '' = query.tenant
               and m.state || '' = 'active'
               and (scopes is null or m.scope = any (scopes))
               and coalesce(m.confidence >= min_confidence, true)
               and tenant_terms(m.tenant_id, tsvector_to_array(m.search_vector))
                   && tenant_terms(query.tenant, fallback_terms)
               and (select count(*) from selective) < depth
               and not exists (select 1 from selective where selective.id = m.id)
             limit max_rows
        )
    )
    select found.id, found.created_at,
           ts_rank(found.search_vector, query.any_of),
           found.search_vector @@ query.all_of,
           found.importance, found.maturity, found.awaits_inversion, found.last_referenced_at, found.confidence
      from query, found
     order by 4 desc, 3 desc, 2 desc, 1
     limit depth
$$;
comment on function keyword_candidates(
    text, text, text[], text[], text[], text[], text[], double precision, bigint, bigint
) is 'The live memories of one type with terms of a question, the best first.';
