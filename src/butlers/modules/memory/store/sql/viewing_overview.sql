-- name: confidence_bands(tenant_id, max_rows)^
-- The newest live facts by confidence, at most so many.
with live as (
    select effective_confidence(confidence, decay_rate, last_confirmed_at, now()) as confidence
      from facts
     where tenant_id = :tenant_id and validity = 'active'
     order by created_at desc, id desc
     limit :max_rows
)
select count(*) as total,
       count(*) filter (where confidence < 0.2) as below_20,
       count(*) filter (where confidence >= 0.2 and confidence < 0.4) as from_20_to_40,
       count(*) filter (where confidence >= 0.4 and confidence < 0.6) as from_40_to_60,
       count(*) filter (where confidence >= 0.6 and confidence < 0.8) as from_60_to_80,
       count(*) filter (where confidence >= 0.8) as from_80
  from live;

-- name: rules_by_maturity(tenant_id, max_rows)^
-- Live rules by maturity, counted among at most so many.
with live as (
    select maturity
      from rules
     where tenant_id = :tenant_id and not coalesce((metadata -> 'forgotten')::boolean, false)
     limit :max_rows
)
select count(*) as total,
       count(*) filter (where maturity = 'proven') as proven,
       count(*) filter (where maturity = 'established') as established,
       count(*) filter (where maturity = 'candidate') as candidate,
       count(*) filter (where maturity = 'anti_pattern') as anti_pattern
  from live;

-- name: backlog(tenant_id, max_rows)^
-- Episodes that consolidation has not read, by age, each counted up to a maximum.
with waiting as (
    (select created_at
       from episodes
      where tenant_id = :tenant_id and consolidation_status = 'pending' and (expires_at is null or expires_at > now())
      order by butler, created_at
      limit :max_rows)
    union all
    (select created_at
       from episodes
      where tenant_id = :tenant_id and consolidation_status = 'failed' and (expires_at is null or expires_at > now())
      order by butler, created_at
      limit :max_rows)
)
select count(*) as total, min(created_at) as oldest,
       count(*) filter (where created_at > now() - interval '1 hour') as under_1_hour,
       count(*) filter (where created_at <= now() - interval '1 hour' and created_at > now() - interval '6 hours') as under_6_hours,
       count(*) filter (where created_at <= now() - interval '6 hours' and created_at > now() - interval '1 day') as under_1_day,
       count(*) filter (where created_at <= now() - interval '1 day') as over_1_day,
       (select count(*) from (
           select from episodes
            where tenant_id = :tenant_id
              and consolidation_status = 'dead_letter'
              and not metadata ? 'forgotten_until'
            limit :max_rows
       ) d) as dead_letters
  from waiting;

-- name: vital_fading(tenant_id, fading_below, until, max_oldest, max_rows)
-- Live facts of great importance whose confidence is below a threshold at a time, the most important first. It looks
-- at those of each permanence that were confirmed longest ago, since these fade first.
select f.id, f.subject, f.predicate, f.importance
  from unnest(array['ephemeral', 'volatile', 'standard', 'stable']) as each (permanence),
       lateral (
           select id, subject, predicate, importance, confidence, decay_rate, last_confirmed_at
             from facts
            where tenant_id = :tenant_id
              and validity = 'active'
              and importance >= 8
              and permanence = each.permanence
            order by last_confirmed_at nulls first, id
            limit :max_oldest
       ) f
 where effective_confidence(confidence, decay_rate, last_confirmed_at, :until) < :fading_below
 order by importance desc, id
 limit :max_rows;

-- name: harms(tenant_id, ids)
-- These rules with their harmful marks, the most harmful first.
select id, left(content, 200) as content, harmful_count
  from rules
 where tenant_id = :tenant_id
   and id = any (:ids)
 order by harmful_count desc, id;

-- name: created_by_day(tenant_id, event_type, since, max_rows)
-- Events of a type by day, the days counted back from now, among the newest.
select floor(extract(epoch from now() - occurred_at) / 86400)::integer as days_ago, count(*) as number
  from (
      select occurred_at
        from memory_events
       where tenant_id = :tenant_id and event_type = :event_type and occurred_at > :since
       order by occurred_at desc
       limit :max_rows
  ) newest
 group by 1;

-- name: tokens_by_day(tenant_id, since, max_rows)
-- Tokens of consolidation by day, the days counted back from now.
select floor(extract(epoch from now() - started_at) / 86400)::integer as days_ago,
       sum(input_tokens + output_tokens)::bigint as tokens
  from (
      select started_at, input_tokens, output_tokens
        from consolidation_runs
       where tenant_id = :tenant_id and started_at > :since
       order by started_at desc
       limit :max_rows
  ) newest
 group by 1;

-- name: latest_events(tenant_id, since, max_rows)
-- The newest events since a time, with the memory or entity that each is about.
select e.event_type, e.entity_type, e.entity_id, e.occurred_at, e.actor, e.request_id, e.payload,
       f.subject, f.predicate, left(coalesce(f.content, r.content), 120) as content, n.canonical_name as name,
       coalesce(f.validity = 'active', r.id is not null and not coalesce((r.metadata -> 'forgotten')::boolean, false))
           as is_live
  from (
      select id, event_type, entity_type, entity_id, occurred_at, actor, request_id, payload
        from memory_events
       where tenant_id = :tenant_id and occurred_at > :since
       order by occurred_at desc
       limit :max_rows
  ) e
  left join facts f on f.tenant_id = :tenant_id and e.entity_type = 'fact' and f.id = e.entity_id
  left join rules r on r.tenant_id = :tenant_id and e.entity_type = 'rule' and r.id = e.entity_id
  left join entities n on n.tenant_id = :tenant_id and e.entity_type = 'entity' and n.id = e.entity_id
 order by e.occurred_at desc, e.id;

-- name: has_memories(tenant_id)$
-- Whether the tenant has any memory or entity, in any state.
select exists (select from facts where tenant_id = :tenant_id)
    or exists (select from episodes where tenant_id = :tenant_id)
    or exists (select from rules where tenant_id = :tenant_id)
    or exists (select from entities where tenant_id = :tenant_id);

-- name: stale_vectors(tenant_id, version, max_rows)$
-- Memories whose vector is missing or of another version, counted up to a maximum; each part reads an index.
select count(*)
  from (
      (select from facts where tenant_id = :tenant_id and embedding_version_id < :version limit :max_rows)
      union all
      (select from facts where tenant_id = :tenant_id and embedding_version_id > :version limit :max_rows)
      union all
      (select from facts where tenant_id = :tenant_id and (embedding_version_id is null or embedding is null) limit :max_rows)
      union all
      (select from rules where tenant_id = :tenant_id and embedding_version_id < :version limit :max_rows)
      union all
      (select from rules where tenant_id = :tenant_id and embedding_version_id > :version limit :max_rows)
      union all
      (select from rules where tenant_id = :tenant_id and (embedding_version_id is null or embedding is null) limit :max_rows)
      union all
      (select from episodes where tenant_id = :tenant_id and embedding_version_id < :version limit :max_rows)
      union all
      (select from episodes where tenant_id = :tenant_id and embedding_version_id > :version limit :max_rows)
      union all
      (select from episodes where tenant_id = :tenant_id and (embedding_version_id is null or embedding is null) limit :max_rows)
  ) stale;
