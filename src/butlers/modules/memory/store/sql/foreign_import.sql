-- name: known_memories(tenant_id, memory_type, ids)
-- Which of these memories the tenant has, in any state, with a digest of the content.
select id, md5(content) as digest
  from memories
 where tenant_id = :tenant_id
   and memory_type = :memory_type
   and id = any (:ids::uuid[]);

-- name: recorded_sessions(tenant_id, session_ids)
-- Which of these sessions have an episode.
select distinct session_id
  from episodes
 where tenant_id = :tenant_id
   and session_id = any (:session_ids::uuid[]);

-- name: known_entities(tenant_id, ids)
-- Which of these entities the tenant has, and where one was merged into, at the end of all merges.
with recursive chain as (
    select id as asked, id, metadata ->> 'merged_into' as merged_into, 1 as step
      from entities
     where tenant_id = :tenant_id
       and id = any (:ids::uuid[])
    union all
    select c.asked, e.id, e.metadata ->> 'merged_into', c.step + 1
      from chain c
      join entities e on e.tenant_id = :tenant_id and e.id = c.merged_into::uuid
     where c.step < 100
)
select asked, id
  from chain
 where merged_into is null;

-- name: entities_named(tenant_id, names)
-- The live entities with these names, in any case.
select id, lower(canonical_name) as name, entity_type
  from entities
 where tenant_id = :tenant_id
   and not (metadata ? 'merged_into')
   and lower(canonical_name) = any (:names::text[])
   and entity_type in ('person', 'organization', 'place', 'other')
 order by created_at, id;

-- name: held_keys(tenant_id, records)
-- Which of these keys a live fact has.
with wanted as (
    select r.number, r.scope, r.subject, r.predicate, r.entity_id
      from jsonb_to_recordset(:records::jsonb)
           as r (number integer, scope text, subject text, predicate text, entity_id uuid)
)
select w.number
  from wanted w
  join facts f on f.tenant_id = :tenant_id and f.entity_id is null and f.validity = 'active'
   and f.scope = w.scope and f.subject = w.subject and f.predicate = w.predicate
 where w.entity_id is null
union all
select w.number
  from wanted w
  join facts f on f.tenant_id = :tenant_id and f.entity_id = w.entity_id and f.validity = 'active'
   and f.scope = w.scope and f.predicate = w.predicate
 where w.entity_id is not null;

-- name: imported_ids(tenant_id, import_id)
-- The ids that an import brought, by kind.
select payload ->> 'kind' as kind, payload -> 'ids' as ids
  from memory_events
 where tenant_id = :tenant_id
   and entity_type = 'import'
   and entity_id = :import_id::uuid
   and event_type = 'memory_imported'
   and payload ? 'ids'
 order by occurred_at, id;

-- name: get_import(tenant_id, import_id)^
-- The summary of one import.
select entity_id as id, occurred_at, actor, payload -> 'imported' as imported, payload -> 'from' as origin
  from memory_events
 where tenant_id = :tenant_id
   and entity_type = 'import'
   and entity_id = :import_id::uuid
   and event_type = 'memory_imported'
   and payload ? 'from';

-- name: list_imports(tenant_id, max_rows)
-- The summaries of the newest imports.
select entity_id as id, occurred_at, actor, payload -> 'imported' as imported, payload -> 'from' as origin
  from memory_events
 where tenant_id = :tenant_id
   and event_type = 'memory_imported'
   and payload ? 'from'
 order by occurred_at desc, id
 limit :max_rows;
