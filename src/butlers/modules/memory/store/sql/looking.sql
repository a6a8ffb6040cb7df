-- name: unlooked_facts(tenant_id, max_scanned, before_created_at, before_id, max_rows)
-- Distilled live facts without support that nobody looked at, newest first, among the newest distilled ones.
select f.id, f.created_at
  from (
      select id, created_at
        from facts
       where tenant_id = :tenant_id
         and validity = 'active'
         and metadata ->> 'provenance' = 'distilled'
         and (:before_created_at::timestamptz is null or (created_at, id) < (:before_created_at, :before_id::uuid))
       order by created_at desc, id desc
       limit :max_scanned
  ) f
 where not exists (
     select
       from memory_events e
      where e.tenant_id = :tenant_id
        and e.entity_type = 'fact'
        and e.entity_id = f.id
        and e.event_type in ('fact_looked_at', 'fact_edited', 'fact_moved')
        and not exists (
            select
              from memory_events u
             where u.tenant_id = :tenant_id
               and u.entity_type = 'fact'
               and u.payload ? 'undone'
               and u.payload ->> 'undone' = e.request_id
               and u.entity_id = e.entity_id
        )
 )
 order by f.created_at desc, f.id desc
 limit :max_rows;

-- name: unlooked_rules(tenant_id, max_scanned, before_created_at, before_id, max_rows)
-- Distilled live rules without support that nobody looked at, newest first, among the newest distilled ones.
select r.id, r.created_at
  from (
      select id, created_at
        from rules
       where tenant_id = :tenant_id
         and not coalesce((metadata -> 'forgotten')::boolean, false)
         and metadata ->> 'provenance' = 'distilled'
         and (:before_created_at::timestamptz is null or (created_at, id) < (:before_created_at, :before_id::uuid))
       order by created_at desc, id desc
       limit :max_scanned
  ) r
 where not exists (
     select
       from memory_events e
      where e.tenant_id = :tenant_id
        and e.entity_type = 'rule'
        and e.entity_id = r.id
        and e.event_type in ('rule_looked_at', 'rule_edited', 'rule_marked_helpful', 'rule_marked_harmful', 'rule_inversion_reverted')
        and not exists (
            select
              from memory_events u
             where u.tenant_id = :tenant_id
               and u.entity_type = 'rule'
               and u.payload ? 'undone'
               and u.payload ->> 'undone' = e.request_id
               and u.entity_id = e.entity_id
        )
 )
 order by r.created_at desc, r.id desc
 limit :max_rows;
