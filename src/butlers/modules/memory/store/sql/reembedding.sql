-- name: has_stale(tenant_id, version)$
-- Whether a memory's vector is missing or of another version. Three conditions, because each reads an index.
select exists (select from memories where tenant_id = :tenant_id and embedding_version_id < :version)
    or exists (select from memories where tenant_id = :tenant_id and embedding_version_id > :version)
    or exists (select from memories where tenant_id = :tenant_id and (embedding_version_id is null or embedding is null));

-- name: count_stale(tenant_id, version)$
-- How many memories have no vector, or one of another version.
select count(*) from memories where tenant_id = :tenant_id and (embedding_version_id is distinct from :version or embedding is null);

-- name: fetch_stale(tenant_id, memory_type, version, after, max_rows)
-- The next memories of one type after an id with no vector, or one of another version.
select id, subject, predicate, content
  from memories
 where tenant_id = :tenant_id
   and memory_type = :memory_type
   and id > :after
   and (embedding_version_id is distinct from :version or embedding is null)
 order by id
 limit :max_rows;

-- name: write_embeddings(tenant_id, memory_type, version, ids, contents, vectors)$
-- Writes new vectors and counts them. A memory whose content changed meanwhile, or that is up to date, is skipped.
-- Rows are locked in id order.
with vectors as (
    select * from unnest(:ids::uuid[], :contents::text[], :vectors::vector[]) as v (id, content, embedding)
), locked_facts as materialized (
    select id
      from facts
     where :memory_type = 'fact' and tenant_id = :tenant_id and id = any (:ids::uuid[])
     order by id
       for no key update
), locked_rules as materialized (
    select id
      from rules
     where :memory_type = 'rule' and tenant_id = :tenant_id and id = any (:ids::uuid[])
     order by id
       for no key update
), locked_episodes as materialized (
    select id
      from episodes
     where :memory_type = 'episode' and tenant_id = :tenant_id and id = any (:ids::uuid[])
     order by id
       for no key update
), written_facts as (
    update facts m
       set embedding = v.embedding, embedding_version_id = :version
      from vectors v
      join locked_facts l on l.id = v.id
     where m.tenant_id = :tenant_id
       and m.id = v.id
       and m.content = v.content
       and (m.embedding_version_id is distinct from :version or m.embedding is null)
    returning m.id
), written_rules as (
    update rules m
       set embedding = v.embedding, embedding_version_id = :version
      from vectors v
      join locked_rules l on l.id = v.id
     where m.tenant_id = :tenant_id
       and m.id = v.id
       and m.content = v.content
       and (m.embedding_version_id is distinct from :version or m.embedding is null)
    returning m.id
), written_episodes as (
    update episodes m
       set embedding = v.embedding, embedding_version_id = :version
      from vectors v
      join locked_episodes l on l.id = v.id
     where m.tenant_id = :tenant_id
       and m.id = v.id
       and m.content = v.content
       and (m.embedding_version_id is distinct from :version or m.embedding is null)
    returning m.id
)
select (select count(*) from written_facts)
     + (select count(*) from written_rules)
     + (select count(*) from written_episodes);
