-- name: append(tenant_id, event_types, entity_types, entity_ids, actor, request_id, payloads)!
-- Appends events, one row each.
insert into memory_events (tenant_id, event_type, entity_type, entity_id, actor, request_id, payload)
select :tenant_id, e.event_type, e.entity_type, e.entity_id, :actor, :request_id, e.payload
  from unnest(:event_types::text[], :entity_types::text[], :entity_ids::uuid[], :payloads::jsonb[])
       as e (event_type, entity_type, entity_id, payload);

-- name: of_memory(tenant_id, entity_type, entity_id, max_rows)
-- The events of one memory, oldest first.
select id, event_type, occurred_at, actor, request_id, payload
  from memory_events
 where tenant_id = :tenant_id
   and entity_type = :entity_type
   and entity_id = :entity_id
 order by occurred_at, id
 limit :max_rows;
