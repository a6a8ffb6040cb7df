-- name: navigation_counts(tenant_id, max_rows)^
-- Live memories and entities, counted up to a maximum so that the count does not grow with the table.
select (select count(*) from (
            select from facts where tenant_id = :tenant_id and validity = 'active' limit :max_rows
        ) f) as facts,
       (select count(*) from (
            select from rules
             where tenant_id = :tenant_id and not coalesce((metadata -> 'forgotten')::boolean, false)
             limit :max_rows
        ) r) as rules,
       (select count(*) from (
            select from episodes
             where tenant_id = :tenant_id and (expires_at is null or expires_at > now())
             order by created_at desc, id desc
             limit :max_rows
        ) e) as episodes,
       (select count(*) from (
            select from entities where tenant_id = :tenant_id and not (metadata ? 'merged_into') limit :max_rows
        ) n) as entities;
