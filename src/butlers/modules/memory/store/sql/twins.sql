-- name: newest_facts(tenant_id, version, max_rows)
-- The newest live facts with their vectors.
select id, entity_id, subject, embedding
  from facts
 where tenant_id = :tenant_id
   and validity = 'active'
   and embedding_version_id = :version
   and embedding is not null
 order by created_at desc, id desc
 limit :max_rows;

-- name: newest_rules(tenant_id, version, max_rows)
-- The newest live rules with their vectors.
select id, scope, embedding
  from rules
 where tenant_id = :tenant_id
   and not coalesce((metadata -> 'forgotten')::boolean, false)
   and embedding_version_id = :version
   and embedding is not null
 order by created_at desc, id desc
 limit :max_rows;

-- name: linked_pairs(tenant_id, memory_type, ids, other_ids)
-- Those of these pairs that a link connects, in either direction. A contradiction waits for a decision, as twins do.
select p.id, p.other_id
  from unnest(:ids::uuid[], :other_ids::uuid[]) as p (id, other_id)
 where exists (
           select
             from memory_links l
            where l.tenant_id = :tenant_id
              and l.source_type = :memory_type and l.source_id = p.id
              and l.target_type = :memory_type and l.target_id = p.other_id
              and l.relation <> 'contradicts'
       )
    or exists (
           select
             from memory_links l
            where l.tenant_id = :tenant_id
              and l.source_type = :memory_type and l.source_id = p.other_id
              and l.target_type = :memory_type and l.target_id = p.id
              and l.relation <> 'contradicts'
       );

-- name: contradicting_facts(tenant_id, max_rows)
-- Pairs of live facts of which one contradicts the other, the newest first. The links are read first: without
-- statistics the server would join all facts with each other.
with contradiction as materialized (
    select source_id, target_id, created_at
      from memory_links
     where tenant_id = :tenant_id
       and source_type = 'fact'
       and target_type = 'fact'
       and relation = 'contradicts'
)
select l.source_id as id, l.target_id as other_id, 1 - (f.embedding <=> o.embedding) as similarity
  from contradiction l
 cross join lateral (
     select embedding, embedding_version_id
       from facts
      where tenant_id = :tenant_id and id = l.source_id and validity = 'active'
     offset 0
 ) f
 cross join lateral (
     select embedding
       from facts
      where tenant_id = :tenant_id
        and id = l.target_id
        and validity = 'active'
        and embedding_version_id = f.embedding_version_id
     offset 0
 ) o
 order by l.created_at desc, l.source_id, l.target_id
 limit :max_rows;

-- name: entity_pairs(tenant_id, max_newest, max_rows)
-- Pairs of live entities with one name, without case and accents: by name (1), or by the alias of one (0.9).
select p.id, p.other_id, p.similarity
  from find_entity_twins(:max_newest, 10) p
 where not exists (
       select
         from memory_events e
        where e.tenant_id = :tenant_id
          and e.entity_type = 'entity'
          and e.entity_id = p.id
          and e.event_type = 'entity_related'
          and e.payload ->> 'related_to' = p.other_id::text
          and not exists (
              select
                from memory_events u
               where u.tenant_id = :tenant_id
                 and u.entity_type = 'entity'
                 and u.payload ? 'undone'
                 and u.payload ->> 'undone' = e.request_id
                 and u.entity_id = e.entity_id
          )
   )
 order by p.similarity desc, p.id, p.other_id
 limit :max_rows;
