-- name: fact_states(tenant_id, ids)
-- What an act may change of these facts, each as one JSON object.
select id, jsonb_build_object(
           'validity', validity, 'confidence', confidence, 'last_confirmed_at', last_confirmed_at,
           'importance', importance, 'permanence', permanence, 'decay_rate', decay_rate, 'entity_id', entity_id,
           'tags', tags, 'status', metadata -> 'status', 'provenance', metadata -> 'provenance',
           'confidence_when_confirmed', metadata -> 'confidence_when_confirmed'
       ) as state
  from facts
 where tenant_id = :tenant_id
   and id = any (:ids::uuid[]);

-- name: rule_states(tenant_id, ids)
-- What an act may change of these rules, each as one JSON object.
select id, jsonb_build_object(
           'forgotten', coalesce((metadata -> 'forgotten')::boolean, false), 'confidence', confidence,
           'last_confirmed_at', last_confirmed_at, 'permanence', permanence, 'decay_rate', decay_rate, 'tags', tags,
           'maturity', maturity, 'effectiveness', effectiveness_score, 'applied_count', applied_count,
           'success_count', success_count, 'harmful_count', harmful_count, 'last_applied_at', last_applied_at,
           'last_evaluated_at', last_evaluated_at,
           'needs_inversion', coalesce((metadata -> 'needs_inversion')::boolean, false),
           'is_inverted', metadata ? 'original_content',
           'harmful_reasons', metadata -> 'harmful_reasons', 'status', metadata -> 'status',
           'provenance', metadata -> 'provenance',
           'confidence_when_confirmed', metadata -> 'confidence_when_confirmed'
       ) as state
  from rules
 where tenant_id = :tenant_id
   and id = any (:ids::uuid[]);

-- name: episode_states(tenant_id, ids)
-- What an act may change of these episodes, each as one JSON object.
select id, jsonb_build_object(
           'expires_at', expires_at, 'forgotten', metadata ? 'forgotten_until',
           'forgotten_until', metadata -> 'forgotten_until'
       ) as state
  from episodes
 where tenant_id = :tenant_id
   and id = any (:ids::uuid[]);

-- name: entity_states(tenant_id, ids)
-- What an act may change of these entities, each as one JSON object.
select id, jsonb_build_object(
           'canonical_name', canonical_name, 'aliases', aliases, 'metadata', metadata, 'updated_at', updated_at
       ) as state
  from entities
 where tenant_id = :tenant_id
   and id = any (:ids::uuid[]);

-- name: lock_facts(tenant_id, ids)!
-- Locks these facts until the transaction ends, in id order.
select from facts where tenant_id = :tenant_id and id = any (:ids::uuid[]) order by id for update;

-- name: lock_rules(tenant_id, ids)!
-- Locks these rules until the transaction ends, in id order.
select from rules where tenant_id = :tenant_id and id = any (:ids::uuid[]) order by id for update;

-- name: lock_episodes(tenant_id, ids)!
-- Locks these episodes until the transaction ends, in id order.
select from episodes where tenant_id = :tenant_id and id = any (:ids::uuid[]) order by id for update;

-- name: lock_entities(tenant_id, ids)!
-- Locks these entities until the transaction ends, in id order.
select from entities where tenant_id = :tenant_id and id = any (:ids::uuid[]) order by id for update;

-- name: write_facts(tenant_id, states)!
-- Writes the states of facts, each an object with its id.
update facts f
   set validity = s.validity, confidence = s.confidence, last_confirmed_at = s.last_confirmed_at,
       importance = s.importance, permanence = s.permanence, decay_rate = s.decay_rate, entity_id = s.entity_id,
       tags = s.tags,
       metadata = f.metadata - array['status', 'provenance', 'confidence_when_confirmed']
                  || jsonb_strip_nulls(jsonb_build_object(
                         'status', s.status, 'provenance', s.provenance,
                         'confidence_when_confirmed', s.confidence_when_confirmed
                     ))
  from jsonb_to_recordset(:states::jsonb) as s (
           id uuid, validity text, confidence double precision, last_confirmed_at timestamptz, importance double precision,
           permanence text, decay_rate double precision, entity_id uuid, tags jsonb, status jsonb, provenance jsonb,
           confidence_when_confirmed jsonb
       )
 where f.tenant_id = :tenant_id
   and f.id = s.id;

-- name: write_rules(tenant_id, states)!
-- Writes the states of rules, each an object with its id.
update rules r
   set confidence = s.confidence, last_confirmed_at = s.last_confirmed_at, permanence = s.permanence,
       decay_rate = s.decay_rate, tags = s.tags, maturity = s.maturity, effectiveness_score = s.effectiveness,
       applied_count = s.applied_count, success_count = s.success_count, harmful_count = s.harmful_count,
       last_applied_at = s.last_applied_at, last_evaluated_at = s.last_evaluated_at,
       metadata = r.metadata - array[
                      'forgotten', 'needs_inversion', 'harmful_reasons', 'status', 'provenance', 'confidence_when_confirmed'
                  ] || jsonb_strip_nulls(jsonb_build_object(
                      'forgotten', nullif(s.forgotten, false), 'needs_inversion', nullif(s.needs_inversion, false),
                      'harmful_reasons', s.harmful_reasons, 'status', s.status, 'provenance', s.provenance,
                      'confidence_when_confirmed', s.confidence_when_confirmed
                  ))
  from jsonb_to_recordset(:states::jsonb) as s (
           id uuid, forgotten boolean, confidence double precision, last_confirmed_at timestamptz, permanence text,
           decay_rate double precision, tags jsonb, maturity text, effectiveness double precision,
           applied_count integer, success_count integer, harmful_count integer, last_applied_at timestamptz,
           last_evaluated_at timestamptz, needs_inversion boolean, harmful_reasons jsonb, status jsonb,
           provenance jsonb, confidence_when_confirmed jsonb
       )
 where r.tenant_id = :tenant_id
   and r.id = s.id;

-- name: write_episodes(tenant_id, states)!
-- Writes the states of episodes, each an object with its id.
update episodes e
   set expires_at = s.expires_at,
       metadata = e.metadata - 'forgotten_until' || case
           when s.forgotten then jsonb_build_object('forgotten_until', s.forgotten_until) else '{}'
       end
  from jsonb_to_recordset(:states::jsonb) as s (id uuid, expires_at timestamptz, forgotten boolean, forgotten_until jsonb)
 where e.tenant_id = :tenant_id
   and e.id = s.id;

-- name: write_entities(tenant_id, states)!
-- Writes the states of entities, each an object with its id.
update entities e
   set canonical_name = s.canonical_name, aliases = s.aliases, metadata = s.metadata, updated_at = s.updated_at
  from jsonb_to_recordset(:states::jsonb) as s (
           id uuid, canonical_name text, aliases text[], metadata jsonb, updated_at timestamptz
       )
 where e.tenant_id = :tenant_id
   and e.id = s.id;
