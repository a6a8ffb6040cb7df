-- name: mark_referenced(tenant_id, fact_ids, rule_ids, max_characters)
-- Counts a reference to these facts and rules and returns them, long contents cut. Rows are locked in id order, so that two recalls
-- of the same memories never deadlock.
with locked_facts as materialized (
    select id from facts where tenant_id = :tenant_id and id = any (:fact_ids) order by id for no key update
), locked_rules as materialized (
    select id from rules where tenant_id = :tenant_id and id = any (:rule_ids) order by id for no key update
), facts as (
    update facts
       set reference_count = reference_count + 1, last_referenced_at = now()
     where tenant_id = :tenant_id
       and id in (select id from locked_facts)
    returning 'fact' as memory_type, id, left(content, :max_characters) as content, subject, predicate, entity_id, scope, permanence, importance,
              null::text as maturity, null::double precision as effectiveness_score, tags, metadata,
              source_butler, reference_count, created_at, last_referenced_at, last_confirmed_at
), rules as (
    update rules
       set reference_count = reference_count + 1, last_referenced_at = now()
     where tenant_id = :tenant_id
       and id in (select id from locked_rules)
    returning 'rule' as memory_type, id, left(content, :max_characters), null::text, null::text, null::uuid, scope, permanence,
              null::double precision, maturity, effectiveness_score, tags, metadata,
              source_butler, reference_count, created_at, last_referenced_at, last_confirmed_at
)
select * from facts
union all
select * from rules;

-- name: fetch_many(tenant_id, ids, max_characters)
-- These memories, as a list shows them, long contents cut.
select memory_type, id, left(content, :max_characters) as content, subject, predicate, entity_id,
       case when memory_type <> 'episode' then scope end as scope,
       permanence, importance, maturity, effectiveness_score, butler, session_id, expires_at, tags, metadata,
       source_butler, reference_count, created_at, last_referenced_at, last_confirmed_at
  from memories
 where tenant_id = :tenant_id
   and id = any (:ids::uuid[]);

-- name: fetch_for_context(tenant_id, ids, butler, max_episodes, max_characters)
-- These facts and rules and the latest live episodes of a butler, newest first; long contents cut.
select memory_type, id, left(content, :max_characters) as content, subject, predicate, maturity, effectiveness_score,
       created_at
  from memories
 where tenant_id = :tenant_id
   and memory_type <> 'episode'
   and id = any (:ids::uuid[])
union all
(
    select 'episode', id, left(content, :max_characters), null, null, null, null, created_at
      from episodes
     where tenant_id = :tenant_id
       and butler = :butler
       and (expires_at is null or expires_at > now())
     order by created_at desc, id
     limit :max_episodes
);

-- name: get_fact(tenant_id, id)^
-- A whole fact in any state; counts a reference.
update facts
   set reference_count = reference_count + 1, last_referenced_at = now()
 where tenant_id = :tenant_id
   and id = :id
returning id, tenant_id, subject, predicate, content, importance, confidence as stored_confidence,
          effective_confidence(confidence, decay_rate, last_confirmed_at, now()) as confidence, decay_rate,
          permanence, source_butler, source_episode_id, supersedes_id, entity_id, validity, scope,
          reference_count, created_at, last_referenced_at, last_confirmed_at, tags, metadata;

-- name: get_rule(tenant_id, id)^
-- A whole rule in any state; counts a reference.
update rules
   set reference_count = reference_count + 1, last_referenced_at = now()
 where tenant_id = :tenant_id
   and id = :id
returning id, tenant_id, content, scope, maturity, confidence as stored_confidence,
          effective_confidence(confidence, decay_rate, last_confirmed_at, now()) as confidence, decay_rate,
          permanence, effectiveness_score, applied_count, success_count, harmful_count, source_episode_id,
          source_butler, created_at, last_applied_at, last_evaluated_at, last_confirmed_at, reference_count,
          last_referenced_at, tags, metadata;

-- name: get_episode(tenant_id, id)^
-- A whole episode in any state; counts a reference.
update episodes
   set reference_count = reference_count + 1, last_referenced_at = now()
 where tenant_id = :tenant_id
   and id = :id
returning id, tenant_id, butler, session_id, content, importance, reference_count, consolidated,
          consolidation_status, consolidation_attempts, retry_count, last_consolidation_error, last_error,
          next_consolidation_retry_at, created_at, last_referenced_at, expires_at,
          coalesce(expires_at <= now(), false) as expired, metadata;

-- name: look_at_fact(tenant_id, id)^
-- A whole fact in any state; counts no reference.
select id, tenant_id, subject, predicate, content, importance, confidence as stored_confidence,
       effective_confidence(confidence, decay_rate, last_confirmed_at, now()) as confidence, decay_rate,
       permanence, source_butler, source_episode_id, supersedes_id, entity_id, validity, scope,
       reference_count, created_at, last_referenced_at, last_confirmed_at, tags, metadata
  from facts
 where tenant_id = :tenant_id
   and id = :id;

-- name: look_at_rule(tenant_id, id)^
-- A whole rule in any state; counts no reference.
select id, tenant_id, content, scope, maturity, confidence as stored_confidence,
       effective_confidence(confidence, decay_rate, last_confirmed_at, now()) as confidence, decay_rate,
       permanence, effectiveness_score, applied_count, success_count, harmful_count, source_episode_id,
       source_butler, created_at, last_applied_at, last_evaluated_at, last_confirmed_at, reference_count,
       last_referenced_at, tags, metadata
  from rules
 where tenant_id = :tenant_id
   and id = :id;

-- name: look_at_episode(tenant_id, id)^
-- A whole episode in any state; counts no reference.
select id, tenant_id, butler, session_id, content, importance, reference_count, consolidated,
       consolidation_status, consolidation_attempts, retry_count, last_consolidation_error, last_error,
       next_consolidation_retry_at, created_at, last_referenced_at, expires_at,
       coalesce(expires_at <= now(), false) as expired, metadata
  from episodes
 where tenant_id = :tenant_id
   and id = :id;

-- name: lifecycle_state(tenant_id, memory_type, id)$
-- active, superseded, expired, retracted or forgotten.
select state
  from memories
 where tenant_id = :tenant_id
   and memory_type = :memory_type
   and id = :id;

-- name: forget(tenant_id, memory_type, ids)
-- Takes these memories out of every search, where they are live: facts are retracted, rules marked, episodes
-- expire now.
with forgotten_facts as (
    update facts
       set validity = 'retracted'
     where :memory_type = 'fact'
       and tenant_id = :tenant_id
       and id = any (:ids)
       and validity = 'active'
    returning id
), forgotten_rules as (
    update rules
       set metadata = metadata || '{"forgotten": true}'
     where :memory_type = 'rule'
       and tenant_id = :tenant_id
       and id = any (:ids)
       and not coalesce((metadata -> 'forgotten')::boolean, false)
    returning id
), forgotten_episodes as (
    update episodes
       set metadata = metadata || jsonb_build_object(
               'forgotten_until', to_char(expires_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')
           ),
           expires_at = now()
     where :memory_type = 'episode'
       and tenant_id = :tenant_id
       and id = any (:ids)
       and (expires_at is null or expires_at > now())
       and not metadata ? 'forgotten_until'
    returning id
)
select id from forgotten_facts
union all
select id from forgotten_rules
union all
select id from forgotten_episodes;

-- name: restore(tenant_id, memory_type, ids)
-- Makes forgotten memories live again: a fact or rule counts as confirmed now, an episode gets back the time it had
-- left.
with restored_facts as (
    update facts
       set validity = 'active', last_confirmed_at = now(),
           confidence = coalesce((metadata -> 'confidence_when_confirmed')::double precision, confidence),
           metadata = metadata - array['status', 'confidence_when_confirmed']
     where :memory_type = 'fact'
       and tenant_id = :tenant_id
       and id = any (:ids)
       and validity in ('retracted', 'expired')
    returning id
), restored_rules as (
    update rules
       set last_confirmed_at = now(),
           confidence = coalesce((metadata -> 'confidence_when_confirmed')::double precision, confidence),
           metadata = metadata - array['forgotten', 'status', 'confidence_when_confirmed']
     where :memory_type = 'rule'
       and tenant_id = :tenant_id
       and id = any (:ids)
       and coalesce((metadata -> 'forgotten')::boolean, false)
    returning id
), restored_episodes as (
    update episodes
       set expires_at = greatest((metadata ->> 'forgotten_until')::timestamptz, now() + interval '1 day'),
           metadata = metadata - 'forgotten_until'
     where :memory_type = 'episode'
       and tenant_id = :tenant_id
       and id = any (:ids)
       and metadata ? 'forgotten_until'
    returning id
)
select id from restored_facts
union all
select id from restored_rules
union all
select id from restored_episodes;

-- name: restorable_facts(tenant_id, ids)
-- The forgotten facts among these whose key no live fact has; of several with one key, the latest.
select distinct on (f.scope, f.predicate, f.entity_id, case when f.entity_id is null then f.subject end) f.id
  from facts f
 where f.tenant_id = :tenant_id
   and f.id = any (:ids)
   and f.validity in ('retracted', 'expired')
   and not exists (
       select
         from facts holder
        where holder.tenant_id = :tenant_id
          and holder.scope = f.scope
          and holder.predicate = f.predicate
          and holder.validity = 'active'
          and (holder.entity_id = f.entity_id
            or (holder.entity_id is null and f.entity_id is null and holder.subject = f.subject))
   )
 order by f.scope, f.predicate, f.entity_id, case when f.entity_id is null then f.subject end,
          f.created_at desc, f.id desc;
