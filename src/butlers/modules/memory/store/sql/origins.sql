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
-- The facts and rules that came of these episodes, and of how many others besides.
select l.source_type as memory_type, l.source_id as id,
       count(*) filter (where l.target_id <> all (:episode_ids::uuid[])) as elsewhere
  from memory_links l
 where l.tenant_id = :tenant_id
   and l.target_type = 'episode'
   and l.relation = 'derived_from'
   and (l.source_type, l.source_id) in (
       select d.source_type, d.source_id
         from memory_links d
        where d.tenant_id = :tenant_id
          and d.target_type = 'episode'
          and d.relation = 'derived_from'
          and d.target_id = any (:episode_ids)
   )
 group by l.source_type, l.source_id;

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
-- What a retraction changed, in its order.
select event_type, entity_type as memory_type, entity_id as id
  from memory_events
 where tenant_id = :tenant_id
   and payload ->> 'retraction' = :retraction::text
 order by occurred_at, id;

-- name: supersede_again(tenant_id, ids)
-- What a retraction had let hold again is replaced once more.
update facts
   set validity = 'superseded'
 where tenant_id = :tenant_id
   and id = any (:ids)
   and validity = 'active'
returning id;
