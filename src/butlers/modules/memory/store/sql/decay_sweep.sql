-- name: tenants()
-- Every tenant that has memories.
select tenant_id from memory_tenants();

-- name: live_facts(tenant_id)$
-- How many facts are live.
select count(*) from facts where tenant_id = :tenant_id and validity = 'active';

-- name: live_rules(tenant_id)$
-- How many rules are live.
select count(*)
  from rules
 where tenant_id = :tenant_id
   and not coalesce((metadata -> 'forgotten')::boolean, false);

-- name: sweep_facts(tenant_id, after, most, fading_below, expired_below, may_expire, actor, request_id, caller_payload)^
-- Lets time work on the next facts in the order of their ids: each that changes leaves the state it was found in, with
-- an event. What may not expire in this sweep fades instead.
with page as (
    select id, effective_confidence(confidence, decay_rate, last_confirmed_at, now()) as believed,
           coalesce(metadata ->> 'status' = 'fading', false) as fading
      from facts
     where tenant_id = :tenant_id
       and id > :after
       and validity = 'active'
       and decay_rate > 0
     order by id
     limit :most
), ended as (
    select id, row_number() over (order by id) <= :may_expire as allowed
      from page
     where believed < :expired_below
), due as (
    select p.id, case when e.allowed then 'expired' when p.believed < :fading_below then 'fading' else 'recovered' end as next
      from page p
      left join ended e on e.id = p.id
     where coalesce(e.allowed, false)
        or (p.believed < :fading_below) <> p.fading
), held as materialized (
    select f.id, due.next
      from facts f
      join due on due.id = f.id
     where f.tenant_id = :tenant_id
     order by f.id
       for update of f
), changed as (
    update facts f
       set validity = case held.next when 'expired' then 'expired' else f.validity end,
           metadata = case held.next when 'fading' then f.metadata || '{"status": "fading"}' else f.metadata - 'status' end
      from held
     where f.tenant_id = :tenant_id
       and f.id = held.id
       and f.validity = 'active'
       and case held.next
               when 'expired' then effective_confidence(f.confidence, f.decay_rate, f.last_confirmed_at, now()) < :expired_below
               when 'fading' then coalesce(f.metadata ->> 'status', '') <> 'fading'
                    and effective_confidence(f.confidence, f.decay_rate, f.last_confirmed_at, now()) < :fading_below
               else f.metadata ->> 'status' = 'fading'
                    and effective_confidence(f.confidence, f.decay_rate, f.last_confirmed_at, now()) >= :fading_below
           end
    returning f.id, held.next, effective_confidence(f.confidence, f.decay_rate, f.last_confirmed_at, now()) as believed
), told as (
    insert into memory_events (tenant_id, event_type, entity_type, entity_id, actor, request_id, payload)
    select :tenant_id, 'fact_' || next, 'fact', id, :actor, :request_id,
           :caller_payload::jsonb || jsonb_build_object('confidence', round(believed::numeric, 4))
      from changed
)
select (select count(*) from page) as seen,
       (select id from page order by id desc limit 1) as last,
       (select count(*) from ended where not allowed) as held_back,
       count(*) filter (where next = 'fading') as fading,
       count(*) filter (where next = 'recovered') as recovered,
       count(*) filter (where next = 'expired') as expired
  from changed;

-- name: sweep_rules(tenant_id, after, most, fading_below, expired_below, may_expire, actor, request_id, caller_payload)^
-- The same for rules: one that nobody believes any more is forgotten. Warnings stay.
with page as (
    select id, effective_confidence(confidence, decay_rate, last_confirmed_at, now()) as believed,
           coalesce(metadata ->> 'status' = 'fading', false) as fading
      from rules
     where tenant_id = :tenant_id
       and id > :after
       and not coalesce((metadata -> 'forgotten')::boolean, false)
       and maturity <> 'anti_pattern'
       and decay_rate > 0
     order by id
     limit :most
), ended as (
    select id, row_number() over (order by id) <= :may_expire as allowed
      from page
     where believed < :expired_below
), due as (
    select p.id, case when e.allowed then 'expired' when p.believed < :fading_below then 'fading' else 'recovered' end as next
      from page p
      left join ended e on e.id = p.id
     where coalesce(e.allowed, false)
        or (p.believed < :fading_below) <> p.fading
), held as materialized (
    select r.id, due.next
      from rules r
      join due on due.id = r.id
     where r.tenant_id = :tenant_id
     order by r.id
       for update of r
), changed as (
    update rules r
       set metadata = case held.next
               when 'expired' then r.metadata - 'status' || '{"forgotten": true}'
               when 'fading' then r.metadata || '{"status": "fading"}'
               else r.metadata - 'status'
           end
      from held
     where r.tenant_id = :tenant_id
       and r.id = held.id
       and not coalesce((r.metadata -> 'forgotten')::boolean, false)
       and r.maturity <> 'anti_pattern'
       and case held.next
               when 'expired' then effective_confidence(r.confidence, r.decay_rate, r.last_confirmed_at, now()) < :expired_below
               when 'fading' then coalesce(r.metadata ->> 'status', '') <> 'fading'
                    and effective_confidence(r.confidence, r.decay_rate, r.last_confirmed_at, now()) < :fading_below
               else r.metadata ->> 'status' = 'fading'
                    and effective_confidence(r.confidence, r.decay_rate, r.last_confirmed_at, now()) >= :fading_below
           end
    returning r.id, held.next, effective_confidence(r.confidence, r.decay_rate, r.last_confirmed_at, now()) as believed
), told as (
    insert into memory_events (tenant_id, event_type, entity_type, entity_id, actor, request_id, payload)
    select :tenant_id, case next when 'expired' then 'rule_forgotten' else 'rule_' || next end, 'rule', id, :actor, :request_id,
           :caller_payload::jsonb || jsonb_build_object('by', 'decay', 'confidence', round(believed::numeric, 4))
      from changed
)
select (select count(*) from page) as seen,
       (select id from page order by id desc limit 1) as last,
       (select count(*) from ended where not allowed) as held_back,
       count(*) filter (where next = 'fading') as fading,
       count(*) filter (where next = 'recovered') as recovered,
       count(*) filter (where next = 'expired') as expired
  from changed;

-- name: would_sweep_facts(tenant_id, fading_below, expired_below)^
-- What a sweep would do with facts, without a cap.
select count(*) as seen,
       count(*) filter (where believed < :expired_below) as expired,
       count(*) filter (where believed >= :expired_below and believed < :fading_below and not fading) as fading,
       count(*) filter (where believed >= :fading_below and fading) as recovered
  from (
      select effective_confidence(confidence, decay_rate, last_confirmed_at, now()) as believed,
             coalesce(metadata ->> 'status' = 'fading', false) as fading
        from facts
       where tenant_id = :tenant_id
         and validity = 'active'
         and decay_rate > 0
  ) live;

-- name: would_sweep_rules(tenant_id, fading_below, expired_below)^
-- What a sweep would do with rules, without a cap, once those that did harm are warnings.
select count(*) as seen,
       count(*) filter (where believed < :expired_below) as expired,
       count(*) filter (where believed >= :expired_below and believed < :fading_below and not fading) as fading,
       count(*) filter (where believed >= :fading_below and fading) as recovered
  from (
      select effective_confidence(confidence, decay_rate, last_confirmed_at, now()) as believed,
             coalesce(metadata ->> 'status' = 'fading', false) as fading
        from rules
       where tenant_id = :tenant_id
         and not coalesce((metadata -> 'forgotten')::boolean, false)
         and not coalesce((metadata -> 'needs_inversion')::boolean, false)
         and maturity <> 'anti_pattern'
         and decay_rate > 0
  ) live;

-- name: to_invert(tenant_id, after, most)
-- The next rules that did so much harm that they should become warnings, in the order of their ids.
select id, content, coalesce(metadata -> 'harmful_reasons', '[]') as reasons
  from rules
 where tenant_id = :tenant_id
   and id > :after
   and coalesce((metadata -> 'needs_inversion')::boolean, false)
   and not coalesce((metadata -> 'forgotten')::boolean, false)
   and maturity <> 'anti_pattern'
 order by id
 limit :most;

-- name: invert(tenant_id, id, original, content, searchable, embedding, embedding_version_id)$
-- Turns a rule into a warning, once; a warning does not fade.
update rules
   set maturity = 'anti_pattern',
       content = :content,
       search_vector = to_tsvector('english', :searchable),
       embedding = :embedding,
       embedding_version_id = :embedding_version_id,
       permanence = 'permanent',
       decay_rate = 0,
       last_confirmed_at = now(),
       last_evaluated_at = now(),
       metadata = metadata - 'needs_inversion' - 'status' || jsonb_build_object('original_content', content)
 where tenant_id = :tenant_id
   and id = :id
   and content = :original
   and coalesce((metadata -> 'needs_inversion')::boolean, false)
   and not coalesce((metadata -> 'forgotten')::boolean, false)
   and maturity <> 'anti_pattern'
returning id;
