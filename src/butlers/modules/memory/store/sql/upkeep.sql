-- name: vector_indexes()
-- The vector index of each table: how it is built, and about how many rows it has.
select t.relname as "table", i.relname as "index", am.amname as method, greatest(t.reltuples, 0)::bigint as rows,
       pg_relation_size(i.oid) as bytes
  from pg_index x
  join pg_class i on i.oid = x.indexrelid
  join pg_class t on t.oid = x.indrelid
  join pg_am am on am.oid = i.relam
 where t.relnamespace = 'public'::regnamespace
   and i.relname in ('facts_embedding', 'rules_embedding', 'episodes_embedding')
   and x.indisvalid
 order by t.relname;

-- name: roomy()!
-- Memory enough for the graph of an index, and no hurry.
select set_config('maintenance_work_mem', '512MB', false), set_config('statement_timeout', '0', false);

-- name: drop_unfinished_facts()!
-- What an interrupted build left behind.
drop index concurrently if exists facts_embedding_next;

-- name: build_facts()!
-- A graph instead of lists, beside the index in use.
create index concurrently facts_embedding_next on facts using hnsw (embedding vector_cosine_ops);

-- name: drop_facts()!
-- The index the new one replaces.
drop index concurrently facts_embedding;

-- name: install_facts()!
-- The new index under the old one's name.
alter index facts_embedding_next rename to facts_embedding;

-- name: drop_unfinished_rules()!
-- What an interrupted build left behind.
drop index concurrently if exists rules_embedding_next;

-- name: build_rules()!
-- A graph instead of lists, beside the index in use.
create index concurrently rules_embedding_next on rules using hnsw (embedding vector_cosine_ops);

-- name: drop_rules()!
-- The index the new one replaces.
drop index concurrently rules_embedding;

-- name: install_rules()!
-- The new index under the old one's name.
alter index rules_embedding_next rename to rules_embedding;

-- name: drop_unfinished_episodes()!
-- What an interrupted build left behind.
drop index concurrently if exists episodes_embedding_next;

-- name: build_episodes()!
-- A graph instead of lists, beside the index in use.
create index concurrently episodes_embedding_next on episodes using hnsw (embedding vector_cosine_ops);

-- name: drop_episodes()!
-- The index the new one replaces.
drop index concurrently episodes_embedding;

-- name: install_episodes()!
-- The new index under the old one's name.
alter index episodes_embedding_next rename to episodes_embedding;
