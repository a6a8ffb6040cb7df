-- name: fading(tenant_id, fading_below, days, max_oldest, max_rows)
-- Live facts and rules that fade within so many days, the most important and most used first. It looks at those of each
-- permanence that were confirmed longest ago, since these fade first.
with oldest as (
    select 'fact' as memory_type, f.*
      from unnest(array['ephemeral', 'volatile', 'standard', 'stable']) as each (permanence),
           lateral (
               select id, importance, reference_count, confidence, decay_rate, last_confirmed_at
                 from facts
                where tenant_id = :tenant_id
                  and validity = 'active'
                  and permanence = each.permanence
                order by last_confirmed_at nulls first, id
                limit :max_oldest
           ) f
    union all
    select 'rule', r.*
      from unnest(array['ephemeral', 'volatile', 'standard', 'stable']) as each (permanence),
           lateral (
               select id, 5.0, reference_count, confidence, decay_rate, last_confirmed_at
                 from rules
                where tenant_id = :tenant_id
                  and permanence = each.permanence
                  and maturity <> 'anti_pattern'
                  and not coalesce((metadata -> 'forgotten')::boolean, false)
                order by last_confirmed_at nulls first, id
                limit :max_oldest
           ) r
), measured as (
    select memory_type, id, importance, reference_count,
           effective_confidence(confidence, decay_rate, last_confirmed_at, now()) as confidence,
           effective_confidence(
               confidence, decay_rate, last_confirmed_at, now() + make_interval(days => :days)
           ) as later
      from oldest
)
select memory_type, id
  from measured
 where later < :fading_below
 order by importance * (1 + reference_count) * (1 - confidence) desc, id
 limit :max_rows;

-- name: harmful(tenant_id, max_rows)
-- Rules with a harmful mark, or that await inversion, since somebody looked at them or confirmed them. What was undone
-- does not count.
select r.id
  from rules r
 cross join lateral (
      select coalesce(array_agg(u.payload ->> 'undone'), '{}') as requests
        from memory_events u
       where u.tenant_id = :tenant_id
         and u.entity_type = 'rule'
         and u.entity_id = r.id
         and u.payload ? 'undone'
 ) undone
 cross join lateral (
      select max(a.applied_at) as at
        from rule_applications a
       where a.tenant_id = :tenant_id
         and a.rule_id = r.id
         and a.outcome = 'harmful'
         and coalesce(a.request_id <> all (undone.requests), true)
 ) harm
 cross join lateral (
      select max(e.occurred_at) as at
        from memory_events e
       where e.tenant_id = :tenant_id
         and e.entity_type = 'rule'
         and e.entity_id = r.id
         and e.event_type in ('rule_looked_at', 'rule_confirmed', 'rule_inversion_reverted')
         and coalesce(e.request_id <> all (undone.requests), true)
 ) look
 where r.tenant_id = :tenant_id
   and r.harmful_count > 0
   and r.maturity <> 'anti_pattern'
   and not coalesce((r.metadata -> 'forgotten')::boolean, false)
   and coalesce(harm.at, case when coalesce((r.metadata -> 'needs_inversion')::boolean, false) then r.created_at end)
       > coalesce(look.at, '-infinity')
 order by r.harmful_count desc, r.id
 limit :max_rows;

-- name: dead_letters(tenant_id, max_rows)
-- Episodes in dead letter that are not forgotten, oldest first.
select id
  from episodes
 where tenant_id = :tenant_id
   and consolidation_status = 'dead_letter'
   and not metadata ? 'forgotten_until'
 order by created_at, id
 limit :max_rows;

-- name: next_to_fade(tenant_id, fading_below, max_oldest)^
-- The live fact that fades next, and when.
select f.id, f.subject, f.predicate,
       f.last_confirmed_at + make_interval(secs => 86400 * ln(f.confidence / :fading_below) / f.decay_rate) as fades_at
  from unnest(array['ephemeral', 'volatile', 'standard', 'stable']) as each (permanence),
       lateral (
           select id, subject, predicate, confidence, decay_rate, last_confirmed_at
             from facts
            where tenant_id = :tenant_id
              and validity = 'active'
              and permanence = each.permanence
            order by last_confirmed_at nulls first, id
            limit :max_oldest
       ) f
 where f.decay_rate > 1e-9
   and f.confidence > :fading_below
 order by fades_at, f.id
 limit 1;
