-- name: list_vector_indexes()
-- The vector index of each table: its method, size and options, and the table's estimated rows. A graph holds half
-- precision, so its column is an expression; one of whole vectors counts as another method.
select t.relname as "table", i.relname as "index",
       case when am.amname = 'hnsw' and x.indexprs is null then 'hnsw, whole vectors' else am.amname end as method,
       greatest(t.reltuples, 0)::bigint as rows, pg_stat_get_live_tuples(t.oid) as counted_rows,
       pg_relation_size(i.oid) as bytes, coalesce(i.reloptions, '{}') as options
  from pg_index x
  join pg_class i on i.oid = x.indexrelid
  join pg_class t on t.oid = x.indrelid
  join pg_am am on am.oid = i.relam
 where t.relnamespace = 'public'::regnamespace
   and i.relname in ('facts_embedding', 'rules_embedding', 'episodes_embedding')
   and x.indisvalid
 order by t.relname;

-- name: interrupted_rebuilds()
-- Tables with a finished new index whose old one is gone or invalid: a rebuild ended before it renamed the new one.
select t.relname as "table"
  from pg_index x
  join pg_class i on i.oid = x.indexrelid
  join pg_class t on t.oid = x.indrelid
 where t.relnamespace = 'public'::regnamespace
   and i.relname in ('facts_embedding_next', 'rules_embedding_next', 'episodes_embedding_next')
   and x.indisvalid
   and not exists (
       select
         from pg_index old
         join pg_class named on named.oid = old.indexrelid
        where old.indrelid = t.oid and named.relname = t.relname || '_embedding' and old.indisvalid
   );

-- name: raise_limits()!
-- At least 512 MB for building a graph, and no time limit.
select set_config('maintenance_work_mem', greatest(
           pg_size_bytes(current_setting('maintenance_work_mem')), pg_size_bytes('512MB')
       ) / 1024 || 'kB', false),
       set_config('statement_timeout', '0', false);

-- name: force_vector_index()!
-- Until the transaction ends, nearest neighbours are found through the vector index, with the settings of a search.
select set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('enable_sort', 'off', true), set_config('ivfflat.probes', '20', true),
       set_config('hnsw.ef_search', '400', true), set_config('hnsw.iterative_scan', 'relaxed_order', true),
       set_config('hnsw.max_scan_tuples', '40000', true);

-- name: sample(memory_type, max_rows)
-- Some live memories of the tenant that has the most of one type.
select m.tenant_id, m.id
  from memories m
 where m.memory_type = :memory_type
   and m.tenant_id = (
       select tenant_id
         from memories
        where memory_type = :memory_type
        group by tenant_id
        order by count(*) desc, tenant_id
        limit 1
   )
   and m.embedding is not null
   and m.is_live
 order by hashtext(m.id::text)
 limit :max_rows;

-- name: nearest_exact(memory_type, tenant_id, id, max_rows)
-- The distances of a memory's nearest neighbours, by comparing every vector.
select (m.embedding <=> origin.embedding) + 0 as distance
  from memories m
  join memories origin
    on origin.tenant_id = :tenant_id and origin.memory_type = :memory_type and origin.id = :id
 where m.tenant_id = :tenant_id
   and m.memory_type = :memory_type
   and m.embedding_version_id = origin.embedding_version_id
   and m.is_live
 order by distance
 limit :max_rows;

-- name: nearest_by_whole_vectors(memory_type, tenant_id, id, max_rows)
-- The distances of a memory's nearest neighbours, in the order that an index of whole vectors gives.
with origin as materialized (
    select embedding, embedding_version_id
      from memories
     where tenant_id = :tenant_id
       and memory_type = :memory_type
       and id = :id
)
select embedding <=> (select embedding from origin) as distance
  from memories
 where tenant_id = :tenant_id
   and memory_type = :memory_type
   and embedding_version_id = (select embedding_version_id from origin)
   and is_live
 order by embedding <=> (select embedding from origin)
 limit :max_rows;

-- name: nearest_by_graph(memory_type, tenant_id, id, max_rows)
-- The distances of a memory's nearest neighbours among those that an HNSW index finds for a search of depth 100.
with origin as materialized (
    select embedding, embedding_version_id
      from memories
     where tenant_id = :tenant_id
       and memory_type = :memory_type
       and id = :id
), found as materialized (
    select embedding <=> (select embedding from origin) as distance
      from memories
     where tenant_id = :tenant_id
       and memory_type = :memory_type
       and embedding_version_id = (select embedding_version_id from origin)
       and is_live
     order by embedding::halfvec(384) <=> (select embedding from origin)::halfvec(384)
     limit 100
)
select distance from found order by distance limit :max_rows;

-- Index names can't be parameters, and CREATE INDEX CONCURRENTLY can't run inside a function: three statements each.

-- name: drop_unfinished_facts()!
-- Drops what an interrupted build left behind.
drop index concurrently if exists facts_embedding_next;

-- name: drop_unfinished_rules()!
-- Drops what an interrupted build left behind.
drop index concurrently if exists rules_embedding_next;

-- name: drop_unfinished_episodes()!
-- Drops what an interrupted build left behind.
drop index concurrently if exists episodes_embedding_next;

-- name: build_facts()!
-- Builds an HNSW index beside the one in use.
create index concurrently facts_embedding_next on facts using hnsw ((embedding::halfvec(384)) halfvec_cosine_ops);

-- name: build_rules()!
-- Builds an HNSW index beside the one in use.
create index concurrently rules_embedding_next on rules using hnsw ((embedding::halfvec(384)) halfvec_cosine_ops);

-- name: build_episodes()!
-- Builds an HNSW index beside the one in use.
create index concurrently episodes_embedding_next on episodes using hnsw ((embedding::halfvec(384)) halfvec_cosine_ops);

-- name: build_dense_facts()!
-- Builds an HNSW index with more edges, where the ordinary one has too little recall.
create index concurrently facts_embedding_next on facts using hnsw ((embedding::halfvec(384)) halfvec_cosine_ops)
  with (m = 32, ef_construction = 200);

-- name: build_dense_rules()!
-- Builds an HNSW index with more edges, where the ordinary one has too little recall.
create index concurrently rules_embedding_next on rules using hnsw ((embedding::halfvec(384)) halfvec_cosine_ops)
  with (m = 32, ef_construction = 200);

-- name: build_dense_episodes()!
-- Builds an HNSW index with more edges, where the ordinary one has too little recall.
create index concurrently episodes_embedding_next on episodes using hnsw ((embedding::halfvec(384)) halfvec_cosine_ops)
  with (m = 32, ef_construction = 200);

-- name: drop_facts()!
-- Drops the index that the new one replaces.
drop index concurrently if exists facts_embedding;

-- name: drop_rules()!
-- Drops the index that the new one replaces.
drop index concurrently if exists rules_embedding;

-- name: drop_episodes()!
-- Drops the index that the new one replaces.
drop index concurrently if exists episodes_embedding;

-- name: rename_facts()!
-- Gives the new index the old one's name.
alter index facts_embedding_next rename to facts_embedding;

-- name: rename_rules()!
-- Gives the new index the old one's name.
alter index rules_embedding_next rename to rules_embedding;

-- name: rename_episodes()!
-- Gives the new index the old one's name.
alter index episodes_embedding_next rename to episodes_embedding;

-- name: analyze_facts()!
-- Updates the row estimate and the statistics.
analyze facts;

-- name: analyze_rules()!
-- Updates the row estimate and the statistics.
analyze rules;

-- name: analyze_episodes()!
-- Updates the row estimate and the statistics.
analyze episodes;

-- name: vacuum()!
-- Removes deleted rows from the files.
vacuum facts, rules, episodes, entities, memory_links;
