-- name: episodes_of_session(tenant_id, session_id)
-- The episodes of a session, those that are gone included: the trail still knows them.
select id
  from episodes
 where tenant_id = :tenant_id
   and session_id = :session_id::uuid
union
select entity_id
  from memory_events
 where tenant_id = :tenant_id
   and payload ->> 'session_id' = :session_id::text
   and event_type = 'episode_created';

-- name: stored_by_session(tenant_id, session_id)
-- The facts and rules a session stored itself.
select entity_type as memory_type, entity_id as id
  from memory_events
 where tenant_id = :tenant_id
   and payload ->> 'session_id' = :session_id::text
   and event_type in ('fact_created', 'rule_created');

-- name: derived_from(tenant_id, episode_ids)
-- The facts and rules that came of these episodes, and how many others say or bear out the same, forgotten ones left out.
with derived as (
    select distinct source_type as memory_type, source_id as id
      from memory_links
     where tenant_id = :tenant_id
       and target_type = 'episode'
       and relation = 'derived_from'
       and target_id = any (:episode_ids::uuid[])
), said as (
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
                 select e.event_type <> 'episode_forgotten'
                   from memory_events e
                  where e.tenant_id = :tenant_id
                    and e.entity_type = 'episode'
                    and e.entity_id = s.episode_id
                    and e.event_type in ('episode_forgotten', 'episode_restored')
                  order by e.occurred_at desc
                  limit 1
             ), true)
       ) as elsewhere
  from said s
 group by s.memory_type, s.id;

-- name: facts(tenant_id, ids)
-- These facts, as a preview shows them.
select id, subject, predicate, content, scope, validity as state, created_at, supersedes_id
  from facts
 where tenant_id = :tenant_id
   and id = any (:ids)
 order by created_at, id;

-- name: rules(tenant_id, ids)
-- These rules, as a preview shows them.
select id, content, scope, created_at,
       case when coalesce((metadata -> 'forgotten')::boolean, false) then 'forgotten' else 'active' end as state
  from rules
 where tenant_id = :tenant_id
   and id = any (:ids)
 order by created_at, id;

-- name: episodes(tenant_id, ids)
-- These episodes, as a preview shows them.
select id, content, butler, created_at,
       case when metadata ? 'forgotten_until' then 'forgotten' when expires_at <= now() then 'expired' else 'active' end
           as state
  from episodes
 where tenant_id = :tenant_id
   and id = any (:ids)
 order by created_at, id;

-- name: retract_facts(tenant_id, ids)
-- Retracts these facts, where they are live.
update facts
   set validity = 'retracted'
 where tenant_id = :tenant_id
   and id = any (:ids)
   and validity = 'active'
returning id;

-- name: forget_rules(tenant_id, ids)
-- Takes these rules out of every search, where they are live.
update rules
   set metadata = metadata || '{"forgotten": true}'
 where tenant_id = :tenant_id
   and id = any (:ids)
   and not coalesce((metadata -> 'forgotten')::boolean, false)
returning id;

-- name: forget_episodes(tenant_id, ids)
-- Ends these episodes now, where they are live; the time they had left stays with them.
update episodes
   set metadata = metadata || jsonb_build_object('forgotten_until', expires_at),
       expires_at = now()
 where tenant_id = :tenant_id
   and id = any (:ids)
   and (expires_at is null or expires_at > now())
   and not metadata ? 'forgotten_until'
returning id;

-- name: bring_back(tenant_id, ids, gone)
-- Lets what these facts replaced hold again: of each the nearest before it that is not to go as well, if it was replaced.
with recursive chain as (
    select f.id as head, f.supersedes_id as id
      from facts f
     where f.tenant_id = :tenant_id
       and f.id = any (:ids)
    union all
    select c.head, f.supersedes_id
      from chain c
      join facts f on f.tenant_id = :tenant_id and f.id = c.id
     where f.id = any (:gone::uuid[])
)
update facts f
   set validity = 'active'
  from chain c
 where f.tenant_id = :tenant_id
   and f.id = c.id
   and f.id <> all (:gone::uuid[])
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

-- name: retraction(tenant_id, retraction)
-- What a retraction changed, in its order, and whether it is still as it was left.
select e.event_type, e.entity_type as memory_type, e.entity_id as id,
       not exists (
           select
             from memory_events later
            where later.tenant_id = :tenant_id
              and later.entity_type = e.entity_type
              and later.entity_id = e.entity_id
              and later.occurred_at > e.occurred_at
              and later.event_type ~ '_(forgotten|restored|superseded|expired|erased)$'
       ) as untouched
  from memory_events e
 where e.tenant_id = :tenant_id
   and e.payload ->> 'retraction' = :retraction::text
 order by e.occurred_at, e.id;

-- name: supersede_again(tenant_id, ids, by)
-- What a retraction had let hold again is replaced once more, by the fact that comes back under its key.
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
