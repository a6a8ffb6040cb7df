-- name: insert(tenant_id, source_type, source_id, target_type, target_id, relation)!
-- An edge from one memory to another; making it twice is making it once.
insert into memory_links (tenant_id, source_type, source_id, target_type, target_id, relation)
values (:tenant_id, :source_type, :source_id, :target_type, :target_id, :relation)
on conflict do nothing;

-- name: insert_all(tenant_id, source_types, source_ids, target_types, target_ids, relations)!
-- Edges from some memories to others; those that are there already stay as they are.
insert into memory_links (tenant_id, source_type, source_id, target_type, target_id, relation)
select :tenant_id, l.source_type, l.source_id, l.target_type, l.target_id, l.relation
  from unnest(
           :source_types::text[], :source_ids::uuid[], :target_types::text[], :target_ids::uuid[], :relations::text[]
       ) as l (source_type, source_id, target_type, target_id, relation)
on conflict do nothing;

-- name: of_memory(tenant_id, memory_type, memory_id, outgoing, incoming)
-- The edges of one memory, in the directions asked for.
select source_type, source_id, target_type, target_id, relation, created_at
  from memory_links
 where tenant_id = :tenant_id
   and ((:outgoing and source_type = :memory_type and source_id = :memory_id)
     or (:incoming and target_type = :memory_type and target_id = :memory_id))
 order by created_at, source_type, source_id, target_type, target_id;
