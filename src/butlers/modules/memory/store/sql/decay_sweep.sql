-- name: list_tenants()
-- Every tenant with memories.
select tenant_id from memory_tenants();

-- name: count_live(tenant_id, memory_type)$
-- How many memories of one type are live.
select count(*) from memories where tenant_id = :tenant_id and memory_type = :memory_type and is_live;

-- name: sweep_page(tenant_id, memory_type, after, max_rows, fading_below, expired_below, may_expire, actor, request_id, caller_payload)^
-- Applies decay to the next facts or rules after an id, with an event for each change. A memory that would expire
-- beyond the cap `may_expire` fades instead. An update names the state it leaves, so that a memory that changed
-- meanwhile is left alone.
with page as (
    select id, confidence, is_fading
      from memories
     where tenant_id = :tenant_id
       and memory_type = :memory_type
       and id > :after
       and is_live
       and maturity is distinct from 'anti_pattern'
       and decay_rate > 0
     order by id
     limit :max_rows
), expiring as (
    select id, row_number() over (order by id) <= :may_expire as is_allowed
      from page
     where confidence < :expired_below
), due as (
    select p.id,
           case
               when e.is_allowed then 'expired' when p.confidence < :fading_below then 'fading' else 'recovered'
           end as next_state
      from page p
      left join expiring e on e.id = p.id
     where coalesce(e.is_allowed, false)
        or (p.confidence < :fading_below) <> p.is_fading
), locked_facts as materialized (
    select f.id, due.next_state,
           effective_confidence(f.confidence, f.decay_rate, f.last_confirmed_at, now()) as confidence,
           coalesce(f.metadata ->> 'status' = 'fading', false) as is_fading
      from facts f
      join due on due.id = f.id
     where :memory_type = 'fact'
       and f.tenant_id = :tenant_id
       and f.validity = 'active'
     order by f.id
       for update of f
), locked_rules as materialized (
    select r.id, due.next_state,
           effective_confidence(r.confidence, r.decay_rate, r.last_confirmed_at, now()) as confidence,
           coalesce(r.metadata ->> 'status' = 'fading', false) as is_fading
      from rules r
      join due on due.id = r.id
     where :memory_type = 'rule'
       and r.tenant_id = :tenant_id
       and r.maturity <> 'anti_pattern'
       and not coalesce((r.metadata -> 'forgotten')::boolean, false)
     order by r.id
       for update of r
), changed as (
    select id, next_state, confidence
      from (select * from locked_facts union all select * from locked_rules) locked
     where case next_state
               when 'expired' then confidence < :expired_below
               when 'fading' then confidence < :fading_below and not is_fading
               else confidence >= :fading_below and is_fading
           end
), changed_facts as (
    update facts f
       set validity = case changed.next_state when 'expired' then 'expired' else f.validity end,
           metadata = case changed.next_state
               when 'fading' then f.metadata || '{"status": "fading"}' else f.metadata - 'status'
           end
      from changed
     where :memory_type = 'fact'
       and f.tenant_id = :tenant_id
       and f.id = changed.id
), changed_rules as (
    update rules r
       set metadata = case changed.next_state
               when 'expired' then r.metadata - 'status' || '{"forgotten": true}'
               when 'fading' then r.metadata || '{"status": "fading"}'
               else r.metadata - 'status'
           end
      from changed
     where :memory_type = 'rule'
       and r.tenant_id = :tenant_id
       and r.id = changed.id
), appended_events as (
    insert into memory_events (tenant_id, event_type, entity_type, entity_id, actor, request_id, payload)
    select :tenant_id,
           case when :memory_type = 'rule' and next_state = 'expired' then 'rule_forgotten'
                else :memory_type || '_' || next_state end,
           :memory_type, id, :actor, :request_id,
           :caller_payload::jsonb || jsonb_build_object('by', 'decay', 'confidence', round(confidence::numeric, 4))
      from changed
)
select (select count(*) from page) as seen,
       coalesce((select id from page order by id desc limit 1), :after) as last,
       (select count(*) from expiring where not is_allowed) as held_back,
       count(*) filter (where next_state = 'fading') as fading,
       count(*) filter (where next_state = 'recovered') as recovered,
       count(*) filter (where next_state = 'expired') as expired
  from changed;

-- name: preview_sweep(tenant_id, memory_type, fading_below, expired_below)^
-- What a sweep would do without a cap, once the rules that did harm are inverted.
select count(*) as seen,
       count(*) filter (where confidence < :expired_below) as expired,
       count(*) filter (where confidence >= :expired_below and confidence < :fading_below and not is_fading) as fading,
       count(*) filter (where confidence >= :fading_below and is_fading) as recovered
  from memories
 where tenant_id = :tenant_id
   and memory_type = :memory_type
   and is_live
   and not awaits_inversion
   and maturity is distinct from 'anti_pattern'
   and decay_rate > 0;
