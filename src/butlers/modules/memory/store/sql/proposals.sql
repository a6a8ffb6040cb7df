-- name: insert(tenant_id, run_id, butler, days, changes, actions, target_ids, happened_at)!
-- Stores proposals of a run.
insert into consolidation_proposals (
    tenant_id, run_id, butler, expires_at, change, action, target_id, evidence, happened_at
)
select :tenant_id, :run_id, :butler, now() + make_interval(days => :days), p.change, p.action, p.target_id,
       array(select jsonb_array_elements_text(p.action -> 'evidence')::uuid), p.happened_at
  from unnest(
           :changes::text[], :actions::jsonb[], :target_ids::uuid[], :happened_at::timestamptz[]
       ) as p (change, action, target_id, happened_at);

-- name: waiting(tenant_id, run_id, max_rows)
-- The proposals that wait for a person, the oldest first, of all runs or of one; with the fact or rule each is about.
select p.id, p.run_id, p.butler, p.change, p.action, p.target_id, p.evidence, p.created_at, p.expires_at,
       m.subject, m.predicate, left(m.content, 2000) as current
  from consolidation_proposals p
  left join memories m
    on m.tenant_id = :tenant_id and m.id = p.target_id and m.memory_type in ('fact', 'rule')
 where p.tenant_id = :tenant_id
   and p.status = 'waiting'
   and p.expires_at > now()
   and (:run_id::uuid is null or p.run_id = :run_id)
 order by p.created_at, p.id
 limit :max_rows;

-- name: get(tenant_id, id)^
-- A proposal.
select id, run_id, butler, change, action, evidence, happened_at, target_id,
       case when status = 'waiting' and expires_at <= now() then 'expired' else status end as status
  from consolidation_proposals
 where tenant_id = :tenant_id
   and id = :id;

-- name: lock(tenant_id, id)!
-- Locks a proposal until the transaction ends.
select from consolidation_proposals where tenant_id = :tenant_id and id = :id for update;

-- name: evidence_states(tenant_id, ids)
-- The episodes of a proposal: whether each was forgotten or erased, also if it is deleted since.
select i.id, e.id is null as is_deleted,
       coalesce(e.metadata ? 'forgotten_until', (
           select v.event_type in ('episode_forgotten', 'episode_restored_undone', 'episode_erased')
             from memory_events v
            where v.tenant_id = :tenant_id
              and v.entity_type = 'episode'
              and v.entity_id = i.id
              and v.event_type in (
                  'episode_forgotten', 'episode_restored', 'episode_forgotten_undone', 'episode_restored_undone',
                  'episode_erased'
              )
            order by v.occurred_at desc
            limit 1
       ), false) as is_forgotten
  from unnest(:ids::uuid[]) as i (id)
  left join episodes e on e.tenant_id = :tenant_id and e.id = i.id;

-- name: decide(tenant_id, id, status, decided_by, memory_id)$
-- Decides a proposal that waits.
update consolidation_proposals
   set status = :status, decided_at = now(), decided_by = :decided_by, memory_id = :memory_id
 where tenant_id = :tenant_id
   and id = :id
   and status = 'waiting'
   and expires_at > now()
returning id;

-- name: expire(tenant_id, actor, request_id, payload, max_rows)$
-- Expires proposals that nobody decided in time, with an event each; returns their number.
with due as (
    select id
      from consolidation_proposals
     where tenant_id = :tenant_id
       and status = 'waiting'
       and expires_at <= now()
     order by created_at, id
     limit :max_rows
       for update skip locked
), expired as (
    update consolidation_proposals p
       set status = 'expired', decided_at = now()
      from due
     where p.tenant_id = :tenant_id
       and p.id = due.id
    returning p.id
), appended as (
    insert into memory_events (tenant_id, event_type, entity_type, entity_id, actor, request_id, payload)
    select :tenant_id, 'proposal_expired', 'proposal', id, :actor, :request_id, :payload::jsonb from expired
)
select count(*) from expired;

-- name: delete_decided(tenant_id, days)!
-- Deletes the words of proposals that were decided, or expired, long ago.
delete from consolidation_proposals
 where tenant_id = :tenant_id
   and status <> 'waiting'
   and decided_at < now() - make_interval(days => :days);
