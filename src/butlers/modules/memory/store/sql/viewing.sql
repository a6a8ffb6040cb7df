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

-- name: fact(tenant_id, id)^
-- A whole fact in any state. Looking does not count as a reference.
select id, tenant_id, subject, predicate, content, importance, confidence as stored_confidence,
       effective_confidence(confidence, decay_rate, last_confirmed_at, now()) as confidence, decay_rate,
       permanence, source_butler, source_episode_id, supersedes_id, entity_id, validity, scope,
       reference_count, created_at, last_referenced_at, last_confirmed_at, tags, metadata
  from facts
 where tenant_id = :tenant_id
   and id = :id;
