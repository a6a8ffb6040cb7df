-- The way from a question to its candidates: the vector arm, the keyword arm, and the measures of what they find. Each
-- function has one plan for all tenants, and it reads indexes alone. The vector arm has the caller's rights: row-level
-- security applies as it does to the tables. The keyword arm has the owner's, because the operators of its index are
-- not leakproof; it has the tenant in front of each term.

-- Each vector twice on disk: in its row and in the vector index.
drop index facts_exact, rules_exact, episodes_exact;

-- The neighbours of an episode in its session.
create index episodes_by_session_time on episodes (tenant_id, session_id, created_at, id) where session_id is not null;
drop index episodes_by_session;

create function terms_query(terms text[]) returns tsquery
language sql immutable parallel safe set search_path = pg_catalog as $$
    select coalesce(
        string_agg('''' || replace(replace(term, '\', '\\'), '''', '''''') || '''', ' | '), ''
    )::tsquery
      from unnest(terms) as term
$$;
comment on function terms_query(text[]) is 'A query for any of these lexemes.';

-- Sorting is off, so that the order comes from the graph. One subquery for each table: not every one has a graph, and
-- the order of all of them together would take a sort.
create function nearest_by_graph(
    wanted_type text, wanted_scopes text[], advice_only boolean, min_confidence double precision, depth bigint,
    question_vector vector, version uuid
)
returns table (id uuid, created_at timestamptz, similarity double precision)
language plpgsql stable rows 100
set search_path = public, pg_catalog set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
declare
    tenant text := current_tenant();
begin
    return query
    (
        select m.id, m.created_at, 1 - (m.embedding <=> question_vector)
          from memories m
         where wanted_type = 'fact'
           and m.memory_type = 'fact'
           and m.tenant_id = tenant
           and m.embedding_version_id = version
           and m.is_live
           and (wanted_scopes is null or m.scope = any (wanted_scopes))
           and coalesce(m.confidence >= min_confidence, true)
         order by m.embedding::halfvec(384) <=> question_vector::halfvec(384)
         limit depth
    )
    union all
    (
        select m.id, m.created_at, 1 - (m.embedding <=> question_vector)
          from memories m
         where wanted_type = 'rule'
           and m.memory_type = 'rule'
           and m.tenant_id = tenant
           and m.embedding_version_id = version
           and m.is_live
           and (wanted_scopes is null or m.scope = any (wanted_scopes))
           and not (advice_only and m.awaits_inversion)
           and coalesce(m.confidence >= min_confidence, true)
         order by m.embedding::halfvec(384) <=> question_vector::halfvec(384)
         limit depth
    )
    union all
    (
        select m.id, m.created_at, 1 - (m.embedding <=> question_vector)
          from memories m
         where wanted_type = 'episode'
           and m.memory_type = 'episode'
           and m.tenant_id = tenant
           and m.embedding_version_id = version
           and m.is_live
           and (wanted_scopes is null or m.scope = any (wanted_scopes))
         order by m.embedding::halfvec(384) <=> question_vector::halfvec(384)
         limit depth
    );
end $$;
comment on function nearest_by_graph(text, text[], boolean, double precision, bigint, vector, uuid) is
    'The live memories of one type nearest to a vector, by the HNSW index.';

-- `+ 0` keeps the planner from the vector index: every vector in scope is compared. The graph is asked for a hundred at
-- least: the nearest ten are among them, though it holds half precision and the rows of other tenants.
create function nearest_memories(
    wanted_type text, wanted_scopes text[], uses_graph boolean, advice_only boolean, min_confidence double precision,
    depth bigint, question_vector vector, version uuid
)
returns table (id uuid, created_at timestamptz, similarity double precision)
language plpgsql stable rows 100
set search_path = public, pg_catalog set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
    tenant text := current_tenant();
begin
    if uses_graph then
        return query
        select g.id, g.created_at, g.similarity
          from nearest_by_graph(
                   wanted_type, wanted_scopes, advice_only, min_confidence, greatest(depth, 100), question_vector,
                   version
               ) g
         order by g.similarity desc, g.created_at desc, g.id
         limit depth;
    else
        return query
        select m.id, m.created_at, 1 - ((m.embedding <=> question_vector) + 0)
          from memories m
         where m.tenant_id = tenant
           and m.memory_type = wanted_type
           and m.embedding_version_id = version
           and m.embedding is not null
           and m.is_live
           and (wanted_scopes is null or m.scope = any (wanted_scopes))
           and not (advice_only and m.awaits_inversion)
           and coalesce(m.confidence >= min_confidence, true)
         order by 3 desc, 2 desc, 1
         limit depth;
    end if;
end $$;
comment on function nearest_memories(text, text[], boolean, boolean, double precision, bigint, vector, uuid) is
    'The live memories of one type nearest to a vector, the nearest first: by the HNSW index, or exact.';

-- Rare terms are looked up alone and common terms in pairs; the fallback terms only where these find too little. The
-- operands `tenant_id || ''` and `state || ''` keep the planner from every index but that on terms.
create function keyword_matches(
    wanted_type text, wanted_scopes text[], advice_only boolean, min_confidence double precision, depth bigint,
    language regconfig, question text, single_terms text[], first_terms text[], second_terms text[],
    fallback_terms text[], max_rows bigint
)
returns table (id uuid, created_at timestamptz, rank real, has_all_terms boolean)
language plpgsql stable security definer rows 100
set search_path = public, pg_catalog set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
    tenant text := current_tenant();
    any_of tsquery := terms_query(tsvector_to_array(to_tsvector(language, question)));
    all_of tsquery := plainto_tsquery(language, question);
begin
    return query
    with selective as materialized (
        select distinct on (matching.id) matching.*
          from (
              select m.id, m.created_at, m.search_vector
                from memories m
               where m.memory_type = wanted_type
                 and m.tenant_id || '' = tenant
                 and m.state || '' = 'active'
                 and (wanted_scopes is null or m.scope = any (wanted_scopes))
                 and not (advice_only and m.awaits_inversion)
                 and coalesce(m.confidence >= min_confidence, true)
                 and tenant_terms(m.tenant_id, tsvector_to_array(m.search_vector)) && tenant_terms(tenant, single_terms)
              union all
              select m.id, m.created_at, m.search_vector
                from unnest(first_terms, second_terms) as pair (one, other), memories m
               where m.memory_type = wanted_type
                 and m.tenant_id || '' = tenant
                 and m.state || '' = 'active'
                 and (wanted_scopes is null or m.scope = any (wanted_scopes))
                 and not (advice_only and m.awaits_inversion)
                 and coalesce(m.confidence >= min_confidence, true)
                 and tenant_terms(m.tenant_id, tsvector_to_array(m.search_vector))
                     @> tenant_terms(tenant, array[pair.one, pair.other])
               limit max_rows
          ) matching
         order by matching.id
    ), found as (
        select * from selective
        union all
        (
            select m.id, m.created_at, m.search_vector
              from memories m
             where m.memory_type = wanted_type
               and m.tenant_id || '' = tenant
               and m.state || '' = 'active'
               and (wanted_scopes is null or m.scope = any (wanted_scopes))
               and not (advice_only and m.awaits_inversion)
               and coalesce(m.confidence >= min_confidence, true)
               and tenant_terms(m.tenant_id, tsvector_to_array(m.search_vector)) && tenant_terms(tenant, fallback_terms)
               and (select count(*) from selective) < depth
               and not exists (select 1 from selective where selective.id = m.id)
             limit max_rows
        )
    )
    select found.id, found.created_at, ts_rank(found.search_vector, any_of), found.search_vector @@ all_of
      from found
     order by 4 desc, 3 desc
     fetch first depth rows with ties;
end $$;
comment on function keyword_matches(
    text, text[], boolean, double precision, bigint, regconfig, text, text[], text[], text[], text[], bigint
) is 'The live memories of one type with terms of a question, the best and all that tie with the last of them.';

-- Without a vector the vector arm finds nothing, without terms the keyword arm. Equal ranks of the keyword arm go to
-- the nearer memory, then to the newer. A vector of another version is never compared.
create function search_candidates(
    wanted_type text, wanted_scopes text[], uses_graph boolean, advice_only boolean, with_neighbours boolean,
    min_confidence double precision, depth bigint, question_vector vector, version uuid, language regconfig,
    question text, single_terms text[], first_terms text[], second_terms text[], fallback_terms text[],
    max_rows bigint, weighted_terms text[], term_weights double precision[]
)
returns table (
    id uuid, created_at timestamptz, importance double precision, maturity text, last_referenced_at timestamptz,
    confidence double precision, similarity double precision, semantic_rank bigint, rank real, has_all_terms boolean,
    keyword_rank bigint, coverage double precision, previous_similarity double precision,
    previous_coverage double precision, next_similarity double precision, next_coverage double precision
)
language plpgsql stable rows 200
set search_path = public, pg_catalog set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
declare
    tenant text := current_tenant();
begin
    return query
    with nearest as materialized (
        select n.id, n.similarity, row_number() over (order by n.similarity desc, n.created_at desc, n.id) as place
          from nearest_memories(
                   wanted_type, wanted_scopes, uses_graph, advice_only, min_confidence, depth, question_vector, version
               ) n
         where question_vector is not null
    ), matching as materialized (
        select k.id, k.created_at, k.rank, k.has_all_terms, m.similarity
          from keyword_matches(
                   wanted_type, wanted_scopes, advice_only, min_confidence, depth, language, question, single_terms,
                   first_terms, second_terms, fallback_terms, max_rows
               ) k
         cross join lateral (
             select case when m.embedding_version_id = version then 1 - (m.embedding <=> question_vector) end as similarity
               from memories m
              where m.tenant_id = tenant
                and m.memory_type = wanted_type
                and m.id = k.id
             offset 0
         ) m
         where single_terms is not null
    ), keyword as materialized (
        select matching.*, row_number() over (
                   order by has_all_terms desc, rank desc, similarity desc nulls last, created_at desc, id
               ) as place
          from matching
         order by place
         limit depth
    ), found as materialized (
        select coalesce(nearest.id, keyword.id) as id, nearest.place as semantic_rank, keyword.rank,
               keyword.has_all_terms, keyword.place as keyword_rank
          from nearest
          full join keyword on keyword.id = nearest.id
    ), neighbours as materialized (
        select e.id, before.id as previous_id, after.id as next_id
          from found
         cross join lateral (
             select e.id, e.session_id, e.created_at
               from episodes e
              where with_neighbours
                and wanted_type = 'episode'
                and e.tenant_id = tenant
                and e.id = found.id
                and e.session_id is not null
             offset 0
         ) e
          left join lateral (
             select p.id
               from episodes p
              where p.tenant_id = tenant
                and p.session_id = e.session_id
                and (p.created_at, p.id) < (e.created_at, e.id)
                and (p.expires_at is null or p.expires_at > now())
                and (wanted_scopes is null or p.butler = any (wanted_scopes))
              order by p.created_at desc, p.id desc
              limit 1
         ) before on true
          left join lateral (
             select n.id
               from episodes n
              where n.tenant_id = tenant
                and n.session_id = e.session_id
                and (n.created_at, n.id) > (e.created_at, e.id)
                and (n.expires_at is null or n.expires_at > now())
                and (wanted_scopes is null or n.butler = any (wanted_scopes))
              order by n.created_at, n.id
              limit 1
         ) after on true
    ), weights as materialized (
        select term_query(w.term) as query, w.weight from unnest(weighted_terms, term_weights) as w (term, weight)
    ), measured as materialized (
        select m.*
          from (
              select id from found
              union
              select previous_id from neighbours
              union
              select next_id from neighbours
          ) wanted
         cross join lateral (
             select m.id, m.created_at, m.importance, m.maturity, m.last_referenced_at, m.confidence,
                    case when m.embedding_version_id = version then 1 - (m.embedding <=> question_vector) end
                        as similarity,
                    (
                        select least(1.0, coalesce(sum(w.weight), 0))
                          from weights w
                         where m.search_vector @@ w.query
                    ) as coverage
               from memories m
              where m.tenant_id = tenant
                and m.memory_type = wanted_type
                and m.id = wanted.id
             offset 0
         ) m
    )
    select m.id, m.created_at, m.importance, m.maturity, m.last_referenced_at, m.confidence, m.similarity,
           found.semantic_rank, found.rank, found.has_all_terms, found.keyword_rank, m.coverage,
           p.similarity, p.coverage, n.similarity, n.coverage
      from found
      join measured m on m.id = found.id
      left join neighbours on neighbours.id = found.id
      left join measured p on p.id = neighbours.previous_id
      left join measured n on n.id = neighbours.next_id;
end $$;
comment on function search_candidates(
    text, text[], boolean, boolean, boolean, double precision, bigint, vector, uuid, regconfig, text, text[], text[],
    text[], text[], bigint, text[], double precision[]
) is 'The live memories of one type that either arm of a search finds, with their ranks and measures.';
