-- name: is_stale(tenant_id, version)$
-- Whether a memory's vector was made by anything but this version, or is missing.
select exists (select from facts where tenant_id = :tenant_id and embedding_version_id < :version)
    or exists (select from facts where tenant_id = :tenant_id and embedding_version_id > :version)
    or exists (select from facts where tenant_id = :tenant_id and embedding_version_id is null)
    or exists (select from rules where tenant_id = :tenant_id and embedding_version_id < :version)
    or exists (select from rules where tenant_id = :tenant_id and embedding_version_id > :version)
    or exists (select from rules where tenant_id = :tenant_id and embedding_version_id is null)
    or exists (select from episodes where tenant_id = :tenant_id and embedding_version_id < :version)
    or exists (select from episodes where tenant_id = :tenant_id and embedding_version_id > :version)
    or exists (select from episodes where tenant_id = :tenant_id and embedding_version_id is null);

-- name: count_stale(tenant_id, version)$
-- How many memories have a vector of another version, or none.
select (select count(*) from facts where tenant_id = :tenant_id and embedding_version_id is distinct from :version)
     + (select count(*) from rules where tenant_id = :tenant_id and embedding_version_id is distinct from :version)
     + (select count(*) from episodes where tenant_id = :tenant_id and embedding_version_id is distinct from :version);

-- name: stale_facts(tenant_id, version, after, most)
-- The next facts behind an id whose vector is of another version, or missing.
select id, subject, predicate, content
  from facts
 where tenant_id = :tenant_id
   and id > :after
   and embedding_version_id is distinct from :version
 order by id
 limit :most;

-- name: renew_facts(tenant_id, version, ids, contents, vectors)
-- Their new vectors; one that says something else by now, or has been renewed, is left alone. Taken in the order of their ids, as everybody does.
with held as materialized (
    select id from facts where tenant_id = :tenant_id and id = any (:ids::uuid[]) order by id for no key update
)
update facts m
   set embedding = v.embedding, embedding_version_id = :version
  from unnest(:ids::uuid[], :contents::text[], :vectors::vector[]) as v (id, content, embedding)
 where m.tenant_id = :tenant_id
   and m.id = v.id
   and m.id in (select id from held)
   and m.content = v.content
   and m.embedding_version_id is distinct from :version
returning m.id;

-- name: stale_rules(tenant_id, version, after, most)
-- The next rules behind an id whose vector is of another version, or missing.
select id, content
  from rules
 where tenant_id = :tenant_id
   and id > :after
   and embedding_version_id is distinct from :version
 order by id
 limit :most;

-- name: renew_rules(tenant_id, version, ids, contents, vectors)
-- Their new vectors; one that says something else by now, or has been renewed, is left alone. Taken in the order of their ids, as everybody does.
with held as materialized (
    select id from rules where tenant_id = :tenant_id and id = any (:ids::uuid[]) order by id for no key update
)
update rules m
   set embedding = v.embedding, embedding_version_id = :version
  from unnest(:ids::uuid[], :contents::text[], :vectors::vector[]) as v (id, content, embedding)
 where m.tenant_id = :tenant_id
   and m.id = v.id
   and m.id in (select id from held)
   and m.content = v.content
   and m.embedding_version_id is distinct from :version
returning m.id;

-- name: stale_episodes(tenant_id, version, after, most)
-- The next episodes behind an id whose vector is of another version, or missing.
select id, content
  from episodes
 where tenant_id = :tenant_id
   and id > :after
   and embedding_version_id is distinct from :version
 order by id
 limit :most;

-- name: renew_episodes(tenant_id, version, ids, contents, vectors)
-- Their new vectors; one that says something else by now, or has been renewed, is left alone. Taken in the order of their ids, as everybody does.
with held as materialized (
    select id from episodes where tenant_id = :tenant_id and id = any (:ids::uuid[]) order by id for no key update
)
update episodes m
   set embedding = v.embedding, embedding_version_id = :version
  from unnest(:ids::uuid[], :contents::text[], :vectors::vector[]) as v (id, content, embedding)
 where m.tenant_id = :tenant_id
   and m.id = v.id
   and m.id in (select id from held)
   and m.content = v.content
   and m.embedding_version_id is distinct from :version
returning m.id;
