-- name: reuse_plans()!
-- Until the transaction ends, the foreign-key checks of each deleted row reuse one plan.
select set_config('plan_cache_mode', 'auto', true);

-- name: delete_episodes(tenant_id, event_type, max_rows, actor, request_id, caller_payload)^
-- Deletes the next episodes: `episode_expired` the expired ones that no worker has leased, `episode_crowded_out`
-- the oldest consolidated ones. An episode that something links to, or that was never consolidated, gets an event
-- of its own; the others share one.
with deleted as (
    delete from episodes e
     where e.tenant_id = :tenant_id
       and (
           (:event_type = 'episode_expired' and e.expires_at < now() and (e.leased_until is null or e.leased_until <= now()))
           or (:event_type = 'episode_crowded_out' and e.consolidation_status = 'consolidated')
       )
       and e.ctid = any (array(
           (select ctid
              from episodes
             where :event_type = 'episode_expired'
               and tenant_id = :tenant_id
               and expires_at < now()
               and (leased_until is null or leased_until <= now())
             order by expires_at
             limit :max_rows)
           union all
           (select ctid
              from episodes
             where :event_type = 'episode_crowded_out'
               and tenant_id = :tenant_id
               and consolidation_status = 'consolidated'
             order by created_at
             limit :max_rows)
       ))
    returning e.id, e.butler, e.session_id, e.created_at, e.consolidation_status
), described as (
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
             ) as has_own_event
      from deleted d
), appended_events as (
    insert into memory_events (tenant_id, event_type, entity_type, entity_id, actor, request_id, payload)
    select :tenant_id, :event_type, 'episode', id, :actor, :request_id,
           :caller_payload::jsonb || jsonb_build_object(
               'episode_of', butler, 'session_id', session_id, 'created_at', created_at, 'status', consolidation_status
           )
      from described
     where has_own_event
    union all
    select :tenant_id, :event_type, 'episode', null, :actor, :request_id,
           :caller_payload::jsonb || jsonb_build_object('episode_ids', jsonb_agg(id))
      from described
     where not has_own_event
    having count(*) > 0
)
select count(*) as deleted, count(*) filter (where consolidation_status <> 'consolidated') as unread
  from deleted;

-- name: lock_tenant_cleanup(tenant_id)!
-- Until the transaction ends, no other cleanup deletes over capacity: two that count the same excess would delete
-- it twice.
select pg_advisory_xact_lock(hashtextextended(:tenant_id, 6));

-- name: count_remaining(tenant_id)$
-- How many episodes a tenant has.
select count(*) from episodes where tenant_id = :tenant_id;

-- name: count_episodes(tenant_id)^
-- The episodes of a tenant by what a cleanup would do with them.
select count(*) as total,
       count(*) filter (where is_expired) as expired,
       count(*) filter (where is_expired and consolidation_status <> 'consolidated') as expired_unread,
       count(*) filter (where not is_expired and consolidation_status = 'consolidated') as consolidated
  from (
      select consolidation_status,
             coalesce(expires_at < now(), false) and (leased_until is null or leased_until <= now()) as is_expired
        from episodes
       where tenant_id = :tenant_id
  ) found;

-- name: delete_old_answers(tenant_id, days)!
-- Deletes stored answers of requests that are too old to be sent again.
delete from idempotency_keys
 where tenant_id = :tenant_id
   and created_at < now() - make_interval(days => :days);

-- name: delete_old_edits(tenant_id, days)!
-- Deletes the words of edits that are too old to be undone.
delete from edit_history
 where tenant_id = :tenant_id
   and edited_at < now() - make_interval(days => :days);

-- name: delete_old_runs(tenant_id, days)!
-- Deletes old records of consolidation runs.
delete from consolidation_runs
 where tenant_id = :tenant_id
   and started_at < now() - make_interval(days => :days)
   and status <> 'running';
