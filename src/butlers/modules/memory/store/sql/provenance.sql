-- name: episodes_of_session(tenant_id, session_id)
-- The episodes of a session, deleted ones included: the audit trail still names them.
select id
  from episodes
 where tenant_id = :tenant_id
   and session_id = :session_id::uuid
union
select entity_id
  from find_events_of_session(:session_id::text)
 where event_type = 'episode_created';

-- name: stored_by_session(session_id)
-- The facts and rules that a session stored itself.
select entity_type as memory_type, entity_id as id
  from find_events_of_session(:session_id::text)
 where event_type in ('fact_created', 'rule_created');

-- name: derived_from(tenant_id, episode_ids)
-- The facts and rules derived from these episodes, and how many other episodes they are derived from or supported
-- by. Forgotten episodes do not count.
with derived as (
    select distinct source_type as memory_type, source_id as id
      from memory_links
     where tenant_id = :tenant_id
       and target_type = 'episode'
       and relation = 'derived_from'
       and target_id = any (:episode_ids::uuid[])
), evidence as (
    select d.memory_type, d.id, l.target_id as episode_id
      from derived d
      join memory_links l on l.tenant_id = :tenant_id and l.source_type = d.memory_type and l.source_id = d.id
     where l.target_type = 'episode'
       and l.relation = 'derived_from'
    union
    select d.memory_type, d.id, l.source_id
      from derived d
      join memory_links l on l.tenant_id = :tenant_id and l.target_type = d.memory_type and l.target_id = d.id
     where l.source_type = 'episode'
       and l.relation = 'supports'
)
select s.memory_type, s.id,
       count(*) filter (
           where s.episode_id <> all (:episode_ids)
             and coalesce((
                 select e.event_type in ('episode_restored', 'episode_forgotten_undone')
                   from memory_events e
                  where e.tenant_id = :tenant_id
                    and e.entity_type = 'episode'
                    and e.entity_id = s.episode_id
                    and e.event_type in (
                        'episode_forgotten', 'episode_restored', 'episode_forgotten_undone', 'episode_restored_undone',
                        'episode_created_undone'
                    )
                  order by e.occurred_at desc
                  limit 1
             ), true)
       ) as corroborated_by
  from evidence s
 group by s.memory_type, s.id;

-- name: preview(tenant_id, memory_type, ids, max_characters)
-- These memories, as a preview shows them, long contents cut.
select id, subject, predicate, left(content, :max_characters) as content, case when memory_type <> 'episode' then scope end as scope, butler, state,
       created_at
  from memories
 where tenant_id = :tenant_id
   and memory_type = :memory_type
   and id = any (:ids)
 order by created_at, id;

-- name: reactivate_superseded(tenant_id, ids, retracted)
-- Makes active again what these facts superseded: for each the latest before it that is not retracted as well.
with recursive chain as (
    select f.id as head, f.supersedes_id as id
      from facts f
     where f.tenant_id = :tenant_id
       and f.id = any (:ids)
    union all
    select c.head, f.supersedes_id
      from chain c
      join facts f on f.tenant_id = :tenant_id and f.id = c.id
     where f.id = any (:retracted::uuid[])
)
update facts f
   set validity = 'active'
  from chain c
 where f.tenant_id = :tenant_id
   and f.id = c.id
   and f.id <> all (:retracted::uuid[])
   and f.validity = 'superseded'
   and not exists (
       select
         from facts holder
        where holder.tenant_id = :tenant_id
          and holder.validity = 'active'
          and holder.scope = f.scope
          and holder.predicate = f.predicate
          and ((f.entity_id is null and holder.entity_id is null and holder.subject = f.subject)
            or holder.entity_id = f.entity_id)
   )
returning f.id;

-- name: retraction_changes(tenant_id, retraction)
-- What a retraction changed, in order, and whether nothing has changed it since.
select e.event_type, e.entity_type as memory_type, e.entity_id as id,
       not exists (
           select
             from memory_events later
            where later.tenant_id = :tenant_id
              and later.entity_type = e.entity_type
              and later.entity_id = e.entity_id
              and later.occurred_at > e.occurred_at
              and later.event_type ~ '_(forgotten|restored|superseded|expired|erased|undone)$'
       ) as is_unchanged
  from memory_events e
 where e.tenant_id = :tenant_id
   and e.payload ? 'retraction'
   and e.payload ->> 'retraction' = :retraction::text
 order by e.occurred_at, e.id;

-- name: supersede_again(tenant_id, ids, by)
-- Supersedes again the facts that a retraction reactivated, where they have the key of the fact that is restored.
update facts f
   set validity = 'superseded'
  from facts by
 where f.tenant_id = :tenant_id
   and f.id = any (:ids)
   and f.validity = 'active'
   and by.tenant_id = :tenant_id
   and by.id = :by
   and by.scope = f.scope
   and by.predicate = f.predicate
   and ((f.entity_id is null and by.entity_id is null and by.subject = f.subject) or by.entity_id = f.entity_id)
returning f.id;
