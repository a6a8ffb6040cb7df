-- name: candidates(tenant_id, memory_type, version, embedding, is_exact, scopes, min_confidence, depth, reach, question, single_terms, first_terms, second_terms, fallback_terms, max_ranked)
-- The live memories of one type nearest to the vector, and those with terms of the question. The vector arm compares
-- every vector in scope where it is exact (and then drops those below the confidence), else it reads the vector index.
with compared as materialized (
    select id, created_at, (embedding <=> :embedding) + 0 as distance
      from memories
     where :is_exact
       and tenant_id = :tenant_id
       and memory_type = :memory_type
       and embedding_version_id = :version
       and is_live
       and (:scopes::text[] is null or scope = any (:scopes))
       and :embedding::vector is not null
       and embedding is not null
     order by distance, created_at desc, id
     limit :reach
), nearest as (
    (
        select c.id, c.created_at, c.distance, m.importance, m.maturity, m.awaits_inversion, m.last_referenced_at,
               m.confidence
          from compared c
         cross join lateral (
             select m.importance, m.maturity, m.awaits_inversion, m.last_referenced_at, m.confidence
               from memories m
              where m.tenant_id = :tenant_id
                and m.memory_type = :memory_type
                and m.id = c.id
                and coalesce(m.confidence >= :min_confidence, true)
             offset 0
         ) m
         order by c.distance, c.created_at desc, c.id
         limit :depth
    )
    union all
    (
        select id, created_at, embedding <=> :embedding, importance, maturity, awaits_inversion, last_referenced_at,
               confidence
          from memories
         where not :is_exact
           and tenant_id = :tenant_id
           and memory_type = :memory_type
           and embedding_version_id = :version
           and is_live
           and (:scopes::text[] is null or scope = any (:scopes))
           and :embedding::vector is not null
           and coalesce(confidence >= :min_confidence, true)
         order by embedding <=> :embedding
         limit :depth
    )
), semantic as (
    select nearest.*, row_number() over (order by distance, created_at desc, id) as place from nearest
), keyword as (
    select k.*
      from keyword_candidates(
               :memory_type, :question, :single_terms, :first_terms, :second_terms, :fallback_terms, :scopes,
               :min_confidence, :depth, :max_ranked
           ) with ordinality as k (
               id, created_at, rank, has_all_terms, importance, maturity, awaits_inversion, last_referenced_at,
               confidence, place
           )
     where :question::text is not null
)
select coalesce(semantic.id, keyword.id) as id,
       coalesce(semantic.created_at, keyword.created_at) as created_at,
       1 - semantic.distance as similarity,
       semantic.place as semantic_rank,
       keyword.rank,
       keyword.has_all_terms as has_all,
       keyword.place as keyword_rank,
       coalesce(semantic.importance, keyword.importance) as importance,
       coalesce(semantic.maturity, keyword.maturity) as maturity,
       coalesce(semantic.awaits_inversion, keyword.awaits_inversion, false) as awaits_inversion,
       extract(epoch from now() - coalesce(semantic.last_referenced_at, keyword.last_referenced_at))::double precision
           / 86400 as idle_days,
       coalesce(semantic.confidence, keyword.confidence) as confidence,
       reached.compared
  from (select count(*) as compared from compared) reached
  left join (semantic full join keyword on keyword.id = semantic.id) on true;

-- name: measure(tenant_id, version, embedding, terms, ids)
-- The similarity of each of these memories and the terms of the question it has.
with query as materialized (
    select term, term_query(term) as query from unnest(:terms::text[]) as term
)
select id,
       case when embedding_version_id = :version then 1 - (embedding <=> :embedding) end as similarity,
       array(select term from query where search_vector @@ query) as terms
  from memories
 where tenant_id = :tenant_id
   and id = any (:ids::uuid[]);

-- name: count_in_scope(tenant_id, memory_type, scopes, max_rows)$
-- How many live memories of one type are in scope, counted up to a limit.
select count(*)
  from (
      select
        from memories
       where tenant_id = :tenant_id
         and memory_type = :memory_type
         and is_live
         and (:scopes::text[] is null or scope = any (:scopes))
       limit :max_rows
  ) counted;

-- name: query_lexemes(question)$
-- The lexemes of a question, in the order they come in.
select array(select lexeme from unnest(to_tsvector('english', :question)) order by positions[1], lexeme);

-- name: term_frequencies()
-- The share of the current tenant's live facts that have a term, from a sample; rare terms are left out.
with sample as (
    select count(*) as size
      from (select 1 from facts where tenant_id = current_tenant() and validity = 'active' limit 3000) f
)
select word as term, ndoc::double precision / sample.size as share
  from sample,
       ts_stat($q$
           select search_vector
             from facts
            where tenant_id = current_tenant()
              and validity = 'active'
            order by id
            limit 3000
       $q$)
 where ndoc > 15;

-- name: hnsw_index_rows(index_name)$
-- The estimated number of rows of a table with an HNSW index of that name; no row for any other index.
select greatest(t.reltuples, 0)::bigint
  from pg_index x
  join pg_class i on i.oid = x.indexrelid
  join pg_class t on t.oid = x.indrelid
  join pg_am am on am.oid = i.relam
 where i.relnamespace = 'public'::regnamespace
   and i.relname = :index_name
   and am.amname = 'hnsw'
   and x.indisvalid;

-- name: set_plan_cache_mode(mode)!
-- How statements are planned until the transaction ends.
select set_config('plan_cache_mode', :mode, true);
