-- name: vector_indexes()
-- The vector index of each table: how it is built, and about how many rows it has.
select t.relname as "table", i.relname as "index", am.amname as method, greatest(t.reltuples, 0)::bigint as rows,
       pg_relation_size(i.oid) as bytes, coalesce(i.reloptions, '{}') as options
  from pg_index x
  join pg_class i on i.oid = x.indexrelid
  join pg_class t on t.oid = x.indrelid
  join pg_am am on am.oid = i.relam
 where t.relnamespace = 'public'::regnamespace
   and i.relname in ('facts_embedding', 'rules_embedding', 'episodes_embedding')
   and x.indisvalid
 order by t.relname;

-- name: half_replaced()
-- Tables whose new index is finished, while the old one is gone or going: an upkeep ended before the new one had its name.
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

-- name: roomy()!
-- Memory enough for the graph of an index, or more where the server is set up for it, and no hurry.
select set_config('maintenance_work_mem', greatest(
           pg_size_bytes(current_setting('maintenance_work_mem')), pg_size_bytes('512MB')
       ) / 1024 || 'kB', false),
       set_config('statement_timeout', '0', false);

-- name: by_index()!
-- From now on the nearest are found by the vector index, as a search of a large tenant finds them.
select set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('enable_sort', 'off', true), set_config('ivfflat.probes', '20', true),
       set_config('hnsw.ef_search', '400', true), set_config('hnsw.iterative_scan', 'relaxed_order', true),
       set_config('hnsw.max_scan_tuples', '40000', true);

-- name: largest_facts()$
-- The tenant that has most of them, by a sample of the table; any tenant where the sample is empty.
select coalesce(
    (select tenant_id from facts tablesample system (5) group by tenant_id order by count(*) desc, tenant_id limit 1),
    (select tenant_id from facts limit 1)
);

-- name: sample_facts(tenant_id, most)
-- Some facts of a tenant, to look for their neighbours.
select m.tenant_id, m.id
  from facts m
 where m.embedding is not null
   and m.validity = 'active'
   and m.tenant_id = :tenant_id
 order by hashtext(m.id::text)
 limit :most;

-- name: neighbours_exactly_facts(tenant_id, id, most)
-- How far the nearest to one of them are, by comparing everything.
select (m.embedding <=> asked.embedding) + 0 as distance
  from facts m
  join facts asked on asked.tenant_id = :tenant_id and asked.id = :id
 where m.tenant_id = :tenant_id
   and m.embedding_version_id = asked.embedding_version_id
   and m.validity = 'active'
 order by distance
 limit :most;

-- name: neighbours_by_index_facts(tenant_id, id, most)
-- How far the nearest to one of them are, in the order the vector index gives.
select m.embedding <=> (select embedding from facts where tenant_id = :tenant_id and id = :id) as distance
  from facts m
 where m.tenant_id = :tenant_id
   and m.embedding_version_id = (select embedding_version_id from facts where tenant_id = :tenant_id and id = :id)
   and m.validity = 'active'
 order by distance
 limit :most;

-- name: drop_unfinished_facts()!
-- What an interrupted build left behind.
drop index concurrently if exists facts_embedding_next;

-- name: build_facts()!
-- A graph instead of lists, beside the index in use.
create index concurrently facts_embedding_next on facts using hnsw (embedding vector_cosine_ops);

-- name: build_finely_facts()!
-- A graph with more edges, for where the ordinary one does not find enough.
create index concurrently facts_embedding_next on facts using hnsw (embedding vector_cosine_ops)
  with (m = 32, ef_construction = 200);

-- name: drop_facts()!
-- The index the new one replaces.
drop index concurrently if exists facts_embedding;

-- name: install_facts()!
-- The new index under the old one's name.
alter index facts_embedding_next rename to facts_embedding;

-- name: largest_rules()$
-- The tenant that has most of them, by a sample of the table; any tenant where the sample is empty.
select coalesce(
    (select tenant_id from rules tablesample system (5) group by tenant_id order by count(*) desc, tenant_id limit 1),
    (select tenant_id from rules limit 1)
);

-- name: sample_rules(tenant_id, most)
-- Some rules of a tenant, to look for their neighbours.
select m.tenant_id, m.id
  from rules m
 where m.embedding is not null
   and not coalesce((m.metadata -> 'forgotten')::boolean, false)
   and m.tenant_id = :tenant_id
 order by hashtext(m.id::text)
 limit :most;

-- name: neighbours_exactly_rules(tenant_id, id, most)
-- How far the nearest to one of them are, by comparing everything.
select (m.embedding <=> asked.embedding) + 0 as distance
  from rules m
  join rules asked on asked.tenant_id = :tenant_id and asked.id = :id
 where m.tenant_id = :tenant_id
   and m.embedding_version_id = asked.embedding_version_id
   and not coalesce((m.metadata -> 'forgotten')::boolean, false)
 order by distance
 limit :most;

-- name: neighbours_by_index_rules(tenant_id, id, most)
-- How far the nearest to one of them are, in the order the vector index gives.
select m.embedding <=> (select embedding from rules where tenant_id = :tenant_id and id = :id) as distance
  from rules m
 where m.tenant_id = :tenant_id
   and m.embedding_version_id = (select embedding_version_id from rules where tenant_id = :tenant_id and id = :id)
   and not coalesce((m.metadata -> 'forgotten')::boolean, false)
 order by distance
 limit :most;

-- name: drop_unfinished_rules()!
-- What an interrupted build left behind.
drop index concurrently if exists rules_embedding_next;

-- name: build_rules()!
-- A graph instead of lists, beside the index in use.
create index concurrently rules_embedding_next on rules using hnsw (embedding vector_cosine_ops);

-- name: build_finely_rules()!
-- A graph with more edges, for where the ordinary one does not find enough.
create index concurrently rules_embedding_next on rules using hnsw (embedding vector_cosine_ops)
  with (m = 32, ef_construction = 200);

-- name: drop_rules()!
-- The index the new one replaces.
drop index concurrently if exists rules_embedding;

-- name: install_rules()!
-- The new index under the old one's name.
alter index rules_embedding_next rename to rules_embedding;

-- name: largest_episodes()$
-- The tenant that has most of them, by a sample of the table; any tenant where the sample is empty.
select coalesce(
    (select tenant_id from episodes tablesample system (5) group by tenant_id order by count(*) desc, tenant_id limit 1),
    (select tenant_id from episodes limit 1)
);

-- name: sample_episodes(tenant_id, most)
-- Some episodes of a tenant, to look for their neighbours.
select m.tenant_id, m.id
  from episodes m
 where m.embedding is not null
   and (m.expires_at is null or m.expires_at > now())
   and m.tenant_id = :tenant_id
 order by hashtext(m.id::text)
 limit :most;

-- name: neighbours_exactly_episodes(tenant_id, id, most)
-- How far the nearest to one of them are, by comparing everything.
select (m.embedding <=> asked.embedding) + 0 as distance
  from episodes m
  join episodes asked on asked.tenant_id = :tenant_id and asked.id = :id
 where m.tenant_id = :tenant_id
   and m.embedding_version_id = asked.embedding_version_id
   and (m.expires_at is null or m.expires_at > now())
 order by distance
 limit :most;

-- name: neighbours_by_index_episodes(tenant_id, id, most)
-- How far the nearest to one of them are, in the order the vector index gives.
select m.embedding <=> (select embedding from episodes where tenant_id = :tenant_id and id = :id) as distance
  from episodes m
 where m.tenant_id = :tenant_id
   and m.embedding_version_id = (select embedding_version_id from episodes where tenant_id = :tenant_id and id = :id)
   and (m.expires_at is null or m.expires_at > now())
 order by distance
 limit :most;

-- name: drop_unfinished_episodes()!
-- What an interrupted build left behind.
drop index concurrently if exists episodes_embedding_next;

-- name: build_episodes()!
-- A graph instead of lists, beside the index in use.
create index concurrently episodes_embedding_next on episodes using hnsw (embedding vector_cosine_ops);

-- name: build_finely_episodes()!
-- A graph with more edges, for where the ordinary one does not find enough.
create index concurrently episodes_embedding_next on episodes using hnsw (embedding vector_cosine_ops)
  with (m = 32, ef_construction = 200);

-- name: drop_episodes()!
-- The index the new one replaces.
drop index concurrently if exists episodes_embedding;

-- name: install_episodes()!
-- The new index under the old one's name.
alter index episodes_embedding_next rename to episodes_embedding;

-- name: vacuum_facts()!
-- Deleted rows are no longer kept.
vacuum facts;

-- name: vacuum_rules()!
-- Deleted rows are no longer kept.
vacuum rules;

-- name: vacuum_episodes()!
-- Deleted rows are no longer kept.
vacuum episodes;

-- name: vacuum_entities()!
-- Deleted rows are no longer kept.
vacuum entities;

-- name: vacuum_memory_links()!
-- Deleted rows are no longer kept.
vacuum memory_links;
