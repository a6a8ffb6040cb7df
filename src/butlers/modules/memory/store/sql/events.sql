-- name: append(tenant_id, event_types, entity_types, entity_ids, actor, request_id, payloads)!
-- Appends events, one row each.
insert into memory_events (tenant_id, event_type, entity_type, entity_id, actor, request_id, payload)
select :tenant_id, e.event_type, e.entity_type, e.entity_id, :actor, :request_id, e.payload
  from unnest(:event_types::text[], :entity_types::text[], :entity_ids::uuid[], :payloads::jsonb[])
       as e (event_type, entity_type, entity_id, payload);

-- name: of_memory(tenant_id, entity_type, entity_id, after, max_rows)
-- The events of one memory, oldest first: all, or those after one of them.
select id, event_type, occurred_at, actor, request_id, payload
  from memory_events
 where tenant_id = :tenant_id
   and entity_type = :entity_type
   and entity_id = :entity_id
   and (:after::uuid is null
     or (occurred_at, id) > (select occurred_at, id from memory_events where tenant_id = :tenant_id and id = :after))
 order by occurred_at, id
 limit :max_rows;

-- name: count_of_memory(tenant_id, entity_type, entity_id, after)^
-- The number of events of one memory, and whether this event is one of them.
select count(*) as total, coalesce(bool_or(id = :after), false) as has_event
  from memory_events
 where tenant_id = :tenant_id
   and entity_type = :entity_type
   and entity_id = :entity_id;

-- name: of_request(tenant_id, request_id, max_rows)
-- The events of one call, latest first.
select event_type, entity_type, entity_id, payload, occurred_at
  from memory_events
 where tenant_id = :tenant_id
   and request_id = :request_id
 order by occurred_at desc, id
 limit :max_rows;

-- name: records_of_request(tenant_id, request_id, record_ids)
-- The records that a call changed and that no undo gave back, by type: all, or these.
select e.entity_type, array_agg(distinct e.entity_id order by e.entity_id) as ids
  from memory_events e
 where e.tenant_id = :tenant_id
   and e.request_id = :request_id
   and e.entity_id is not null
   and (:record_ids::uuid[] is null or e.entity_id = any (:record_ids))
   and not exists (
       select
         from memory_events u
        where u.tenant_id = :tenant_id
          and u.payload ? 'undone'
          and u.payload ->> 'undone' = :request_id::text
          and u.entity_id = e.entity_id
   )
 group by e.entity_type;

-- name: companions(tenant_id, request_id, record_id)
-- The records of a call that are undone together with one of them: the facts under its key, because one of them
-- replaced the other, and the twin that it was kept beside.
select f.id
  from facts f
  join facts k
    on k.tenant_id = :tenant_id
       and k.id = :record_id
       and k.scope = f.scope
       and k.predicate = f.predicate
       and (k.entity_id = f.entity_id or (k.entity_id is null and f.entity_id is null and k.subject = f.subject))
 where f.tenant_id = :tenant_id
   and f.id in (
       select entity_id
         from memory_events
        where tenant_id = :tenant_id
          and request_id = :request_id
          and entity_type = 'fact'
   )
union
select entity_id
  from memory_events
 where tenant_id = :tenant_id
   and request_id = :request_id
   and :record_id::text in (payload ->> 'related_to', payload ->> 'superseded_by')
   and entity_id is not null
union
select n.entity_id
  from memory_events o
  join memory_events n
    on n.tenant_id = :tenant_id and n.request_id = :request_id and n.entity_id::text = o.payload ->> 'superseded_by'
 where o.tenant_id = :tenant_id
   and o.request_id = :request_id
   and o.entity_id = :record_id;

-- name: find(tenant_id, id)^
-- One event.
select event_type, entity_type, entity_id, request_id, payload, occurred_at, actor
  from memory_events
 where tenant_id = :tenant_id
   and id = :id;

-- name: last_request(tenant_id, actor, max_rows)$
-- The latest call of an actor that changed something and was not undone, among the newest events.
select e.request_id
  from (
      select request_id, actor, payload, occurred_at, id
        from memory_events
       where tenant_id = :tenant_id
       order by occurred_at desc
       limit :max_rows
  ) e
 where e.actor = :actor
   and e.request_id is not null
   and not e.payload ? 'undone'
   and not exists (
       select
         from memory_events u
        where u.tenant_id = :tenant_id
          and u.payload ? 'undone'
          and u.payload ->> 'undone' = e.request_id
   )
 order by e.occurred_at desc, e.id
 limit 1;

-- name: of_records(tenant_id, request_id, record_type, record_ids)
-- The events of one call on these records, latest first.
select event_type, entity_type, entity_id, payload, occurred_at
  from memory_events
 where tenant_id = :tenant_id
   and request_id = :request_id
   and entity_type = :record_type
   and entity_id = any (:record_ids::uuid[])
 order by occurred_at desc, id;

-- name: former_entities(tenant_id, request_id)
-- The entities that facts had before a call.
select distinct payload -> 'before' ->> 'entity_id' as entity_id
  from memory_events
 where tenant_id = :tenant_id
   and request_id = :request_id
   and entity_type = 'fact'
   and payload -> 'before' ->> 'entity_id' is not null;

-- name: kinds_of_request(tenant_id, request_id, record_ids)
-- The events of one call by type, with the record of the first of each: all, or those on these records.
select event_type, count(*) as number, bool_and(payload ? 'before') as has_before, bool_or(payload ? 'undone') as is_undo,
       (array_agg(entity_type order by occurred_at, id desc))[1] as entity_type,
       (array_agg(entity_id order by occurred_at, id desc))[1] as entity_id
  from memory_events
 where tenant_id = :tenant_id
   and request_id = :request_id
   and (:record_ids::uuid[] is null or entity_id = any (:record_ids))
 group by event_type;

-- name: is_undone(tenant_id, request_id, record_ids)$
-- Whether a call was undone, or what it did to these records: no record is left that an undo did not give back.
with undone as materialized (
    select distinct entity_id
      from memory_events
     where tenant_id = :tenant_id
       and payload ? 'undone'
       and payload ->> 'undone' = :request_id::text
       and (:record_ids::uuid[] is null or entity_id = any (:record_ids))
)
select exists (select from undone) and not exists (
    select
      from memory_events
     where tenant_id = :tenant_id
       and request_id = :request_id
       and (:record_ids is null or entity_id = any (:record_ids))
       and entity_id not in (select entity_id from undone)
);

-- name: changes_since(tenant_id, request_id, record_types, record_ids, moments)
-- Later events of other calls that changed these records, each since its moment, without those that were undone.
select e.event_type, e.entity_type, e.entity_id, e.payload, e.occurred_at
  from unnest(:record_types::text[], :record_ids::uuid[], :moments::timestamptz[]) as r (record_type, record_id, moment)
  join memory_events e
    on e.tenant_id = :tenant_id
       and e.entity_type = r.record_type
       and e.entity_id = r.record_id
       and e.occurred_at > r.moment
 where e.request_id is distinct from :request_id
   and not e.payload ? 'undone'
   and e.event_type !~ '_(looked_at|related|fading|recovered)$'
   and not exists (
       select
         from memory_events u
        where u.tenant_id = :tenant_id
          and u.payload ? 'undone'
          and u.payload ->> 'undone' = e.request_id
          and u.entity_id = e.entity_id
   )
 order by e.occurred_at, e.id;

-- name: lock_request(tenant_id, request_id)!
-- Lets one undo of a call run at a time.
select pg_advisory_xact_lock(hashtextextended(:tenant_id || chr(31) || :request_id, 7));

-- name: has_recent(tenant_id, event_type, actor, seconds)$
-- Whether an actor caused an event of a type within the last seconds.
select exists (
    select
      from memory_events
     where tenant_id = :tenant_id
       and event_type = :event_type
       and occurred_at > now() - make_interval(secs => :seconds)
       and actor = :actor
);

-- name: latest(tenant_id)$
-- The time of the newest event.
select max(occurred_at) from memory_events where tenant_id = :tenant_id;
