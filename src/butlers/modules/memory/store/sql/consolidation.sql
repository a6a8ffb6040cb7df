-- name: groups_everywhere(most)
-- Who has episodes that wait, in all tenants, the closest to expiry first.
select tenant_id, butler, waiting, retries, oldest, first_expiry
  from consolidation_groups(:most);

-- name: groups(tenant_id, most)
-- Whose episodes wait in one tenant, the closest to expiry first.
select tenant_id, butler, count(*) as waiting, count(*) filter (where consolidation_status = 'failed') as retries,
       min(created_at) as oldest, min(expires_at) as first_expiry
  from episodes
 where tenant_id = :tenant_id
   and consolidation_status in ('pending', 'failed')
   and (expires_at is null or expires_at > now())
   and (next_consolidation_retry_at is null or next_consolidation_retry_at <= now())
   and (leased_until is null or leased_until <= now())
 group by tenant_id, butler
 order by min(expires_at), min(created_at), butler
 limit :most;

-- name: lock_group(tenant_id, butler)!
-- Lets one worker at a time look for work of one butler in one tenant.
select pg_advisory_xact_lock(hashtextextended(:tenant_id || chr(31) || :butler, 5));

-- name: is_taken(tenant_id, butler)$
-- Whether a worker has episodes of the group, or some wait to be tried again: their turn comes first, or later knowledge
-- would be overtaken by earlier.
select exists (
    select
      from episodes
     where tenant_id = :tenant_id
       and butler = :butler
       and lease_token is not null
       and leased_until > now()
       and consolidation_status in ('pending', 'failed')
) or exists (
    select
      from episodes
     where tenant_id = :tenant_id
       and butler = :butler
       and consolidation_status = 'failed'
       and next_consolidation_retry_at > now()
       and (expires_at is null or expires_at > now())
);

-- name: waiting(tenant_id, butler, most)
-- The next episodes of a group, as they would be claimed.
select id, content, created_at, importance
  from episodes
 where tenant_id = :tenant_id
   and butler = :butler
   and consolidation_status in ('pending', 'failed')
   and (expires_at is null or expires_at > now())
   and (next_consolidation_retry_at is null or next_consolidation_retry_at <= now())
   and (leased_until is null or leased_until <= now())
 order by created_at, expires_at, id
 limit :most;

-- name: attempts(tenant_id, butler)$
-- How often the first of a group's waiting episodes was tried in vain.
select consolidation_attempts
  from episodes
 where tenant_id = :tenant_id
   and butler = :butler
   and consolidation_status in ('pending', 'failed')
   and (expires_at is null or expires_at > now())
   and (next_consolidation_retry_at is null or next_consolidation_retry_at <= now())
   and (leased_until is null or leased_until <= now())
 order by created_at, expires_at, id
 limit 1;

-- name: claim(tenant_id, butler, token, lease_seconds, most)
-- Takes the next episodes of a group under a lease.
with next as (
    select id
      from episodes
     where tenant_id = :tenant_id
       and butler = :butler
       and consolidation_status in ('pending', 'failed')
       and (expires_at is null or expires_at > now())
       and (next_consolidation_retry_at is null or next_consolidation_retry_at <= now())
       and (leased_until is null or leased_until <= now())
     order by created_at, expires_at, id
     limit :most
       for update skip locked
), taken as (
    update episodes e
       set lease_token = :token, leased_until = now() + make_interval(secs => :lease_seconds)
      from next
     where e.tenant_id = :tenant_id
       and e.id = next.id
    returning e.id, e.content, e.created_at, e.expires_at, e.importance
)
select id, content, created_at, importance from taken order by created_at, expires_at, id;

-- name: extend(tenant_id, token, lease_seconds)
-- Keeps a lease for longer.
update episodes
   set leased_until = now() + make_interval(secs => :lease_seconds)
 where tenant_id = :tenant_id
   and lease_token = :token
returning id;

-- name: release(tenant_id, token, ids)!
-- Gives episodes back untouched: these, or all of the lease.
update episodes
   set lease_token = null, leased_until = null
 where tenant_id = :tenant_id
   and lease_token = :token
   and (:ids::uuid[] is null or id = any (:ids));

-- name: hold(tenant_id, ids, token)
-- The episodes of a batch that are still there: whose they are, and whether somebody wanted them forgotten meanwhile.
select id, lease_token is not distinct from :token as ours, metadata ? 'forgotten_until' as forgotten
  from episodes
 where tenant_id = :tenant_id
   and id = any (:ids)
 order by id
   for update;

-- name: hold_facts(tenant_id, ids)
-- Facts that are to be changed or confirmed.
select id from facts where tenant_id = :tenant_id and id = any (:ids) order by id for update;

-- name: hold_rules(tenant_id, ids)
-- Rules that are to be confirmed.
select id from rules where tenant_id = :tenant_id and id = any (:ids) order by id for update;

-- name: mark(tenant_id, token, ids)
-- These episodes of a lease have been consolidated.
update episodes
   set consolidation_status = 'consolidated', last_consolidation_error = null, next_consolidation_retry_at = null,
       lease_token = null, leased_until = null
 where tenant_id = :tenant_id
   and lease_token = :token
   and id = any (:ids)
   and consolidation_status in ('pending', 'failed')
returning id;

-- name: fail(tenant_id, token, error, max_attempts)
-- One more attempt at the episodes of a lease came to nothing. They wait together, as long as the one that was tried most
-- often has to; after its last attempt each is set aside.
with tried as (
    select max(consolidation_attempts) as attempts, 0.8 + 0.4 * random() as jitter
      from episodes
     where tenant_id = :tenant_id
       and lease_token = :token
)
update episodes e
   set consolidation_attempts = e.consolidation_attempts + 1,
       consolidation_status = case when e.consolidation_attempts + 1 >= :max_attempts then 'dead_letter' else 'failed' end,
       last_consolidation_error = :error,
       next_consolidation_retry_at = case
           when e.consolidation_attempts + 1 < :max_attempts
           then now() + least(interval '30 seconds' * 2 ^ least(tried.attempts, 20), interval '1 hour') * tried.jitter
       end,
       lease_token = null, leased_until = null
  from tried
 where e.tenant_id = :tenant_id
   and e.lease_token = :token
   and e.consolidation_status in ('pending', 'failed')
returning e.id, e.consolidation_status as status, e.consolidation_attempts as attempts;

-- name: dead_letters(tenant_id, most)
-- Episodes that were set aside after their last attempt, oldest first.
select id, butler, content, created_at, expires_at, consolidation_attempts, last_consolidation_error
  from episodes
 where tenant_id = :tenant_id
   and consolidation_status = 'dead_letter'
   and not metadata ? 'forgotten_until'
 order by created_at, id
 limit :most;

-- name: requeue(tenant_id, ids, days)
-- Lets episodes that were set aside wait again, from the first attempt, and long enough to be read.
update episodes
   set consolidation_status = 'pending', consolidation_attempts = 0, next_consolidation_retry_at = null,
       expires_at = greatest(expires_at, now() + make_interval(days => :days))
 where tenant_id = :tenant_id
   and consolidation_status = 'dead_letter'
   and not metadata ? 'forgotten_until'
   and (:ids::uuid[] is null or id = any (:ids))
returning id;

-- name: give_up_lost(tenant_id, butler)!
-- Runs of a group whose worker ended without a word: whoever claims the group knows that nobody else has it.
update consolidation_runs
   set status = 'lost', finished_at = now(), error = 'the worker ended without a word'
 where tenant_id = :tenant_id
   and butler = :butler
   and status = 'running';

-- name: begin_run(tenant_id, id, butler, token, episodes)!
-- A batch is about to be given to a model.
insert into consolidation_runs (tenant_id, id, butler, lease_token, episodes)
values (:tenant_id, :id, :butler, :token, :episodes);

-- name: end_run(tenant_id, id, status, session_id, episodes, facts_created, facts_updated, rules_created, confirmed, errors, parse_errors, input_tokens, output_tokens, tokens_estimated, error)!
-- How a batch ended that is still running, or was given up because it took too long to say.
update consolidation_runs
   set status = :status, finished_at = now(), session_id = :session_id, episodes = :episodes,
       facts_created = :facts_created, facts_updated = :facts_updated, rules_created = :rules_created,
       confirmed = :confirmed, errors = :errors, parse_errors = :parse_errors, input_tokens = :input_tokens,
       output_tokens = :output_tokens, tokens_estimated = :tokens_estimated, error = :error
 where tenant_id = :tenant_id
   and id = :id
   and status in ('running', 'lost');

-- name: spent(tenant_id)$
-- The tokens a tenant's batches took in the last day.
select coalesce(sum(input_tokens + output_tokens), 0)::bigint
  from consolidation_runs
 where tenant_id = :tenant_id
   and started_at > now() - interval '1 day';

-- name: latest_run(tenant_id)^
-- The latest batch of a tenant that has ended.
select id, butler, status, started_at, finished_at, episodes, facts_created, facts_updated, rules_created, confirmed,
       jsonb_array_length(errors) + jsonb_array_length(parse_errors) as dropped, error
  from consolidation_runs
 where tenant_id = :tenant_id
   and status <> 'running'
 order by started_at desc, id
 limit 1;

-- name: near_facts(tenant_id, ids, version, scopes, most)
-- The live facts nearest to any of these episodes, the nearest first.
with near as (
    select f.id, min(f.distance) as distance
      from episodes e
     cross join lateral (
         select f.id, f.embedding <=> e.embedding as distance
           from facts f
          where f.tenant_id = :tenant_id
            and f.embedding_version_id = :version
            and f.validity = 'active'
            and f.scope = any (:scopes)
          order by f.embedding <=> e.embedding
          limit :most
     ) f
     where e.tenant_id = :tenant_id
       and e.id = any (:ids)
       and e.embedding_version_id = :version
     group by f.id
     order by 2
     limit :most
)
select f.id, f.subject, f.predicate, f.content, f.permanence, f.scope
  from near
  join facts f on f.tenant_id = :tenant_id and f.id = near.id
 order by near.distance, f.created_at desc, f.id;

-- name: near_rules(tenant_id, ids, version, scopes, most)
-- The live rules nearest to any of these episodes, the nearest first.
with near as (
    select r.id, min(r.distance) as distance
      from episodes e
     cross join lateral (
         select r.id, r.embedding <=> e.embedding as distance
           from rules r
          where r.tenant_id = :tenant_id
            and r.embedding_version_id = :version
            and not coalesce((r.metadata -> 'forgotten')::boolean, false)
            and not coalesce((r.metadata -> 'needs_inversion')::boolean, false)
            and r.scope = any (:scopes)
          order by r.embedding <=> e.embedding
          limit :most
     ) r
     where e.tenant_id = :tenant_id
       and e.id = any (:ids)
       and e.embedding_version_id = :version
     group by r.id
     order by 2
     limit :most
)
select r.id, r.content, r.maturity, r.scope
  from near
  join rules r on r.tenant_id = :tenant_id and r.id = near.id
 order by near.distance, r.created_at desc, r.id;
