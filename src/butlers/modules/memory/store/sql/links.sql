-- name: create_link(tenant_id, source_type, source_id, target_type, target_id, relation)!
-- Creates a link; an existing one stays as it is.
insert into memory_links (tenant_id, source_type, source_id, target_type, target_id, relation)
values (:tenant_id, :source_type, :source_id, :target_type, :target_id, :relation)
on conflict do nothing;

-- name: create_links(tenant_id, source_types, source_ids, target_types, target_ids, relations)!
-- Creates links; existing ones stay as they are.
insert into memory_links (tenant_id, source_type, source_id, target_type, target_id, relation)
select :tenant_id, l.source_type, l.source_id, l.target_type, l.target_id, l.relation
  from unnest(
           :source_types::text[], :source_ids::uuid[], :target_types::text[], :target_ids::uuid[], :relations::text[]
       ) as l (source_type, source_id, target_type, target_id, relation)
on conflict do nothing;

-- name: is_independent(tenant_id, memory_type, memory_id, episode_ids)$
-- Whether one of these episodes is neither a source of the memory nor of the same session as one.
select exists (
    select
      from episodes e
     where e.tenant_id = :tenant_id
       and e.id = any (:episode_ids)
       and not exists (
           select
             from memory_links l
             left join episodes o on o.tenant_id = :tenant_id and o.id = l.target_id
            where l.tenant_id = :tenant_id
              and l.source_type = :memory_type
              and l.source_id = :memory_id
              and l.target_type = 'episode'
              and l.relation = 'derived_from'
              and (l.target_id = e.id or o.session_id = e.session_id)
       )
);

-- name: of_memory(tenant_id, memory_type, memory_id, outgoing, incoming)
-- The links of one memory in the given directions. For a deleted episode the audit trail tells its butler, session
-- and time.
select l.source_type, l.source_id, l.target_type, l.target_id, l.relation, l.created_at, gone.payload as gone
  from memory_links l
  left join lateral (
      select jsonb_build_object(
                 'butler', e.payload -> 'episode_of', 'session_id', e.payload -> 'session_id',
                 'happened_at', e.payload -> 'created_at', 'deleted_at', e.occurred_at
             ) as payload
        from memory_events e
       where e.tenant_id = :tenant_id
         and e.entity_type = 'episode'
         and e.entity_id = case 'episode' when l.target_type then l.target_id when l.source_type then l.source_id end
         and e.event_type in ('episode_expired', 'episode_crowded_out')
         and not exists (select from episodes p where p.tenant_id = :tenant_id and p.id = e.entity_id)
       order by e.occurred_at desc
       limit 1
  ) gone on true
 where l.tenant_id = :tenant_id
   and ((:outgoing and l.source_type = :memory_type and l.source_id = :memory_id)
     or (:incoming and l.target_type = :memory_type and l.target_id = :memory_id))
 order by l.created_at, l.source_type, l.source_id, l.target_type, l.target_id;

-- name: is_linked(tenant_id, memory_type, id, other_id)$
-- Whether two memories of one type are linked, in either direction.
select exists (
    select
      from memory_links
     where tenant_id = :tenant_id
       and source_type = :memory_type
       and target_type = :memory_type
       and ((source_id = :id and target_id = :other_id) or (source_id = :other_id and target_id = :id))
);

-- name: delete_related(tenant_id, memory_type, id, other_id)!
-- Deletes the link that says that two memories of one type are both true, in either direction.
delete from memory_links
 where tenant_id = :tenant_id
   and source_type = :memory_type
   and target_type = :memory_type
   and relation = 'related_to'
   and ((source_id = :id and target_id = :other_id) or (source_id = :other_id and target_id = :id));

-- name: settle_contradiction(tenant_id, memory_type, id, other_id)$
-- Says that two memories of which one contradicts the other both hold.
update memory_links
   set relation = 'related_to'
 where tenant_id = :tenant_id
   and source_type = :memory_type
   and target_type = :memory_type
   and ((source_id = :id and target_id = :other_id) or (source_id = :other_id and target_id = :id))
   and relation = 'contradicts'
returning relation;
