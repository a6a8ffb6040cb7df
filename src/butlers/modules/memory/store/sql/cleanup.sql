-- name: plan_once()!
-- Until the transaction ends: deleting a row asks each table that may refer to it, always in the same way, which is not
-- worth a plan for each row.
select set_config('plan_cache_mode', 'auto', true);

-- name: delete_expired(tenant_id, most, actor, request_id, caller_payload)^
-- Deletes the next episodes whose time is over, but none that a worker is reading. What something was derived from, or nobody has read, has an event of its own; the others share one.
with deleted as (
    delete from episodes e
     where e.tenant_id = :tenant_id
       and e.expires_at < now()
       and (e.leased_until is null or e.leased_until <= now())
       and e.ctid = any (array(
           select ctid
             from episodes
            where tenant_id = :tenant_id
              and expires_at < now()
              and (leased_until is null or leased_until <= now())
            order by expires_at
            limit :most
       ))
    returning e.id, e.butler, e.session_id, e.created_at, e.consolidation_status
), judged as (
    select d.*, d.consolidation_status <> 'consolidated'
             or exists (
                 select
                   from memory_links l
                  where l.tenant_id = :tenant_id and l.target_type = 'episode' and l.target_id = d.id
             )
             or exists (
                 select
                   from memory_links l
                  where l.tenant_id = :tenant_id and l.source_type = 'episode' and l.source_id = d.id
             ) as telling
      from deleted d
), told as (
    insert into memory_events (tenant_id, event_type, entity_type, entity_id, actor, request_id, payload)
    select :tenant_id, 'episode_expired', 'episode', id, :actor, :request_id,
           :caller_payload::jsonb || jsonb_build_object(
               'episode_of', butler, 'session_id', session_id, 'created_at', created_at, 'status', consolidation_status
           )
      from judged
     where telling
    union all
    select :tenant_id, 'episode_expired', 'episode', null, :actor, :request_id,
           :caller_payload::jsonb || jsonb_build_object('episode_ids', jsonb_agg(id))
      from judged
     where not telling
    having count(*) > 0
)
select count(*) as deleted, count(*) filter (where consolidation_status <> 'consolidated') as unread
  from deleted;

-- name: delete_oldest(tenant_id, most, actor, request_id, caller_payload)$
-- Deletes the oldest episodes that were consolidated, to make room; those that wait are safe. What something was derived from, or nobody has read, has an event of its own; the others share one.
with deleted as (
    delete from episodes e
     where e.tenant_id = :tenant_id
       and e.consolidation_status = 'consolidated'
       and e.ctid = any (array(
           select ctid
             from episodes
            where tenant_id = :tenant_id
              and consolidation_status = 'consolidated'
            order by created_at
            limit :most
       ))
    returning e.id, e.butler, e.session_id, e.created_at, e.consolidation_status
), judged as (
    select d.*, d.consolidation_status <> 'consolidated'
             or exists (
                 select
                   from memory_links l
                  where l.tenant_id = :tenant_id and l.target_type = 'episode' and l.target_id = d.id
             )
             or exists (
                 select
                   from memory_links l
                  where l.tenant_id = :tenant_id and l.source_type = 'episode' and l.source_id = d.id
             ) as telling
      from deleted d
), told as (
    insert into memory_events (tenant_id, event_type, entity_type, entity_id, actor, request_id, payload)
    select :tenant_id, 'episode_crowded_out', 'episode', id, :actor, :request_id,
           :caller_payload::jsonb || jsonb_build_object(
               'episode_of', butler, 'session_id', session_id, 'created_at', created_at, 'status', consolidation_status
           )
      from judged
     where telling
    union all
    select :tenant_id, 'episode_crowded_out', 'episode', null, :actor, :request_id,
           :caller_payload::jsonb || jsonb_build_object('episode_ids', jsonb_agg(id))
      from judged
     where not telling
    having count(*) > 0
)
select count(*)
  from deleted;

-- name: alone(tenant_id)!
-- Until the transaction ends, no other makes room: two that count the same surplus would delete it twice.
select pg_advisory_xact_lock(hashtextextended(:tenant_id, 6));

-- name: remaining(tenant_id)$
-- How many episodes there are.
select count(*) from episodes where tenant_id = :tenant_id;

-- name: would_delete(tenant_id)^
-- What a cleanup would find.
select count(*) as total,
       count(*) filter (where over) as expired,
       count(*) filter (where over and consolidation_status <> 'consolidated') as unread,
       count(*) filter (where not over and consolidation_status = 'consolidated') as consolidated
  from (
      select consolidation_status,
             coalesce(expires_at < now(), false) and (leased_until is null or leased_until <= now()) as over
        from episodes
       where tenant_id = :tenant_id
  ) found;

-- name: forget_requests(tenant_id, days)!
-- Drops the answers kept for requests that nobody will send again.
delete from idempotency_keys
 where tenant_id = :tenant_id
   and created_at < now() - make_interval(days => :days);

-- name: forget_runs(tenant_id, days)!
-- Drops the records of batches from long ago.
delete from consolidation_runs
 where tenant_id = :tenant_id
   and started_at < now() - make_interval(days => :days)
   and status <> 'running';
